package grant

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/input"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// Grant makes somebody an operator in the dashboard: they see all accounts, pause receiver hosts and send
// callbacks again. It is for an identity, or for a login link: then for the person who redeems that. For a
// login link into an account it records that it leads there, and makes nobody an operator. Only the command
// line makes one.
type Grant struct {
	Network string      `json:"network,omitempty"` // the identity network's namespace
	Subject string      `json:"subject,omitempty"` // who they are there
	Link    string      `json:"link,omitempty"`    // the login link's id, in place of an identity
	Account string      `json:"account,omitempty"` // of a login link into an account: the account's id,
	Role    access.Role `json:"role,omitempty"`    // and the role of the person who redeems it
	Token   string      `json:"token,omitempty"`   // an operator token's id, in place of an identity
	Digest  string      `json:"digest,omitempty"`  // SHA-256 of that token, hexadecimal,
	Name    string      `json:"name,omitempty"`    // what its operator calls it,
	Scopes  []Scope     `json:"scopes,omitempty"`  // and what it may do
	By      string      `json:"by"`
	Since   time.Time   `json:"since"`
	// when a login link's last login or an operator token ends; zero for an identity, whose grant holds until
	// it is revoked
	Until time.Time `json:"until,omitzero"`
	Ended time.Time `json:"ended,omitzero"` // when it was revoked; zero: it was not

	Last *audit.Record `json:"last,omitempty"` // of the change that made it so; see audit.Log.Repair
}

type grantRecord struct {
	Version int `json:"v"`
	Grant
}

// grantVersion is the version of grants: they are newer than accounts.
const grantVersion = 1

var (
	// ErrNoOperator is returned for somebody who is not an operator.
	ErrNoOperator = errors.New("no such operator; list them with: verifyd operator list")
	// ErrNoToken is returned for an operator token that is not known, and by RevokeToken for one that was
	// revoked before.
	ErrNoToken = errors.New("no such operator token; list them with: verifyd operator token list")
)

// kind is a kind of grants: who has them.
type kind struct {
	// entry begins their entries in the bucket topology.BucketOperations, where an edge writes nothing but
	// pauses: a login that claims to be an operator's, or to come from a login link, is neither without a
	// grant.
	entry string
	what  string // in errors
	none  error  // that one is not there
}

var (
	operators     = kind{"operator.", "operator", ErrNoOperator}
	operatorLinks = kind{"operator-link.", "login link", ErrNoOperator}
	tokenGrants   = kind{"operator-token.", "operator token", ErrNoToken}
	accountLinks  = kind{"account-link.", "login link", ErrNoLink} // then comes the account's id
)

func (g Grant) kind() kind {
	switch {
	case g.Account != "":
		return accountLinks
	case g.Link != "":
		return operatorLinks
	case g.Token != "":
		return tokenGrants
	}
	return operators
}

// Holder names who has the grant, as the audit log does: an identity, or the id of a login link or a token.
func (g Grant) Holder() string {
	if by := cmp.Or(g.Link, g.Token); by != "" {
		return by
	}
	return access.Identity{Network: g.Network, Subject: g.Subject}.String()
}

// subject is the subject of the grant.
func (g Grant) subject() string {
	// a network's id holds no zero byte
	entry, name := g.kind().entry, cmp.Or(g.Link, g.Token, g.Network+"\x00"+g.Subject)
	if g.Account != "" {
		entry += g.Account + "."
	}
	sum := sha256.Sum256([]byte(name))
	return topology.BucketSubject(topology.BucketOperations, entry+hex.EncodeToString(sum[:]))
}

// log is where the grant's records are.
func (g Grant) log() string {
	if g.Account != "" {
		return g.Account
	}
	return audit.ServiceLog
}

// holds reports whether the grant is in force at an instant.
func (g Grant) holds(at time.Time) bool {
	return g.Ended.IsZero() && (g.Until.IsZero() || at.Before(g.Until))
}

// Store keeps grants and login links. Its methods are safe for concurrent use; in addition to the errors that
// each names they return natsconf's.
type Store struct {
	operatorTokens

	conn   *natsconf.Conn
	tokens tokens
	log    *audit.Log
}

// NewStore returns a store that writes its records to a log, and has its clock.
func NewStore(c *natsconf.Conn, log *audit.Log) *Store {
	s := &Store{conn: c, tokens: tokens{c, log}, log: log}
	s.operatorTokens = operatorTokens{s}
	return s
}

