package account

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
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
)

// Link is an operator's login link: whoever redeems it is logged in to the dashboard of one account, with a
// role, as nobody's member.
type Link struct {
	ID        string // "link_" and 16 characters, from the token's digest
	Account   string // id of the account; empty for an operator's
	Role      Role
	Operator  bool      // it leads to the operator's pages instead
	ExpiresAt time.Time // until when it can be redeemed
}

// LinkLifetime is how long a login link can be redeemed.
const LinkLifetime = 10 * time.Minute

var (
	// ErrNoLink is returned for a login link that never was, was made long ago, or was taken back.
	ErrNoLink = errors.New("no such login link")
	// ErrLinkExpired is returned for a login link that nobody redeemed in time.
	ErrLinkExpired = errors.New("the login link has expired; ask the operator for a new one")
	// ErrLinkUsed is returned for a login link that was redeemed before.
	ErrLinkUsed = errors.New("the login link was used before; ask the operator for a new one")
)

// tokenBytes of randomness in an invite's or a login link's token. Nobody guesses them, so a plain digest is
// kept of it.
const tokenBytes = 32

// newToken makes a random token in base64url and what is stored of it.
func newToken() (token, digest string) {
	var b [tokenBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	token = base64.RawURLEncoding.EncodeToString(b[:])
	sum := sha256.Sum256([]byte(token))
	return token, hex.EncodeToString(sum[:])
}

// digestToken returns what is stored of a token, if it has the form of one.
func digestToken(token string) (digest string, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) != tokenBytes {
		return "", false
	}
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:]), true
}

// shortID makes an id out of a digest, long enough that no two of an account meet.
func shortID(prefix, digest string) string {
	b, err := hex.DecodeString(digest)
	if err != nil || len(b) < idBytes {
		return prefix
	}
	return prefix + idEncoding.EncodeToString(b[:idBytes])
}

type linkRecord struct {
	Version   int       `json:"v"`
	Account   string    `json:"account"`
	Role      Role      `json:"role"`
	ExpiresAt time.Time `json:"expires_at"`
	Operator  bool      `json:"operator,omitempty"`
}

const (
	linkEntry     = "link."     // and the digest of the token
	redeemedEntry = "redeemed." // the same: written once, by who redeems the link
	// nonceHeader carries who wrote a message, so that a lost answer to one's own write does not read as
	// another's.
	nonceHeader = "Verifyd-Nonce"
)

// LoginLink makes a login link for an account and returns its token, this once. RevokeLoginLink takes it
// back. Only the operator may. Its errors are ErrNoAccount, ErrNotAllowed, natsconf.ErrCredential and an
// *InputError.
func (s *Store) LoginLink(ctx context.Context, by Actor, account string, role Role) (token string, l Link,
	err error) {
	if err := checkRole(role); err != nil {
		return "", Link{}, err
	}
	a, _, err := s.account(ctx, account)
	if err != nil {
		return "", Link{}, err
	}
	if err := s.permit(ctx, a, by, actionOperate); err != nil {
		return "", Link{}, err
	}
	return s.newLink(ctx, by, Link{Account: account, Role: role})
}

// newLink stores a link, and returns its token.
func (s *Store) newLink(ctx context.Context, by Actor, l Link) (token string, _ Link, err error) {
	token, digest := newToken()
	l.ID, l.ExpiresAt = linkID(digest), s.instant().Add(LinkLifetime)
	data, err := json.Marshal(linkRecord{
		Version: recordVersion, Account: l.Account, Role: l.Role, Operator: l.Operator,
		ExpiresAt: l.ExpiresAt,
	})
	if err != nil {
		return "", Link{}, fmt.Errorf("encode login link: %w", err)
	}
	g := Grant{
		Link: l.ID, Account: l.Account, Role: l.Role, By: by.String(), Since: s.instant(),
		Until: l.ExpiresAt.Add(natsconf.LoginTTL),
	}
	if err := s.mayGrant(ctx, g); err != nil {
		return "", Link{}, err
	}
	// Before the link, which is worth nothing without, and before the record: whose credential may not write
	// it has made no link.
	if err := s.putGrant(ctx, g, 0); err != nil {
		return "", Link{}, err
	}
	// The record comes before the link: one that nobody has harms nobody, one that nobody knows of might.
	if err := s.Note(ctx, by, l.log(), LinkCreated, l.ID, map[string]string{
		"role": l.means(), "until": stamp(l.ExpiresAt),
	}); err != nil {
		return "", Link{}, err
	}
	if err := s.publishFirst(ctx, linkEntry+digest, data, ""); err != nil {
		return "", Link{}, fmt.Errorf("store login link: %w", err)
	}
	return token, l, nil
}

