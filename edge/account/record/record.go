package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/branding"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/secrets"
	"verifyd/edge/origin"
	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
)

// The version of the record of an account that is not simply in service: disabled, deleted, or a name that
// leads to another account; and of one whose sessions require more than the service's. A build that knows
// only older versions refuses it, and with it the account's keys: otherwise it would accept them, or require
// less.
const (
	stateVersion   = 3
	accountVersion = 4
)

// SecretUse is the use of the box that seals signing secrets; their owner is the account id.
const SecretUse = "signing-secret"

// Besides accounts and storestate.CheckEntry, the accounts bucket has entries that hold nothing but Meeting.
// They have a dot in their names, which no account's id has: the bucket's listing of accounts (AllAccounts)
// does not read them.
const (
	AllAccounts  = "*"
	LookMeeting  = "look."   // and the keyed hash of how a name looks
	MakerMeeting = "maker."  // and that of somebody who makes accounts
	Meeting      = `{"v":2}` // which builds that know no meetings read as a record without a name
)

// IsMeeting reports whether an entry of the accounts bucket is a meeting.
func IsMeeting(name string) bool { return strings.Contains(name, ".") }

// Account is an account as it is stored in its entry.
type Account struct {
	account.Account

	// LeadsTo is the id of the account that has the name which this one's id was made from.
	LeadsTo string        `json:"leads_to,omitempty"`
	Last    *audit.Record `json:"last,omitempty"` // of the change that made this version
}

// Key is an API key as it is stored in its entry.
type Key struct {
	account.Key

	Last *audit.Record `json:"last,omitempty"` // of the change that made this version
}

// accountRecord has the levels of sessions from version 4 on, and from version 3 on whether the account is in
// service.
type accountRecord struct {
	Version int `json:"v"`
	Account

	SecretsV1 [][]byte       `json:"secrets,omitempty"` // of version 1: sealed, newest first
	Secrets   []secretRecord `json:"signing_secrets,omitempty"`
	Invites   []inviteRecord `json:"invites,omitempty"`

	// Branding is missing in records of builds that knew none: their pages show the account without it.
	Branding brandingRecord `json:"branding,omitzero"`

	// NoticeURL is sealed as the signing secrets are: its path and query may be the receiver's secrets.
	NoticeURL []byte `json:"notice_url,omitempty"`
}

// brandingRecord is a branding.Branding as it is stored in its account's record. A logo is small enough for
// that (logo.MaxBytes): one read returns everything that a page shows, and a copy of accounts copies logos.
type brandingRecord struct {
	branding.Branding

	Logo   []byte `json:"logo,omitempty"` // PNG
	Width  int    `json:"logo_width,omitzero"`
	Height int    `json:"logo_height,omitzero"`
}

func newBrandingRecord(b branding.Branding) brandingRecord {
	r := brandingRecord{Branding: b}
	if b.Logo != nil {
		r.Logo, r.Width, r.Height = b.Logo.PNG, b.Logo.Width, b.Logo.Height
	}
	return r
}

func (r brandingRecord) branding() branding.Branding {
	b := r.Branding
	if len(r.Logo) > 0 {
		b.Logo = branding.NewLogo(r.Logo, r.Width, r.Height)
	}
	return b
}

type secretRecord struct {
	Sealed []byte `json:"sealed"`
	account.Secret
}

type inviteRecord struct {
	account.Invite

	// Who made it, as access.Actor's Maker. Without a network it is no member: older builds keep this value,
	// and match it with none; those that know login links take it for one, and admit nobody.
	ByNetwork string `json:"by_network,omitempty"`
	BySubject string `json:"by_subject,omitempty"`
}

// invite reads an invite. One that an older build made under a login link names the link only in By, and
// lives longer than the link.
func (r inviteRecord) invite() account.Invite {
	i := r.Invite
	i.ID, i.Maker = InviteID(r.Digest), access.Identity{Network: r.ByNetwork, Subject: r.BySubject}
	if link, ok := strings.CutPrefix(r.By, access.LinkWords); ok && i.Maker == (access.Identity{}) {
		i.Maker = access.Identity{Subject: link}
		if end := r.CreatedAt.Add(account.LinkLifetime + topology.LoginTTL); end.Before(i.ExpiresAt) {
			i.ExpiresAt = end
		}
	}
	return i
}

