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
	"time"

	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/input"
	"verifyd/edge/account/keyuse"
	"verifyd/edge/account/record"
	"verifyd/edge/account/signing"
	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storestate"
)

// Store creates and changes accounts, keys and members, and keeps the audit log of that. It is the sum of its
// parts, each of which changes one thing. It is for the operator's commands and the dashboard; requests use
// keymirror.Mirror. Every change is one compare-and-set, whoever makes it and wherever, and is in the audit
// log when it is acknowledged. Its methods are safe for concurrent use; in addition to the errors that each
// names they return natsconf's.
type Store struct {
	Ring *secretbox.Ring // the store's master keys

	*records
	accounts
	lives
	members
	keys
	*grant.Store
	*keyuse.Reader
}

// New opens the store's master keys. The error is storestate.ErrMasterKey if the store belongs to another
// master key.
func New(ctx context.Context, c *natsconf.Conn, key secretbox.Key) (*Store, error) {
	ring, err := storestate.OpenRing(ctx, c, key)
	if err != nil {
		return nil, err
	}
	r := &records{
		conn: c, box: ring.Box(record.SecretUse), sign: signing.New(ring), meetings: ring.Hash(meetingUse),
	}
	r.log = audit.New(c, r.now)
	r.grants = grant.NewStore(c, r.log)
	return &Store{
		records: r, accounts: accounts{r}, lives: lives{accounts{r}}, members: members{r},
		keys: keys{records: r}, Store: r.grants, Reader: keyuse.NewReader(c), Ring: ring,
	}, nil
}

// ReportUnreadable sets what is called for each record that a list leaves out because it cannot be read: it
// is damaged, or no verifyd wrote it.
func (s *Store) ReportUnreadable(report func(error)) { s.log.Unreadable = report }

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
