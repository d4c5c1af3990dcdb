package account

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"verifyd/edge/origin"
	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/sessions"
)

// recordVersion is carried by every stored record, so that a later build can read an older one's. Version 1
// knew no members, and neither expiry nor names of keys, nor times of signing secrets. A build that knows
// version 1 alone refuses a version 2: it would accept keys that have expired.
const recordVersion = 2

// accountVersion is what an account's record carries that is not simply in service: disabled, deleted, or a
// name that leads to another account. A build that knows version 2 alone refuses it, and with it the
// account's keys; it would take them otherwise.
const accountVersion = 3

// secretUse is the use of the box that signing secrets are sealed in; their owner is the account id.
const secretUse = "signing-secret"

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// accountPrefix begins an account's id.
const accountPrefix = "acc_"

// idOf makes an account's id from the name that it is made with; names.go says why.
func idOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return accountPrefix + idEncoding.EncodeToString(sum[:])[:20]
}

type accountRecord struct {
	Version   int    `json:"v"`
	Name      string `json:"name"`
	Quota     int64  `json:"quota,omitempty"`
	ReturnURL string `json:"return_url,omitempty"`
	// ReturnOrigins is missing in records of builds that knew no such list.
	ReturnOrigins []string       `json:"return_origins,omitempty"`
	Colour        string         `json:"colour,omitempty"`
	CreatedAt     time.Time      `json:"created_at"`
	DisabledAt    time.Time      `json:"disabled_at,omitzero"` // this and the next two from version 3 on
	DeletedAt     time.Time      `json:"deleted_at,omitzero"`
	LeadsTo       string         `json:"leads_to,omitempty"`
	SecretsV1     [][]byte       `json:"secrets,omitempty"` // of version 1: sealed, newest first
	Secrets       []secretRecord `json:"signing_secrets,omitempty"`
	Members       []memberRecord `json:"members,omitempty"`
	Invites       []inviteRecord `json:"invites,omitempty"`
	Last          *recordWire    `json:"last,omitempty"`
}

type secretRecord struct {
	Sealed    []byte    `json:"sealed"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

type memberRecord struct {
	Network string    `json:"network"`
	Subject string    `json:"subject"`
	Name    string    `json:"name,omitempty"`
	Email   string    `json:"email,omitempty"`
	Role    Role      `json:"role"`
	Since   time.Time `json:"since"`
}

type inviteRecord struct {
	Digest    string    `json:"digest"` // SHA-256 of the token's secret part, hexadecimal
	Role      Role      `json:"role"`
	For       string    `json:"for,omitempty"`
	By        string    `json:"by,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	// Who made it, where that is a member, or a login link: then there is no network, and the subject is the
	// link's id. Older builds keep what stands there, and match it with no member.
	ByNetwork string `json:"by_network,omitempty"`
	BySubject string `json:"by_subject,omitempty"`
}