// GrantOperator makes somebody an operator. A repeat is harmless. Its errors are ErrNotAllowed for an actor
// who is not at the command line, natsconf.ErrCredential, and an *input.Error.
func (s *Store) GrantOperator(ctx context.Context, by access.Actor, network, subject string) (Grant, error) {
	if !input.IsIdentity(network, subject) {
		return Grant{}, input.Wrong("identity", "an operator is an identity network's id, a colon, and a "+
			"subject there of at most 1024 bytes without invisible characters, for example example:12345")
	}
	g := Grant{Network: network, Subject: subject, By: by.String(), Since: s.log.Instant()}
	return g, s.decide(ctx, by, audit.OperatorGranted, g, func(Grant, error) (Grant, error) { return g, nil })
}

// RevokeOperator ends an identity's grant; every page reads it. Its errors are ErrNoOperator,
// natsconf.ErrCredential, and ErrNotAllowed for an actor who is not at the command line.
func (s *Store) RevokeOperator(ctx context.Context, by access.Actor, network, subject string) error {
	return s.revoke(ctx, by, audit.OperatorRevoked, Grant{Network: network, Subject: subject})
}

// RevokeOperatorLink ends the grant of an operator's login link, whether it was redeemed or not: nobody can
// redeem it any more, and a person who did is no longer an operator. Its errors are those of RevokeOperator.
func (s *Store) RevokeOperatorLink(ctx context.Context, by access.Actor, link string) error {
	return s.revoke(ctx, by, audit.OperatorRevoked, Grant{Link: link})
}

// RevokeLoginLink ends the grant of a login link into an account, whether it was redeemed or not: nobody can
// redeem it any more, a person who did is no longer logged in, and invites that they made let nobody in. Its
// errors are ErrNoLink, ErrNoAccount for a text that is not an account's id, natsconf.ErrCredential, and
// ErrNotAllowed for an actor who is not at the command line.
func (s *Store) RevokeLoginLink(ctx context.Context, by access.Actor, id, link string) error {
	if !account.IsID(id) {
		return account.ErrNoAccount
	}
	return s.revoke(ctx, by, audit.LinkRevoked, Grant{Link: link, Account: id})
}

func (s *Store) revoke(ctx context.Context, by access.Actor, what string, of Grant) error {
	return s.decide(ctx, by, what, of, func(g Grant, err error) (Grant, error) {
		if of.Token != "" && g.isOf(of) && g.Ended.IsZero() {
			err = nil // it may have expired
		}
		g.Ended = s.log.Instant() // put, not deleted: a deleted entry can come back
		return g, err
	})
}

// decide changes a grant. edit gets the stored one, and the error that none is in force; it may run several
// times. The record is stored in the grant and is written to the log after it, as a key's is: a
// change that removes a right cannot wait for the log, and no record reports a change that did not happen.
func (s *Store) decide(ctx context.Context, by access.Actor, what string, of Grant,
	edit func(Grant, error) (Grant, error)) error {
	if !by.AtCommandLine() {
		return fmt.Errorf("%w: only the command line creates operators, their tokens and login links",
			access.ErrNotAllowed)
	}
	if err := s.mayGrant(ctx, of); err != nil {
		return err
	}
	var g Grant
	err := natsconf.Retry(ctx, func() error {
		found, revision, err := s.grant(ctx, of)
		if err != nil && !errors.Is(err, of.kind().none) {
			return err
		}
		if g, err = edit(found, err); err != nil {
			return cmp.Or(s.log.Repair(ctx, found.Last), err)
		}
		if g.Last, err = s.log.Follow(ctx, found.Last, audit.Record{
			Account: g.log(), Who: by, What: what, On: g.Holder(), Detail: g.detail(),
		}); err != nil {
			return err
		}
		return s.putGrant(ctx, g, revision)
	})
	if err != nil {
		return err
	}
	return s.log.Conclude(ctx, g.Last)
}

// mayGrant fails at once if this process's credential may not write a grant.
func (s *Store) mayGrant(ctx context.Context, g Grant) error {
	if err := s.conn.MayWrite(ctx, g.subject()); err != nil {
		return fmt.Errorf("change the %s: %w", g.kind().what, err)
	}
	return nil
}

