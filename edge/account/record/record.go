package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/branding"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/naming"
	"verifyd/edge/account/secrets"
	"verifyd/edge/origin"
	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/proof"
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

	LeadsTo string        // id of the account that has the name which this one's id was made from
	Last    *audit.Record // of the change that made this version
}

// Key is an API key as it is stored in its entry.
type Key struct {
	account.Key

	Last *audit.Record // of the change that made this version
}

type accountRecord struct {
	Version   int    `json:"v"`
	Name      string `json:"name"`
	Quota     int64  `json:"quota,omitempty"`
	ReturnURL string `json:"return_url,omitempty"`
	// ReturnOrigins is missing in records of builds that knew no such list.
	ReturnOrigins []string       `json:"return_origins,omitempty"`
	Colour        string         `json:"colour,omitempty"`
	Level         proof.Level    `json:"binding,omitempty"`   // from version 4 on
	MaxUsers      int            `json:"max_users,omitempty"` // from version 4 on
	CreatedAt     time.Time      `json:"created_at"`
	DisabledAt    time.Time      `json:"disabled_at,omitzero"` // this and the next two from version 3 on
	DeletedAt     time.Time      `json:"deleted_at,omitzero"`
	LeadsTo       string         `json:"leads_to,omitempty"`
	SecretsV1     [][]byte       `json:"secrets,omitempty"` // of version 1: sealed, newest first
	Secrets       []secretRecord `json:"signing_secrets,omitempty"`
	Members       []memberRecord `json:"members,omitempty"`
	Invites       []inviteRecord `json:"invites,omitempty"`
	Last          *audit.Record  `json:"last,omitempty"`

	// The next fields are missing in records of builds that knew no more of an account's life. Those builds
	// serve the account as if the fields were not there, so the fields must not change what they may do: an
	// account whose deletion was requested is disabled, too.
	Former         []naming.Former `json:"former,omitempty"`
	Granted        bool            `json:"name_granted,omitempty"`
	VerifiedAt     time.Time       `json:"verified_at,omitzero"`
	DisabledReason string          `json:"disabled_reason,omitempty"`
	DeleteAskedAt  time.Time       `json:"delete_asked_at,omitzero"`

	// So is this: their pages show the account without it.
	Branding brandingRecord `json:"branding,omitzero"`

	// NoticeURL is sealed as the signing secrets are: its path and query may be the receiver's secrets.
	NoticeURL []byte `json:"notice_url,omitempty"`
}

// brandingRecord is a branding.Branding as it is stored in its account's record. A logo is small enough for
// that (logo.MaxBytes): one read returns everything that a page shows, and a copy of accounts copies logos.
type brandingRecord struct {
	Accent     string `json:"accent,omitempty"`
	AccentDark string `json:"accent_dark,omitempty"`
	Button     string `json:"button,omitempty"`
	Logo       []byte `json:"logo,omitempty"` // PNG
	Width      int    `json:"logo_width,omitzero"`
	Height     int    `json:"logo_height,omitzero"`
}

func newBrandingRecord(b branding.Branding) brandingRecord {
	r := brandingRecord{Accent: b.Accent, AccentDark: b.AccentDark, Button: b.Button}
	if b.Logo != nil {
		r.Logo, r.Width, r.Height = b.Logo.PNG, b.Logo.Width, b.Logo.Height
	}
	return r
}

func (r brandingRecord) branding() branding.Branding {
	b := branding.Branding{Accent: r.Accent, AccentDark: r.AccentDark, Button: r.Button}
	if len(r.Logo) > 0 {
		b.Logo = branding.NewLogo(r.Logo, r.Width, r.Height)
	}
	return b
}