// invite reads an invite. One that an older build made under a login link names the link in By alone, and
// lives for longer than the link.
func (r inviteRecord) invite() Invite {
	i := Invite{
		ID: inviteID(r.Digest), Role: r.Role, For: r.For, By: r.By, CreatedAt: r.CreatedAt,
		ExpiresAt: r.ExpiresAt, digest: r.Digest,
		maker: identity{r.ByNetwork, r.BySubject},
	}
	if link, ok := strings.CutPrefix(r.By, linkWords); ok && i.maker == (identity{}) {
		i.maker = identity{subject: link}
		if end := r.CreatedAt.Add(LinkLifetime + natsconf.LoginTTL); end.Before(i.ExpiresAt) {
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
	RateLimit  Rate            `json:"rate_limit,omitzero"`
	Policy     sessions.Policy `json:"policy,omitempty"`
	CreatedAt  time.Time       `json:"created_at"`
	ExpiresAt  time.Time       `json:"expires_at,omitzero"`
	RevokedAt  time.Time       `json:"revoked_at,omitzero"`
	Replaces   string          `json:"replaces,omitempty"`
	ReplacedBy string          `json:"replaced_by,omitempty"`
	Last       *recordWire     `json:"last,omitempty"`
}

func encodeAccount(a Account, box *secretbox.Box) ([]byte, error) {
	r := accountRecord{
		Version: recordVersion, Name: a.Name, Quota: a.Quota, ReturnURL: a.ReturnURL,
		ReturnOrigins: a.ReturnOrigins, Colour: a.Colour, CreatedAt: a.CreatedAt, Last: a.last.wire(),
		DisabledAt: a.DisabledAt, DeletedAt: a.DeletedAt, LeadsTo: a.leadsTo,
	}
	if !a.InService() || a.leadsTo != "" {
		r.Version = accountVersion
	}
	for _, s := range a.Secrets {
		r.Secrets = append(r.Secrets, secretRecord{
			Sealed: box.Seal([]byte(s.Value), a.ID), CreatedAt: s.CreatedAt, ExpiresAt: s.ExpiresAt,
		})
	}
	for _, m := range a.Members {
		r.Members = append(r.Members, memberRecord(m))
	}
	for _, i := range a.Invites {
		r.Invites = append(r.Invites, inviteRecord{
			Digest: i.digest, Role: i.Role, For: i.For, By: i.By, CreatedAt: i.CreatedAt,
			ExpiresAt: i.ExpiresAt,
			ByNetwork: i.maker.network, BySubject: i.maker.subject,
		})
	}
	return json.Marshal(r)
}

func decodeAccount(id string, data []byte, box *secretbox.Box) (Account, error) {
	var r accountRecord
	if err := natsconf.DecodeRecord(data, &r, &r.Version, accountVersion); err != nil {
		return Account{}, fmt.Errorf("account %s: %w", id, err)
	}
	a := Account{
		ID: id, Name: r.Name, Quota: r.Quota, ReturnURL: r.ReturnURL, ReturnOrigins: r.ReturnOrigins,
		Colour: r.Colour, CreatedAt: r.CreatedAt, last: r.Last.record(),
		DisabledAt: r.DisabledAt, DeletedAt: r.DeletedAt, leadsTo: r.LeadsTo,
	}
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
		a.Secrets = append(a.Secrets, Secret{
			Value: string(s), CreatedAt: sr.CreatedAt, ExpiresAt: sr.ExpiresAt,
		})
	}
	for _, m := range r.Members {
		a.Members = append(a.Members, Member(m))
	}
	for _, i := range r.Invites {
		a.Invites = append(a.Invites, i.invite())
	}
	return a, nil
}

func encodeKey(k Key) ([]byte, error) {
	return json.Marshal(keyRecord{
		Version: recordVersion, Account: k.Account, Name: k.Name, Test: k.Test, Last4: k.Last4,
		RateLimit: k.RateLimit, Policy: k.Policy,
		CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt, Replaces: k.Replaces,
		ReplacedBy: k.ReplacedBy,
		Last:       k.last.wire(),
	})
}

func decodeKey(entry string, data []byte) (digest, Key, error) {
	d, err := parseEntry(entry)
	if err != nil {
		return d, Key{}, err
	}
	var r keyRecord
	if err := decode(data, &r, &r.Version); err != nil {
		return d, Key{}, fmt.Errorf("key %s: %w", d.id(), err)
	}
	return d, Key{
		ID: d.id(), Account: r.Account, Name: r.Name, Test: r.Test, Last4: r.Last4, RateLimit: r.RateLimit,
		Policy:    r.Policy,
		CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, RevokedAt: r.RevokedAt, Replaces: r.Replaces,
		ReplacedBy: r.ReplacedBy,
		last:       r.Last.record(),
	}, nil
}

// parseEntry reads the name of a key's entry, with the dot of digest.entry or, of version 1, without.
func parseEntry(entry string) (d digest, err error) {
	text := strings.Replace(entry, ".", "", 1)
	if len(text) != hex.EncodedLen(len(d)) {
		return d, fmt.Errorf("key entry %q is not a digest", entry)
	}
	if _, err := hex.Decode(d[:], []byte(text)); err != nil {
		return d, fmt.Errorf("key entry %q is not a digest", entry)
	}
	return d, nil
}

// rewritable refuses a record that holds what this build does not know: written anew from what it knows, the
// rest would be gone. A newer build may add a member without another version, where who only reads can do
// without it. record is what this build knows of it. What takes a right away is written all the same
// (keeping): it cannot wait.
func rewritable(data []byte, record any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(record); err != nil {
		return fmt.Errorf("it holds more than this build can write again (%w): %w", err, natsconf.ErrNewer)
	}
	return nil
}

// keeping returns a record as this build writes it, with what an older text of it holds beside what this
// build knows. Of parts only what this build knows is left: that is for changes that must not wait for a
// newer build. known is what this build knows of it.
func keeping(older, written []byte, known any) ([]byte, error) {
	var all, now map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(older, &all), json.Unmarshal(written, &now)); err != nil {
		return nil, err
	}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(known)) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		delete(all, name)
	}
	maps.Copy(all, now)
	return json.Marshal(all)
}

// decode refuses a record of a newer build rather than misread it.
func decode(data []byte, into any, version *int) error {
	return natsconf.DecodeRecord(data, into, version, recordVersion)
}
