package accountstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/input"
	"verifyd/edge/account/naming"
	"verifyd/edge/account/record"
	"verifyd/edge/account/secrets"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// An account's id is made from the name that it was made with, so that two callers that make accounts of one
// name meet in one entry. That entry belongs to the name permanently: an account that takes the name writes
// it, on condition that no other write did since it was read. It holds
//
//   - the account that was made with the name, whatever it is called now;
//   - or what is left of that account once it is deleted, and the id of the account that has the name since;
//   - or nothing but the id of an account that took the name when it was renamed.
//
// A name that an account once had stays its own for naming.Kept, also if the account is deleted: people who
// still write the old name do not meet another's account. Builds that recorded no end kept it while the
// account exists.

// nameEntry is the entry of a name, as it was read.
type nameEntry struct {
	id       string         // of the entry
	stored   record.Account // the record there; zero if there is none, as are data and revision
	data     []byte
	revision uint64
	holder   record.Account // the account that has the name, or had it before; zero: it is free
}

// readName reads which account has a name.
func (s accounts) readName(ctx context.Context, name string) (n nameEntry, err error) {
	n.id = account.IDOf(name)
	a, e, err := s.readEntry(ctx, n.id)
	if errors.Is(err, account.ErrNoAccount) {
		return n, nil
	}
	if err != nil {
		return n, err
	}
	n.stored, n.data, n.revision = a, e.Value, e.Revision
	if a.LeadsTo != "" {
		n.holder, _, err = s.account(ctx, a.LeadsTo)
		if !errors.Is(err, account.ErrNoAccount) {
			return n, err
		}
		n.holder = record.Account{}
	}
	if a.Exists() {
		n.holder = a
	}
	return n, nil
}

// readFreeName reads the entry of a name that the account of an id, empty for a new one, can take. Its error
// is ErrAccountExists.
func (s accounts) readFreeName(ctx context.Context, r requestedName, id string,
	now time.Time) (nameEntry, error) {
	n, err := s.readName(ctx, r.name)
	if err != nil {
		return n, err
	}
	return n, n.checkFree(r, id, now)
}

// checkFree refuses a name that is, or was, that of another account than id's, unless it is free by now.
func (n nameEntry) checkFree(r requestedName, id string, now time.Time) error {
	until, known := n.holder.KeptUntil(r.name)
	switch {
	case n.holder.ID == "", n.holder.ID == id:
		return nil
	case n.holder.Name == r.name:
		return fmt.Errorf("%w: %q", account.ErrAccountExists, r.name)
	case r.granted, known && !now.Before(until):
		return nil
	default:
		return kept(r.name, n.holder.Account, until)
	}
}

// kept is the error for a name of an account that has another name now, or is gone.
func kept(name string, by account.Account, until time.Time) error {
	now, end := fmt.Sprintf("is now called %q", by.Name), "while that account exists"
	if !by.Exists() {
		now = "was deleted"
	}
	if !until.IsZero() {
		end = "until " + entry.Stamp(until)
	}
	return fmt.Errorf("%w: %q was the name of %s, which %s; nobody else can take it %s",
		account.ErrAccountExists, name, by.ID, now, end)
}

// requestedName is a name that an account should get.
type requestedName struct {
	name    string
	granted bool // an operator allows it although it would be refused for its look
}

// checkName checks a name by itself. owner is the account that should get it, zero for a new one: a name that
// it had before and still keeps is not refused. own are the names of Store.OwnNames. The errors are
// errUnchanged if the owner has the name, ErrNotAllowed for an actor who grants a name and is not an
// operator, and an *input.Error.
func checkName(by access.Actor, owner account.Account, name string, grant bool, now time.Time,
	own []string) (requestedName, error) {
	if grant && by.Kind != access.ActorOperator {
		return requestedName{}, fmt.Errorf("%w: only an operator can grant a name", access.ErrNotAllowed)
	}
	clean, err := naming.Check(name)
	if err != nil {
		return requestedName{}, err
	}
	r := requestedName{clean, grant}
	until, _ := owner.KeptUntil(clean)
	switch {
	case owner.Name == clean && (!grant || owner.Granted):
		return r, errUnchanged
	case !grant && now.Before(until):
		return r, nil
	case account.IsID(clean): // commands take either, and one's name must not be another's id
		return r, input.Wrong("name",
			"%q has the form of an account's id; choose another name, for example %q", clean, "Harbor Guild")
	case grant:
		return r, nil
	default:
		return r, naming.Judge(clean, own...)
	}
}

// MaxAccounts bounds how many accounts a person who creates another one may own: each has a quota of its own,
// and every edge holds it in memory. Operators have no such bound.
const MaxAccounts = 20