type secretRecord struct {
	Sealed    []byte    `json:"sealed"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

type memberRecord struct {
	Network string      `json:"network"`
	Subject string      `json:"subject"`
	Name    string      `json:"name,omitempty"`
	Email   string      `json:"email,omitempty"`
	Role    access.Role `json:"role"`
	Since   time.Time   `json:"since"`
}

type inviteRecord struct {
	Digest    string      `json:"digest"` // SHA-256 of the token's secret part, hexadecimal
	Role      access.Role `json:"role"`
	For       string      `json:"for,omitempty"`
	By        string      `json:"by,omitempty"`
	CreatedAt time.Time   `json:"created_at"`
	ExpiresAt time.Time   `json:"expires_at"`
	// Who made it, as access.Actor's Maker. Without a network it is no member: older builds keep this value,
	// and match it with none; those that know login links take it for one, and admit nobody.
	ByNetwork string `json:"by_network,omitempty"`
	BySubject string `json:"by_subject,omitempty"`
}

// invite reads an invite. One that an older build made under a login link names the link only in By, and
// lives longer than the link.
func (r inviteRecord) invite() account.Invite {
	i := account.Invite{
		ID: InviteID(r.Digest), Role: r.Role, For: r.For, By: r.By, CreatedAt: r.CreatedAt,
		ExpiresAt: r.ExpiresAt, Digest: r.Digest,
		Maker: access.Identity{Network: r.ByNetwork, Subject: r.BySubject},
	}
	if link, ok := strings.CutPrefix(r.By, access.LinkWords); ok && i.Maker == (access.Identity{}) {
		i.Maker = access.Identity{Subject: link}
		if end := r.CreatedAt.Add(account.LinkLifetime + topology.LoginTTL); end.Before(i.ExpiresAt) {
			i.ExpiresAt = end
		}
	}
	return i
}

type keyRecord struct {
	Version    int             `json:"v"`
	Account    string          `json:"account"`
	Name       string          `json:"name,omitempty"`
	Test       bool            `json:"test,omitempty"`
	Last4      string          `json:"last4"`
	RateLimit  account.Rate    `json:"rate_limit,omitzero"`
	Policy     sessions.Policy `json:"policy,omitempty"`
	CreatedAt  time.Time       `json:"created_at"`
	ExpiresAt  time.Time       `json:"expires_at,omitzero"`
	RevokedAt  time.Time       `json:"revoked_at,omitzero"`
	Replaces   string          `json:"replaces,omitempty"`
	ReplacedBy string          `json:"replaced_by,omitempty"`
	Last       *audit.Record   `json:"last,omitempty"`
}

// Encode writes the account, its signing secrets sealed.
func (a Account) Encode(box *secretbox.Box) ([]byte, error) {
	r := accountRecord{
		Version: entry.Version, Name: a.Name, Quota: a.Quota, ReturnURL: a.ReturnURL,
		ReturnOrigins: a.ReturnOrigins, Colour: a.Colour, Level: a.Level, MaxUsers: a.MaxUsers,
		CreatedAt: a.CreatedAt, Last: a.Last,
		DisabledAt: a.DisabledAt, DeletedAt: a.DeletedAt, LeadsTo: a.LeadsTo,
		Former: a.Former, Granted: a.Granted, VerifiedAt: a.VerifiedAt,
		DisabledReason: a.DisabledReason, DeleteAskedAt: a.DeleteAskedAt,
		Branding: newBrandingRecord(a.Branding),
	}
	switch {
	case a.Level != "", a.MaxUsers != 0:
		r.Version = accountVersion
	case !a.InService() || a.LeadsTo != "":
		r.Version = stateVersion
	}
	for _, s := range a.Secrets {
		r.Secrets = append(r.Secrets, secretRecord{
			Sealed: box.Seal([]byte(s.Value), a.ID), CreatedAt: s.CreatedAt, ExpiresAt: s.ExpiresAt,
		})
	}
	if a.NoticeURL != "" {
		r.NoticeURL = box.Seal([]byte(a.NoticeURL), a.ID)
	}
	for _, m := range a.Members {
		r.Members = append(r.Members, memberRecord(m))
	}
	for _, i := range a.Invites {
		r.Invites = append(r.Invites, inviteRecord{
			Digest: i.Digest, Role: i.Role, For: i.For, By: i.By, CreatedAt: i.CreatedAt,
			ExpiresAt: i.ExpiresAt,
			ByNetwork: i.Maker.Network, BySubject: i.Maker.Subject,
		})
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
		r.Secrets = append(r.Secrets, secretRecord{Sealed: sealed, CreatedAt: r.CreatedAt})
	}
	for _, sr := range r.Secrets {
		s, err := box.Open(sr.Sealed, id)
		if err != nil {
			return Account{}, fmt.Errorf("signing secret of account %s: %w", id, err)
		}
		a.Secrets = append(a.Secrets, account.Secret{
			Value: string(s), CreatedAt: sr.CreatedAt, ExpiresAt: sr.ExpiresAt,
		})
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
	a := account.Account{
		ID: id, Name: r.Name, Quota: r.Quota, ReturnURL: r.ReturnURL, ReturnOrigins: r.ReturnOrigins,
		Colour: r.Colour, Level: r.Level, MaxUsers: r.MaxUsers, CreatedAt: r.CreatedAt,
		DisabledAt: r.DisabledAt, DeletedAt: r.DeletedAt,
		Former: r.Former, Granted: r.Granted, VerifiedAt: r.VerifiedAt,
		DisabledReason: r.DisabledReason, DeleteAskedAt: r.DeleteAskedAt,
		Branding: r.Branding.branding(),
	}
	for _, m := range r.Members {
		a.Members = append(a.Members, account.Member(m))
	}
	for _, i := range r.Invites {
		a.Invites = append(a.Invites, i.invite())
	}
	return a
}

// Encode writes the key.
func (k Key) Encode() ([]byte, error) {
	data, err := json.Marshal(keyRecord{
		Version: entry.Version, Account: k.Account, Name: k.Name, Test: k.Test, Last4: k.Last4,
		RateLimit: k.RateLimit, Policy: k.Policy,
		CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt, Replaces: k.Replaces,
		ReplacedBy: k.ReplacedBy,
		Last:       k.Last,
	})
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
	if err := entry.Decode(data, &r, &r.Version); err != nil {
		return d, Key{Key: account.Key{Account: r.Account}}, fmt.Errorf("key %s: %w", d.ID(), err)
	}
	return d, Key{Last: r.Last, Key: account.Key{
		ID: d.ID(), Account: r.Account, Name: r.Name, Test: r.Test, Last4: r.Last4, RateLimit: r.RateLimit,
		Policy:    r.Policy,
		CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, RevokedAt: r.RevokedAt, Replaces: r.Replaces,
		ReplacedBy: r.ReplacedBy,
	}}, nil
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