// log is where the link's records are.
func (l Link) log() string {
	if l.Operator {
		return ServiceLog
	}
	return l.Account
}

// means is what whoever follows the link is.
func (l Link) means() string {
	if l.Operator {
		return "operator"
	}
	return string(l.Role)
}

// RedeemLoginLink spends a login link. Of many who redeem it, on whatever machines, one succeeds. Its errors
// are ErrNoLink, ErrLinkExpired and ErrLinkUsed; after natsconf's the link may be spent.
func (s *Store) RedeemLoginLink(ctx context.Context, token string) (Link, error) {
	digest, ok := digestToken(token)
	if !ok {
		return Link{}, ErrNoLink
	}
	l, err := s.link(ctx, digest)
	if err != nil {
		return Link{}, err
	}
	if !s.now().Before(l.ExpiresAt) {
		return Link{}, ErrLinkExpired
	}
	switch g, _, err := s.grant(ctx, Grant{Link: l.ID, Account: l.Account}); {
	case errors.Is(err, ErrNoLink), errors.Is(err, ErrNoOperator):
		return Link{}, ErrNoLink // it was taken back
	case err != nil:
		return Link{}, err
	case g.Role != l.Role || l.Operator != (g.Account == ""):
		return Link{}, ErrNoLink // an edge's credential could write a link that promises more
	}
	if err := s.redeem(ctx, digest); err != nil {
		return Link{}, err
	}
	if err := s.Note(ctx, l.Actor(), l.log(), LinkRedeemed, l.ID, map[string]string{
		"role": l.means(),
	}); err != nil {
		return Link{}, uncertain(err)
	}
	return l, nil
}

func (s *Store) link(ctx context.Context, digest string) (Link, error) {
	m, err := s.conn.Last(ctx, natsconf.BucketStream(natsconf.BucketLogins),
		natsconf.BucketSubject(natsconf.BucketLogins, linkEntry+digest))
	if errors.Is(err, natsconf.ErrNotFound) {
		return Link{}, ErrNoLink
	}
	if err != nil {
		return Link{}, fmt.Errorf("read login link: %w", err)
	}
	var r linkRecord
	if err := decode(m.Data, &r, &r.Version); err != nil {
		return Link{}, fmt.Errorf("login link: %w", err)
	}
	return Link{ID: linkID(digest), Account: r.Account, Role: r.Role, Operator: r.Operator,
		ExpiresAt: r.ExpiresAt}, nil
}

// redeem writes the fact that the link is spent. Where the answer is lost, the nonce shows whose fact it is.
func (s *Store) redeem(ctx context.Context, digest string) error {
	nonce := rand.Text()
	for range onceTries {
		err := s.publishFirst(ctx, redeemedEntry+digest, []byte(stamp(s.now())), nonce)
		if err == nil {
			return nil
		}
		if !errors.Is(err, natsconf.ErrConflict) && !errors.Is(err, natsconf.ErrUncertain) {
			return fmt.Errorf("redeem login link: %w", err)
		}
		m, rerr := s.conn.Last(ctx, natsconf.BucketStream(natsconf.BucketLogins),
			natsconf.BucketSubject(natsconf.BucketLogins, redeemedEntry+digest))
		switch {
		case rerr == nil && m.Header.Get(nonceHeader) == nonce:
			return nil
		case rerr == nil:
			return ErrLinkUsed
		case !errors.Is(rerr, natsconf.ErrNotFound):
			return fmt.Errorf("redeem login link: %w: %w", natsconf.ErrUncertain, rerr)
		}
		if err := pause(ctx); err != nil { // another one is on its way there, or ours is
			return fmt.Errorf("redeem login link: %w", err)
		}
	}
	return fmt.Errorf("redeem login link: %w", natsconf.ErrUncertain)
}

// publishFirst stores an entry of the logins that has no message yet. Its errors are natsconf's.
func (s *Store) publishFirst(ctx context.Context, entry string, data []byte, nonce string) error {
	m := &nats.Msg{
		Subject: natsconf.BucketSubject(natsconf.BucketLogins, entry), Data: data,
		Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {"0"}, nonceHeader: {nonce}},
	}
	if err := s.conn.PublishOne(ctx, natsconf.BucketStream(natsconf.BucketLogins), m); err != nil {
		return natsconf.Kind(err)
	}
	return nil
}

func linkID(digest string) string { return shortID("link_", digest) }
