package grant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/secrets"
	"verifyd/natsconf"
	"verifyd/natsconf/once"
	"verifyd/natsconf/topology"
)

// Link is an operator's login link: the person who redeems it is logged in to the dashboard of one account,
// with a role, without being a member.
type Link struct {
	ID        string      `json:"-"`       // "link_" and 16 characters, from the token's digest
	Account   string      `json:"account"` // id of the account; empty for an operator's
	Role      access.Role `json:"role"`
	ExpiresAt time.Time   `json:"expires_at"`         // until when it can be redeemed
	Operator  bool        `json:"operator,omitempty"` // it leads to the operator's pages instead
}

var (
	// ErrNoLink is returned for a login link that never was, was made long ago, or was revoked.
	ErrNoLink = errors.New("no such login link")
	// ErrLinkExpired is returned for a login link that was not redeemed in time.
	ErrLinkExpired = errors.New("the login link has expired; ask the operator for a new one")
	// ErrLinkUsed is returned for a login link that was redeemed before.
	ErrLinkUsed = errors.New("the login link was used before; ask the operator for a new one")
)

type linkRecord struct {
	Version int `json:"v"`
	Link
}

const (
	linkEntry     = "link."     // and the digest of the token
	redeemedEntry = "redeemed." // the same: written once, when the link is redeemed
)

// LoginLink makes a login link for an account and returns its token, only this once. RevokeLoginLink revokes
// it. The caller knows that there are such an account and such a role, and that the actor is an operator
// (accountstore.Store.LoginLink). The error is natsconf.ErrCredential.
func (s *Store) LoginLink(ctx context.Context, by access.Actor, account string,
	role access.Role) (token string, l Link, err error) {
	return s.newLink(ctx, by, Link{Account: account, Role: role})
}

// OperatorLink makes a login link for the operator's pages and returns its token, only this once.
// RevokeOperatorLink revokes it. Its errors are natsconf.ErrCredential, and ErrNotAllowed for an actor who is
// not at the command line.
func (s *Store) OperatorLink(ctx context.Context, by access.Actor) (token string, l Link, err error) {
	if !by.AtCommandLine() {
		return "", Link{}, fmt.Errorf("%w: only the command line creates operators", access.ErrNotAllowed)
	}
	return s.newLink(ctx, by, Link{Operator: true})
}

// newLink stores a link, and returns its token.
func (s *Store) newLink(ctx context.Context, by access.Actor, l Link) (token string, _ Link, err error) {
	token, digest := secrets.NewToken()
	l.ID, l.ExpiresAt = linkID(digest), s.log.Instant().Add(account.LinkLifetime)
	data, err := json.Marshal(linkRecord{entry.Version, l})
	if err != nil {
		return "", Link{}, fmt.Errorf("encode login link: %w", err)
	}
	g := Grant{
		Link: l.ID, Account: l.Account, Role: l.Role, By: by.String(), Since: s.log.Instant(),
		Until: l.ExpiresAt.Add(topology.LoginTTL),
	}
	if err := s.mayGrant(ctx, g); err != nil {
		return "", Link{}, err
	}
	// Before the link, which is worth nothing without it, and before the record: an actor whose credential
	// may not write it has made no link.
	if err := s.putGrant(ctx, g, 0); err != nil {
		return "", Link{}, err
	}
	// The record comes before the link: a record without a link is harmless, a link without a record might
	// not be.
	if err := s.log.Note(ctx, by, l.log(), audit.LinkCreated, l.ID, map[string]string{
		"role": l.means(), "until": entry.Stamp(l.ExpiresAt),
	}); err != nil {
		return "", Link{}, err
	}
	if err := s.tokens.putFirst(ctx, linkEntry+digest, data); err != nil {
		return "", Link{}, fmt.Errorf("store login link: %w", err)
	}
	return token, l, nil
}

// log is the log that holds the link's records.
func (l Link) log() string {
	if l.Operator {
		return audit.ServiceLog
	}
	return l.Account
}

// means is what the person who follows the link is.
func (l Link) means() string {
	if l.Operator {
		return "operator"
	}
	return string(l.Role)
}

// RedeemLoginLink spends a login link. If many redeem it, on whatever machines, one succeeds. Its errors are
// ErrNoLink, ErrLinkExpired and ErrLinkUsed; after natsconf's the link may be spent.
func (s *Store) RedeemLoginLink(ctx context.Context, token string) (Link, error) {
	digest, ok := secrets.DigestToken(token)
	if !ok {
		return Link{}, ErrNoLink
	}
	l, err := s.tokens.link(ctx, digest)
	if err != nil {
		return Link{}, err
	}
	if !s.log.Instant().Before(l.ExpiresAt) {
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
	if err := s.tokens.redeem(ctx, digest); err != nil {
		return Link{}, err
	}
	if err := s.log.Note(ctx, l.Actor(), l.log(), audit.LinkRedeemed, l.ID, map[string]string{
		"role": l.means(),
	}); err != nil {
		return Link{}, s.log.Uncertain(err)
	}
	return l, nil
}

// tokens are the login links as they are stored in the bucket of logins, by the digest of their token, and
// the facts that they are spent.
type tokens struct {
	conn *natsconf.Conn
	log  *audit.Log
}

func (t tokens) link(ctx context.Context, digest string) (Link, error) {
	m, err := t.conn.Last(ctx, topology.BucketStream(topology.BucketLogins),
		topology.BucketSubject(topology.BucketLogins, linkEntry+digest))
	if errors.Is(err, natsconf.ErrNotFound) {
		return Link{}, ErrNoLink
	}
	if err != nil {
		return Link{}, fmt.Errorf("read login link: %w", err)
	}
	var r linkRecord
	if err := natsconf.DecodeRecord(m.Data, &r, &r.Version, entry.Version); err != nil {
		return Link{}, fmt.Errorf("login link: %w", err)
	}
	r.ID = linkID(digest)
	return r.Link, nil
}

// redeem writes the fact that the link is spent.
func (t tokens) redeem(ctx context.Context, digest string) error {
	err := t.putFirst(ctx, redeemedEntry+digest, []byte(entry.Stamp(t.log.Instant())))
	if errors.Is(err, once.ErrTaken) {
		return ErrLinkUsed
	}
	if err != nil {
		return fmt.Errorf("redeem login link: %w", err)
	}
	return nil
}

// putFirst stores an entry of the logins that has no message yet. Its errors are those of once.Store.
func (t tokens) putFirst(ctx context.Context, name string, data []byte) error {
	stream := topology.BucketStream(topology.BucketLogins)
	m := &nats.Msg{Subject: topology.BucketSubject(topology.BucketLogins, name), Data: data}
	_, err := once.Store(ctx, t.conn, stream, m, once.ByConn(t.conn, stream))
	return err
}

func linkID(digest string) string { return secrets.ShortID("link_", digest) }

// Actor is the person who redeemed the link, as an actor with the link's role.
func (l Link) Actor() access.Actor {
	if l.Operator {
		return access.Actor{Kind: access.ActorOperator, ID: l.ID}
	}
	return access.Actor{Kind: access.ActorLink, ID: l.ID, Role: l.Role}
}