// ErrManyAccounts is returned to a person who owns MaxAccounts.
var ErrManyAccounts = fmt.Errorf("a person who creates accounts may own %d of them", MaxAccounts)

// A meeting is an entry of the bucket of accounts that holds nothing. A change that all accounts are read for
// replaces it, on condition that nobody did since before they were read: of two changes that must not both
// happen, on whatever edges, one is refused by the store, and reads the other. Builds that know no meetings
// see a record without a name. The dot keeps meetings out of lists of accounts.

// meetingUse is the use of the hash in the names of meetings, which say of nobody that they made an account.
const meetingUse = "account-meeting"

// meet returns the messages that replace the meetings of names that look like one, and of accounts that
// somebody makes; the zero identity makes none. It is called before the accounts are read.
func (s accounts) meet(ctx context.Context, r requestedName, maker access.Identity) (msgs []*nats.Msg,
	err error) {
	look := naming.LookOf(r.name)
	names := []string{record.LookMeeting + s.meetings.Sum(look[0])}
	if look[1] != look[0] { // one batch cannot have two messages on one condition
		names = append(names, record.LookMeeting+s.meetings.Sum(look[1]))
	}
	if maker != (access.Identity{}) {
		names = append(names, record.MakerMeeting+s.meetings.Sum(maker.Person()))
	}
	for _, name := range names {
		e, err := entry.Get(ctx, s.conn, topology.BucketAccounts, name)
		if err != nil && !errors.Is(err, natsconf.ErrNotFound) {
			return nil, err
		}
		msgs = append(msgs, entry.Message(topology.BucketAccounts, name, []byte(record.Meeting), e.Revision))
	}
	return msgs, nil
}

// checkOthers refuses a name that looks like one that another account has, or had and keeps, and a new
// account of somebody who owns as many as they may. It reads all accounts: those of older builds are in no
// index. So it is called where no other account's changes wait. What it returns is stored with the change.
// The errors are an *input.Error, ErrAccountExists and ErrManyAccounts.
func (s accounts) checkOthers(ctx context.Context, r requestedName, id string, maker access.Identity,
	now time.Time) (meetings []*nats.Msg, err error) {
	if meetings, err = s.meet(ctx, r, maker); err != nil {
		return nil, err
	}
	entries, err := entry.List(ctx, s.conn, topology.BucketAccounts, record.AllAccounts)
	if err != nil {
		return nil, err
	}
	look, owned := naming.LookOf(r.name), 0
	for _, e := range entries {
		a := record.Outline(e.Key, e.Value)
		if a.ID == id || a.Name == "" {
			continue
		}
		if err := r.checkBeside(a, look, now); err != nil {
			return nil, err
		}
		if m, is := a.Member(maker.Network, maker.Subject); is && m.Role == access.RoleOwner && a.Exists() {
			owned++
		}
	}
	if owned >= MaxAccounts {
		return nil, ErrManyAccounts
	}
	return meetings, nil
}

// checkBeside refuses a name that looks like one that an account has, or had and keeps.
func (r requestedName) checkBeside(a account.Account, look naming.Look, now time.Time) error {
	if a.Exists() && look.Like(naming.LookOf(a.Name)) {
		if a.Name == r.name {
			return fmt.Errorf("%w: %q", account.ErrAccountExists, r.name)
		}
		return input.Wrong("name",
			"%q looks like %q, the name of another account; choose one that nobody can mistake for it",
			r.name, a.Name)
	}
	for _, f := range formerOf(a) {
		if !r.granted && now.Before(f.Until) && look.Like(naming.LookOf(f.Name)) {
			return kept(r.name, a, f.Until)
		}
	}
	return nil
}

// formerOf returns the names that an account no longer has: for a deleted account, its last one too.
func formerOf(a account.Account) []naming.Former {
	if a.DeletedAt.IsZero() {
		return a.Former
	}
	return append(slices.Clone(a.Former), naming.Former{Name: a.Name, Until: a.DeletedAt.Add(naming.Kept)})
}

// pointerMessage returns the message that makes the name lead to an account.
func (s *records) pointerMessage(n nameEntry, id string) (*nats.Msg, error) {
	if n.revision > 0 {
		if err := record.AccountRewritable(n.data); err != nil {
			return nil, fmt.Errorf("account %s: %w", n.id, err)
		}
	}
	pointer := n.stored
	pointer.ID, pointer.LeadsTo = n.id, id
	if pointer.CreatedAt.IsZero() {
		pointer.CreatedAt = s.log.Instant()
	}
	data, err := pointer.Encode(s.box)
	if err != nil {
		return nil, fmt.Errorf("encode name: %w", err)
	}
	return entry.Message(topology.BucketAccounts, n.id, data, n.revision), nil
}

