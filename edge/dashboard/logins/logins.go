// Package logins keeps the logins to the dashboard, in the bucket topology.BucketLogins.
//
// The law:
//
//  1. A cookie holds a random token; the store holds its SHA-256. A copy of the store logs nobody in.
//  2. Every login has a token of its own, made at that login. A login that has ended stays ended: its entry
//     is removed, and a request that presents the token again is not logged in.
//  3. A login lives for Lifetime, however much it is used, and ends after Idle without use. The instants in
//     the record decide, not the bucket's TTL.
//  4. EndAll ends every login of one identity on every edge at once: it changes that identity's epoch, which
//     each login remembers.
//  5. A value that one request passes to the next, a parcel, is sealed, bound to its login and read once.
//  6. A login remembers when its person signed in, which may be before it began. Sensitive acts need a login
//     whose sign-in is fresh.
//  7. The logins of an identity are found by an index, one entry each, which is written first: a login that
//     is not in it was made by a build that did not write one.
package logins

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/edge/account/access"
	"verifyd/edge/account/entry"
	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
)

const (
	// Lifetime is how long a login lives.
	Lifetime = topology.LoginTTL
	// Idle is how long a login lives that is not used. Builds that do not know it keep it alive for Lifetime.
	Idle = 2 * time.Hour
	// FreshFor is how long a sign-in is fresh.
	FreshFor = 10 * time.Minute
	// usedEvery is how often a use is stored.
	usedEvery = 5 * time.Minute

	tokenBytes    = 32
	tokenLen      = 43 // tokenBytes in unpadded base64url
	recordVersion = 1
	// parcelUse is the use of the box that parcels are sealed in; their owner is the login.
	parcelUse = "dashboard-parcel"
	// parcelLife is how long a parcel waits: a browser follows a redirect at once.
	parcelLife = 2 * time.Minute
)

var (
	// ErrNotLoggedIn is returned for a token that is not logged in: unknown, ended, expired or malformed.
	ErrNotLoggedIn = errors.New("not logged in")
	// ErrNoParcel is returned for a parcel that was taken, has expired, or is another login's.
	ErrNoParcel = errors.New("no such parcel")
)

// Login is one browser that is logged in. It is either somebody whom an identity network vouched for, or the
// person who redeemed an operator's login link: then LinkID is set and the identity is empty.
type Login struct {
	// namespace of the identity network, which is its id unless that was pointed at another provider
	Network string `json:"network,omitempty"`
	Subject string `json:"subject,omitempty"` // who they are there
	Name    string `json:"name,omitempty"`    // for people; may be empty
	Email   string `json:"email,omitempty"`   // verified by the network; empty otherwise
	LinkID  string `json:"link,omitempty"`    // id of the login link
	// of the login link: the right that it was made for, in Account and nowhere else
	Role access.Role `json:"role,omitempty"`
	// Operator: the login link was made for the operator's pages and leads nowhere else. Whether it still
	// does is checked each time.
	Operator bool   `json:"operator,omitempty"`
	Account  string `json:"account,omitempty"` // id of the selected account

	CreatedAt time.Time `json:"created_at"`
	UsedAt    time.Time `json:"used_at,omitzero"` // a use of it, the last one or up to usedEvery before
	// SignedInAt is when the person signed in at the network, or came by the link, before CreatedAt if the
	// network let them in without asking. Older builds do not write it.
	SignedInAt time.Time `json:"signed_in_at,omitzero"`
	// SignedInAgo is how long before Begin the person signed in, by the network's own clock.
	SignedInAgo time.Duration `json:"-"`

	digest   string // of the token; names the login in the store
	epoch    string
	revision uint64 // of its entry
}

type record struct {
	Version int    `json:"v"`
	Epoch   string `json:"epoch,omitempty"`
	Login
}

// Store keeps logins. Its methods are safe for concurrent use. Their errors, apart from those named, are
// natsconf.ErrUnavailable.
type Store struct {
	conn *natsconf.Conn
	box  *secretbox.Box
	now  func() time.Time
}

// NewStore returns a store. now is the store's time when nil.
func NewStore(c *natsconf.Conn, key secretbox.Master, now func() time.Time) *Store {
	if now == nil {
		now = c.Clock.Now
	}
	return &Store{conn: c, box: key.Box(parcelUse), now: now}
}

// get reads an entry.
func (s *Store) get(ctx context.Context, key string) (entry.Entry, error) {
	return entry.Get(ctx, s.conn, topology.BucketLogins, key)
}