type keyRecord struct {
	Version int `json:"v"`
	Key
}

// Encode writes the account, its signing secrets sealed.
func (a Account) Encode(box *secretbox.Box) ([]byte, error) {
	r := accountRecord{Version: entry.Version, Account: a, Branding: newBrandingRecord(a.Branding)}
	switch {
	case a.Level != "", a.MaxUsers != 0:
		r.Version = accountVersion
	case !a.InService() || a.LeadsTo != "":
		r.Version = stateVersion
	}
	for _, s := range a.Secrets {
		r.Secrets = append(r.Secrets, secretRecord{box.Seal([]byte(s.Value), a.ID), s})
	}
	if a.NoticeURL != "" {
		r.NoticeURL = box.Seal([]byte(a.NoticeURL), a.ID)
	}
	for _, i := range a.Invites {
		r.Invites = append(r.Invites, inviteRecord{i, i.Maker.Network, i.Maker.Subject})
	}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode account: %w", err)
	}
	return data, nil
}

// DecodeAccount reads the account of an id. Its errors are natsconf.ErrNewer, and that of a record or a
// secret which cannot be read.
func DecodeAccount(id string, data []byte, box *secretbox.Box) (Account, error) {
	var r accountRecord
	if err := natsconf.DecodeRecord(data, &r, &r.Version, accountVersion); err != nil {
		return Account{}, fmt.Errorf("account %s: %w", id, err)
	}
	a := Account{LeadsTo: r.LeadsTo, Last: r.Last, Account: r.outline(id)}
	if site := origin.Of(a.ReturnURL); a.ReturnURL != "" && !slices.Contains(a.ReturnOrigins, site) {
		a.ReturnOrigins = append(a.ReturnOrigins, site)
	}
	for _, sealed := range r.SecretsV1 {
		r.Secrets = append(r.Secrets, secretRecord{sealed, account.Secret{CreatedAt: r.CreatedAt}})
	}
	for _, s := range r.Secrets {
		value, err := box.Open(s.Sealed, id)
		if err != nil {
			return Account{}, fmt.Errorf("signing secret of account %s: %w", id, err)
		}
		s.Value = string(value)
		a.Secrets = append(a.Secrets, s.Secret)
	}
	if r.NoticeURL != nil {
		u, err := box.Open(r.NoticeURL, id)
		if err != nil {
			return Account{}, fmt.Errorf("address for notices of account %s: %w", id, err)
		}
		a.NoticeURL = string(u)
	}
	return a, nil
}

// outline is the account without its sealed part.
func (r accountRecord) outline(id string) account.Account {
	a := r.Account.Account
	a.ID, a.Branding = id, r.Branding.branding()
	for _, i := range r.Invites {
		a.Invites = append(a.Invites, i.invite())
	}
	return a
}

// Encode writes the key.
func (k Key) Encode() ([]byte, error) {
	data, err := json.Marshal(keyRecord{entry.Version, k})
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return data, nil
}

// DecodeKey reads the key of an entry. Its errors are natsconf.ErrNewer, and that of an entry or a record
// which cannot be read; beside them the account is returned, if the record names it.
func DecodeKey(name string, data []byte) (secrets.Digest, Key, error) {
	d, err := secrets.ParseEntry(name)
	if err != nil {
		return d, Key{}, err
	}
	var r keyRecord
	if err := natsconf.DecodeRecord(data, &r, &r.Version, entry.Version); err != nil {
		return d, Key{Key: account.Key{Account: r.Account}}, fmt.Errorf("key %s: %w", d.ID(), err)
	}
	r.ID = d.ID()
	return d, r.Key, nil
}

// InviteID returns the id of an invite by the digest of its token.
func InviteID(digest string) string { return secrets.ShortID("inv_", digest) }

// Outline returns the account of an id without its signing secrets, which it does not open. The record may be
// missing, or from a newer build: fields that cannot be read are empty.
func Outline(id string, data []byte) account.Account {
	var r accountRecord
	if json.Unmarshal(data, &r) != nil {
		return account.Account{ID: id}
	}
	return r.outline(id)
}