// CreateAccount makes an account with a signing secret and, if given, its first owner. Its errors are
// ErrAccountExists, ErrManyAccounts and an *input.Error.
func (s accounts) CreateAccount(ctx context.Context, by access.Actor, name string,
	owners ...account.Member) (account.Account, error) {
	return s.createAs(ctx, by, name, false, owners)
}

// GrantAccount is CreateAccount for a name that an operator lets an account have, though it is reserved,
// mixes scripts, or is kept for the account that had it before. The audit log records that.
func (s accounts) GrantAccount(ctx context.Context, by access.Actor, name string) (account.Account, error) {
	return s.createAs(ctx, by, name, true, nil)
}

func (s accounts) createAs(ctx context.Context, by access.Actor, name string, grant bool,
	owners []account.Member) (account.Account, error) {
	now := s.log.Instant()
	r, err := checkName(by, account.Account{}, name, grant, now, s.own)
	if err != nil {
		return account.Account{}, err
	}
	a := record.Account{Account: account.Account{
		Name: r.name, Granted: r.granted, CreatedAt: now,
		Secrets: []account.Secret{{Value: secrets.NewSigning(), CreatedAt: now}},
	}}
	for _, m := range owners {
		m.Role = access.RoleOwner
		m, err := m.Checked(now)
		if err != nil {
			return account.Account{}, err
		}
		if a.Members, err = a.Admit(m); err != nil {
			return account.Account{}, err
		}
	}
	turn := account.IDOf(r.name)
	if maker := makerOf(by); maker != (access.Identity{}) { // nobody else's changes wait for their turn
		turn = maker.Person()
	}
	done, err := s.log.Turn(ctx, turn)
	if err != nil {
		return account.Account{}, err
	}
	defer done()
	if err := natsconf.Retry(ctx, func() error { return s.create(ctx, by, r, &a) }); err != nil {
		return account.Account{}, err
	}
	return a.Account, s.log.Conclude(ctx, a.Last)
}

// makerOf returns among whose accounts a new one counts; zero: among nobody's.
func makerOf(by access.Actor) (maker access.Identity) {
	if by.Kind == access.ActorMember {
		maker = by.Maker()
	}
	return maker
}

// create stores a new account under the id of its name, or under one of its own if a deleted account had that
// id.
func (s accounts) create(ctx context.Context, by access.Actor, r requestedName, a *record.Account) error {
	now := s.log.Instant()
	n, err := s.readFreeName(ctx, r, "", now)
	if err != nil {
		return err
	}
	meetings, err := s.checkOthers(ctx, r, "", makerOf(by), now)
	if err != nil {
		return err
	}
	a.ID = n.id
	if n.revision > 0 {
		a.ID = account.NewID()
	}
	data, err := s.encode(ctx, by, a, audit.Record{What: audit.AccountCreated, Detail: map[string]string{
		"name": a.Name, "granted": grantedText(r.granted),
	}})
	if err != nil {
		return err
	}
	return s.putNamed(ctx, n, *a, data, 0, meetings)
}

// unlessStored returns what an error of a write of an account means: nil if the stored record is the one that
// was written, since an answer may have been lost.
func (s *records) unlessStored(ctx context.Context, a record.Account, err error) error {
	if !errors.Is(err, natsconf.ErrConflict) && !errors.Is(err, natsconf.ErrUncertain) {
		return err
	}
	stands, _, rerr := s.readEntry(ctx, a.ID)
	if rerr == nil && stands.Last != nil && stands.Last.ID == a.Last.ID {
		return nil
	}
	return err
}

// putNamed stores an account under a name, together with the entry of the name, if that is another, and with
// its meetings. revision is the account's own; 0: it is new. The error is natsconf.ErrConflict if the name,
// the account or a meeting has changed.
func (s *records) putNamed(ctx context.Context, n nameEntry, a record.Account, data []byte, revision uint64,
	meetings []*nats.Msg) error {
	msgs := slices.Concat(meetings, []*nats.Msg{entry.Message(topology.BucketAccounts, a.ID, data, revision)})
	if n.id != a.ID {
		pointer, err := s.pointerMessage(n, a.ID)
		if err != nil {
			return err
		}
		msgs = append(msgs, pointer)
	}
	return s.unlessStored(ctx, a,
		s.conn.PublishBatch(ctx, topology.BucketStream(topology.BucketAccounts), msgs...))
}