// put stores an entry; revision as in entry.Put.
func (s *Store) put(ctx context.Context, key string, data []byte, revision uint64) error {
	return entry.Put(ctx, s.conn, topology.BucketLogins, key, data, revision)
}

// purge removes an entry; revision as in entry.Purge.
func (s *Store) purge(ctx context.Context, key string, revision uint64) error {
	return entry.Purge(ctx, s.conn, topology.BucketLogins, key, revision)
}

// Begin logs somebody in and returns the token for the cookie.
func (s *Store) Begin(ctx context.Context, l Login) (token string, err error) {
	l.CreatedAt = s.now().UTC().Truncate(time.Millisecond)
	l.SignedInAt = l.CreatedAt.Add(-l.SignedInAgo)
	if l.epoch, err = s.epochOf(ctx, l); err != nil {
		return "", err
	}
	token = newToken()
	l.digest = digest(token)
	data, err := encode(l)
	if err != nil {
		return "", err
	}
	if l.Subject != "" { // a login link is redeemed once
		if err := s.put(ctx, ownKey(l, l.digest), nil, 0); err != nil {
			return "", unavailable("store the place of the login", err)
		}
	}
	if err := s.put(ctx, sessionKey(l.digest), data, 0); err != nil {
		return "", unavailable("store the login", err)
	}
	return token, nil
}

// Find returns the login of a cookie's token. The error is ErrNotLoggedIn if there is none.
func (s *Store) Find(ctx context.Context, token string) (Login, error) {
	if len(token) != tokenLen {
		return Login{}, ErrNotLoggedIn
	}
	return s.find(ctx, digest(token))
}

// find is Find for the digest of a token.
func (s *Store) find(ctx context.Context, digest string) (Login, error) {
	e, err := s.get(ctx, sessionKey(digest))
	if errors.Is(err, natsconf.ErrNotFound) {
		return Login{}, ErrNotLoggedIn
	}
	if err != nil {
		return Login{}, unavailable("read the login", err)
	}
	var r record
	if json.Unmarshal(e.Value, &r) != nil || r.Version != recordVersion {
		return Login{}, ErrNotLoggedIn // of a newer build: log in again
	}
	l := r.Login
	l.digest, l.epoch, l.revision = digest, r.Epoch, e.Revision
	if now := s.now(); !now.Before(l.CreatedAt.Add(Lifetime)) || !now.Before(l.LastUse().Add(Idle)) {
		return Login{}, ErrNotLoggedIn
	}
	// An epoch that has aged out is older than every login that lives.
	switch epoch, err := s.epochOf(ctx, l); {
	case err != nil:
		return Login{}, err
	case epoch != "" && epoch != l.epoch:
		return Login{}, ErrNotLoggedIn
	}
	return l, nil
}

// LastUse returns when the login is known to have been used last, at most usedEvery before it was.
func (l Login) LastUse() time.Time {
	if l.UsedAt.IsZero() {
		return l.CreatedAt
	}
	return l.UsedAt
}

// Fresh reports whether the person of a login signed in within FreshFor. If it is not known when they did,
// the beginning of the login counts.
func (s *Store) Fresh(l Login) bool {
	at := l.SignedInAt
	if at.IsZero() {
		at = l.CreatedAt
	}
	return s.now().Before(at.Add(FreshFor))
}

// Use keeps a login, as Find has returned it, from ending for want of use. A change of it that came in
// between is a use that is stored with the next.
func (s *Store) Use(ctx context.Context, l Login) error {
	now := s.now()
	if now.Before(l.LastUse().Add(usedEvery)) {
		return nil
	}
	l.UsedAt = now.UTC().Truncate(time.Millisecond)
	data, err := encode(l)
	if err != nil {
		return err
	}
	err = s.put(ctx, sessionKey(l.digest), data, l.revision)
	if err != nil && !errors.Is(err, natsconf.ErrConflict) {
		return unavailable("store the use of the login", err)
	}
	return nil
}

// Choose changes the selected account of a login, which is a use of it.
func (s *Store) Choose(ctx context.Context, l Login, account string) error {
	l.Account, l.UsedAt = account, s.now().UTC().Truncate(time.Millisecond)
	data, err := encode(l)
	if err != nil {
		return err
	}
	return natsconf.Retry(ctx, func() error { // a use may be stored in between
		e, err := s.get(ctx, sessionKey(l.digest))
		if errors.Is(err, natsconf.ErrNotFound) {
			return ErrNotLoggedIn // ended meanwhile: it must not come back by a write
		}
		if err != nil {
			return unavailable("read the login", err)
		}
		err = s.put(ctx, sessionKey(l.digest), data, e.Revision)
		if err != nil && !errors.Is(err, natsconf.ErrConflict) {
			return unavailable("store the login", err)
		}
		return err
	})
}