// putGrant stores a grant that has not changed since it was read, for as long as it has an effect. The error
// is natsconf.ErrConflict if it has changed.
func (s *Store) putGrant(ctx context.Context, g Grant, revision uint64) error {
	data, err := json.Marshal(grantRecord{grantVersion, g})
	if err != nil {
		return fmt.Errorf("encode the %s: %w", g.kind().what, err)
	}
	m := entry.Replace(g.subject(), data, revision)
	switch {
	case g.Until.IsZero():
	case !g.Ended.IsZero():
		// it holds the record of that, which the next start of a service may have to write
		m.Header.Set(jetstream.MsgTTLHeader, topology.AuditTTL.String())
	default:
		keep := g.Until.Sub(s.log.Instant())
		if g.Token != "" {
			keep += expiredTokens
		}
		m.Header.Set(jetstream.MsgTTLHeader, max(keep, time.Second).Round(time.Second).String())
	}
	err = s.conn.PublishOne(ctx, topology.BucketStream(topology.BucketOperations), m)
	if err == nil {
		return nil
	}
	return fmt.Errorf("store the %s: %w", g.kind().what, natsconf.Kind(err))
}

// IsOperator reports whether somebody is an operator at this moment, as the leader has it.
func (s *Store) IsOperator(ctx context.Context, network, subject string) (bool, error) {
	return s.granted(ctx, Grant{Network: network, Subject: subject})
}

// IsOperatorLink reports whether a login link makes the person who redeemed it an operator at this moment, as
// the leader has it.
func (s *Store) IsOperatorLink(ctx context.Context, link string) (bool, error) {
	return s.granted(ctx, Grant{Link: link})
}

// LoginLinkGrant returns what a login link grants in an account at this moment, as the leader has it: the
// person who redeemed it has that role there, for as long, and nothing else. The error is ErrNoLink if it
// grants nothing.
func (s *Store) LoginLinkGrant(ctx context.Context, id, link string) (Grant, error) {
	if !account.IsID(id) {
		return Grant{}, ErrNoLink
	}
	g, _, err := s.grant(ctx, Grant{Link: link, Account: id})
	if err != nil {
		return Grant{}, err
	}
	return g, nil
}

// PermitOperator admits an actor who has the command line, or who is an operator by an identity, a login link
// or an operator token at this moment. The caller checks a token's scopes. The error is ErrNotAllowed for
// everybody else.
func (s *Store) PermitOperator(ctx context.Context, by access.Actor) error {
	_, err := s.OperatorGrant(ctx, by)
	return err
}

// OperatorGrant is PermitOperator, with the grant; the command line needs none.
func (s *Store) OperatorGrant(ctx context.Context, by access.Actor) (Grant, error) {
	if by.AtCommandLine() {
		return Grant{}, nil
	}
	to := Grant{Network: by.Network, Subject: by.Subject, Link: by.ID}
	if by.IsToken() {
		to = Grant{Token: by.ID}
	}
	g, _, err := s.grant(ctx, to)
	if errors.Is(err, to.kind().none) {
		err = fmt.Errorf("%w: %s is no longer an operator", access.ErrNotAllowed, by)
	}
	return g, err
}

func (s *Store) granted(ctx context.Context, to Grant) (bool, error) {
	_, _, err := s.grant(ctx, to)
	if errors.Is(err, to.kind().none) {
		return false, nil
	}
	return err == nil, err
}

// grant reads a holder's stored grant, and its revision. The error is the grant's none if it is not in force:
// beside it one that has ended or expired is returned.
func (s *Store) grant(ctx context.Context, to Grant) (g Grant, revision uint64, err error) {
	m, err := s.conn.Last(ctx, topology.BucketStream(topology.BucketOperations), to.subject())
	if errors.Is(err, natsconf.ErrNotFound) {
		return Grant{}, 0, to.kind().none
	}
	if err != nil {
		return Grant{}, 0, fmt.Errorf("read the %s: %w", to.kind().what, err)
	}
	g, err = decodeGrant(m.Data)
	if err == nil && (!g.holds(s.log.Instant()) || !g.isOf(to)) {
		err = to.kind().none
	}
	return g, m.Sequence, err
}

// isOf reports whether two grants have one holder.
func (g Grant) isOf(to Grant) bool {
	return g.Network == to.Network && g.Subject == to.Subject && g.Link == to.Link && g.Token == to.Token &&
		g.Account == to.Account
}

func decodeGrant(data []byte) (Grant, error) {
	var r grantRecord
	if err := natsconf.DecodeRecord(data, &r, &r.Version, grantVersion); err != nil {
		return Grant{}, fmt.Errorf("operator or login link: %w", err)
	}
	return r.Grant, nil
}
