// Package accountstore makes every change of accounts, members, invites, API keys and signing secrets.
//
// The laws:
//
//   - Every change names who makes it. The account as it is stored, not as a mirror shows it, decides what
//     their role allows (package access has the table).
//   - Every change of an account or a key is one compare-and-set that includes a record of the change. The
//     record is in the audit log when the change is acknowledged (package audit).
//   - A key is revoked by putting a revoked record over it, never by deleting it: a deleted key-value entry
//     can come back from an old replica.
//   - A key and the one that replaces it are stored together or not at all.
//   - An invite is spent by the write that makes a member.
//   - Bounds on what is created hold on all edges together: what is counted is part of a conditional write.
//
// Errors that are named without a package are those of edge/account; ErrNotAllowed is that of access.
package accountstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/input"
	"verifyd/edge/account/keyuse"
	"verifyd/edge/account/record"
	"verifyd/edge/account/signing"
	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
)

// Store creates and changes accounts, keys and members, and keeps the audit log of that. It is the sum of its
// parts, each of which changes one thing. It is for the operator's commands and the dashboard; requests use
// keymirror.Mirror. Every change is one compare-and-set, whoever makes it and wherever, and is in the audit
// log when it is acknowledged. Its methods are safe for concurrent use; in addition to the errors that each
// names they return natsconf's.
type Store struct {
	*records
	accounts
	lives
	members
	keys
	*grant.Store
	*keyuse.Reader
}

// MasterKeySubject is the subject of the check of the master key. Each store has its own.
func MasterKeySubject() string {
	return topology.BucketSubject(topology.BucketAccounts, record.CheckEntry)
}

// ErrMasterKey is returned for a store that was made with another master key: its secrets would not open, and
// the others could not open what this key sealed.
var ErrMasterKey = errors.New("this is not the master key that the store was created with")

// checkKey compares the check, and writes it if there is none yet. It reads first: a dispatcher's credential
// may only read.
func checkKey(ctx context.Context, c *natsconf.Conn, key secretbox.Key) error {
	e, err := entry.Get(ctx, c, topology.BucketAccounts, record.CheckEntry)
	if errors.Is(err, natsconf.ErrNotFound) {
		err = entry.Put(ctx, c, topology.BucketAccounts, record.CheckEntry, key.NewCheck(), e.Revision)
		if err == nil {
			return nil
		}
		if !errors.Is(err, natsconf.ErrConflict) {
			return fmt.Errorf("write the check of the master key: %w", err)
		}
		e, err = entry.Get(ctx, c, topology.BucketAccounts, record.CheckEntry)
	}
	if err != nil {
		return fmt.Errorf("read the check of the master key: %w", err)
	}
	if !key.Checks(e.Value) {
		return ErrMasterKey
	}
	return nil
}

// New checks the master key. The error is ErrMasterKey if the store belongs to another master key.
func New(ctx context.Context, c *natsconf.Conn, key secretbox.Key) (*Store, error) {
	r := &records{
		conn: c, box: key.Box(record.SecretUse), sign: signing.New(key), meetings: key.Hash(meetingUse),
	}
	r.log = audit.New(c, r.now)
	r.grants = grant.NewStore(c, r.log, r.now)
	s := &Store{
		records: r, accounts: accounts{r}, lives: lives{accounts{r}}, members: members{r},
		keys: keys{records: r}, Store: r.grants, Reader: keyuse.NewReader(c),
	}
	if err := checkKey(ctx, c, key); err != nil {
		return nil, err
	}
	return s, nil
}

// ReportUnreadable sets what is called for each record that a list leaves out because it cannot be read: it
// is damaged, or no verifyd wrote it.
func (s *Store) ReportUnreadable(report func(error)) {
	s.unreadable, s.grants.Unreadable, s.log.Unreadable = report, report, report
}

// OwnNames sets the names of the service's networks and its host, which no account gets unless an operator
// grants it. It is called before names are judged.
func (s *Store) OwnNames(names []string) { s.own = names }

// Audit reads an account's audit log, or ServiceLog's; see audit.Log.Audit.
func (s *Store) Audit(ctx context.Context, account, cursor string, limit int) (audit.Page, error) {
	return s.log.Audit(ctx, account, cursor, limit)
}

// Room returns access.ErrLogFull if an account has no room for records of acts; see audit.Log.Room.
func (s *Store) Room(ctx context.Context, by access.Actor, account string) error {
	return s.log.Room(ctx, by, account)
}

// Note writes a record of an act that changed nothing in the account; see audit.Log.Note.
func (s *Store) Note(ctx context.Context, by access.Actor, account, what, on string,
	detail map[string]string) error {
	return s.log.Note(ctx, by, account, what, on, detail)
}

// MadeBy returns who made an account and when; see audit.Log.MadeBy.
func (s *Store) MadeBy(ctx context.Context, id string) (by access.Actor, at time.Time, known bool,
	err error) {
	return s.log.MadeBy(ctx, id)
}

// LoginLink makes a login link for an account and returns its token, only this once. RevokeLoginLink revokes
// it. Only the operator may. Its errors are ErrNoAccount, ErrNotAllowed, natsconf.ErrCredential and an
// *input.Error.
func (s *Store) LoginLink(ctx context.Context, by access.Actor, id string, role access.Role) (token string,
	l grant.Link, err error) {
	if err := input.Role(role); err != nil {
		return "", grant.Link{}, err
	}
	a, err := s.Account(ctx, id)
	if err != nil {
		return "", grant.Link{}, err
	}
	if err := s.permit(ctx, a, by, access.ActionOperate); err != nil {
		return "", grant.Link{}, err
	}
	return s.grants.LoginLink(ctx, by, id, role)
}

// RevokeLoginLink ends the grant of a login link into an account, as grant.Store.RevokeLoginLink does, and
// removes from the account the invites that were made under it. LinkWork returns what stays.
func (s *Store) RevokeLoginLink(ctx context.Context, by access.Actor, id, link string) error {
	if err := s.grants.RevokeLoginLink(ctx, by, id, link); err != nil {
		return err
	}
	return s.withdrawInvitesOf(ctx, by, id, link)
}