// End ends a login. A repeat is harmless.
func (s *Store) End(ctx context.Context, l Login) error {
	if err := s.purge(ctx, sessionKey(l.digest), 0); err != nil {
		return unavailable("end the login", err)
	}
	return nil
}

// EndAll ends every login of the same identity; for a login by a link, only that login.
func (s *Store) EndAll(ctx context.Context, l Login) error {
	if l.Subject != "" {
		m := &nats.Msg{
			Subject: topology.BucketSubject(topology.BucketLogins, epochKey(l)), Data: []byte(rand.Text()),
		}
		if err := s.conn.PublishOne(ctx, topology.BucketStream(topology.BucketLogins), m); err != nil {
			return unavailable("end the logins", err)
		}
	}
	return s.End(ctx, l)
}

// parcel is what one request passes to the next.
type parcel struct {
	At   time.Time       `json:"at"`
	Data json.RawMessage `json:"data"`
}

// Hand keeps a value for the login's next request, and returns the name for Take.
func (s *Store) Hand(ctx context.Context, l Login, what any) (name string, err error) {
	data, err := json.Marshal(what)
	if err != nil {
		return "", fmt.Errorf("encode parcel: %w", err)
	}
	whole, err := json.Marshal(parcel{s.now(), data})
	if err != nil {
		return "", fmt.Errorf("encode parcel: %w", err)
	}
	name = newToken()
	if err := s.put(ctx, parcelKey(name), s.box.Seal(whole, l.digest), 0); err != nil {
		return "", unavailable("store the parcel", err)
	}
	return name, nil
}

// Take returns what Hand kept, once, to the login that it was kept for. The error is ErrNoParcel if there is
// none.
func (s *Store) Take(ctx context.Context, l Login, name string, into any) error {
	if len(name) != tokenLen {
		return ErrNoParcel
	}
	e, err := s.get(ctx, parcelKey(name))
	if errors.Is(err, natsconf.ErrNotFound) {
		return ErrNoParcel
	}
	if err != nil {
		return unavailable("read the parcel", err)
	}
	whole, err := s.box.Open(e.Value, l.digest)
	if err != nil {
		return ErrNoParcel // another login's
	}
	// If two take it at once, the second removal sees another revision.
	switch err := s.purge(ctx, parcelKey(name), e.Revision); {
	case err == nil:
	case errors.Is(err, natsconf.ErrConflict):
		return ErrNoParcel
	default: // it may still be stored: a reload asks again
		return unavailable("take the parcel", err)
	}
	var p parcel
	if err := json.Unmarshal(whole, &p); err != nil || s.now().Sub(p.At) > parcelLife {
		return ErrNoParcel
	}
	if err := json.Unmarshal(p.Data, into); err != nil {
		return fmt.Errorf("decode parcel: %w", err)
	}
	return nil
}

// epochOf reads the epoch of a login's identity; empty if it has none.
func (s *Store) epochOf(ctx context.Context, l Login) (string, error) {
	if l.Subject == "" {
		return "", nil
	}
	e, err := s.get(ctx, epochKey(l))
	if errors.Is(err, natsconf.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", unavailable("read the epoch", err)
	}
	return string(e.Value), nil
}

func encode(l Login) ([]byte, error) {
	data, err := json.Marshal(record{Version: recordVersion, Epoch: l.epoch, Login: l})
	if err != nil {
		return nil, fmt.Errorf("encode login: %w", err)
	}
	return data, nil
}

func newToken() string {
	var b [tokenBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func sessionKey(digest string) string { return "session." + digest }
func parcelKey(name string) string    { return "parcel." + digest(name) }

// epochKey names an identity's epoch, and ownKey the place of one of its logins in the index.
func epochKey(l Login) string          { return "epoch." + identity(l) }
func ownKey(l Login, of string) string { return "own." + identity(l) + "." + of }

// identity names an identity in keys. A network's id holds no zero byte.
func identity(l Login) string { return digest(l.Network + "\x00" + l.Subject) }

func unavailable(what string, err error) error {
	return fmt.Errorf("%s: %w: %w", what, natsconf.ErrUnavailable, err)
}
