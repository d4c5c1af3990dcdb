package audit

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/edge/account/access"
	"verifyd/edge/account/entry"
	"verifyd/edge/places"
	"verifyd/natsconf"
	"verifyd/natsconf/once"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
)

// writeWithin bounds how long a record waits for its place in the log: the store's time to elect leaders, and
// more.
const writeWithin = 12 * time.Second

// answersWithin bounds how long what takes a right away waits for an answer of the log.
const answersWithin = time.Second

// Log writes and reads the audit log. Record n of an account is the one message on audit.<account>.<n>; the
// stream accepts no second one there and deletes none. Its methods are safe for concurrent use.
type Log struct {
	// Unreadable, if set, is called for each record that a list leaves out because it cannot be read.
	Unreadable func(error)
	// Most is how many records one account may have; fewer than maxRecords in tests.
	Most int64

	conn  *natsconf.Conn
	now   func() time.Time
	turns *places.Places
}

// maxRecords bounds the records of one account, each of about 2.5 KB and kept for 400 days: 50 changes a day.
// Without a bound, one account's members could fill the store of all.
const maxRecords = 20_000

// New returns a log; now is the clock of the process that makes changes.
func New(c *natsconf.Conn, now func() time.Time) *Log {
	return &Log{conn: c, now: now, Most: maxRecords, turns: places.New(places.Pools.Turns)}
}

// LeaveOut is for a list that meets a record that cannot be read, of the log or of what it is about: it
// reports the record, and the list goes on without it. A record of a newer build fails the list: the error is
// natsconf.ErrNewer.
func (l *Log) LeaveOut(err error) error {
	if errors.Is(err, natsconf.ErrNewer) {
		return err
	}
	if l.Unreadable != nil {
		l.Unreadable(err)
	}
	return nil
}

// Instant returns the instant of a change, as it is stored.
func (l *Log) Instant() time.Time { return l.now().UTC().Truncate(time.Millisecond) }

// Turn waits until this process has no other change of an account under way. Changes of other processes meet
// in the compare-and-set; without turns, hundreds at once here would race for each number of an account's
// audit log. What takes a right away takes no turn: it is among the few that race, and waits for nobody.
func (l *Log) Turn(ctx context.Context, account string) (done func(), err error) {
	if done, err = l.turns.Wait(ctx, places.Request{Of: account}); err != nil {
		return nil, fmt.Errorf("wait for another change: %w: %w", natsconf.ErrUnavailable, err)
	}
	return done, nil
}

func subject(account string, number int64) string {
	return "audit." + account + "." + strconv.FormatInt(number, 10)
}

func subjects(account string) string { return "audit." + account + ".*" }

// Draft completes the record of what somebody does to an account, and gives it the next free number. Details
// that are empty are left out. Its errors are access.ErrLogFull and natsconf's.
func (l *Log) Draft(ctx context.Context, did Record) (*Record, error) {
	r := l.complete(did)
	last, err := l.Last(ctx, r.Account)
	if most := l.mostFor(r.Who, r.What); err == nil && most > 0 && last >= most {
		err = l.checkFull(ctx, r.Account, last, most)
	}
	if err != nil {
		return nil, err
	}
	r.Number = last + 1
	return &r, nil
}

// complete returns a record as it is stored, without a number.
func (l *Log) complete(r Record) Record {
	r.Version, r.ID, r.At, r.Detail = entry.Version, rand.Text(), l.Instant(), maps.Clone(r.Detail)
	maps.DeleteFunc(r.Detail, func(_, v string) bool { return v == "" })
	return r
}

// Follow is Draft for the change of an entry, after Repair of the record of its last one. What takes a right
// away does not wait for a log that does not answer: then its record has no number yet, and comes back as one
// that follows the last.
func (l *Log) Follow(ctx context.Context, last *Record, did Record) (r *Record, err error) {
	takesAway, soon := did.TakesAway(), ctx
	if takesAway {
		var cancel context.CancelFunc
		soon, cancel = context.WithTimeout(ctx, answersWithin)
		defer cancel()
	}
	if err = l.Repair(soon, last); err == nil {
		r, err = l.Draft(soon, did)
	}
	if err == nil || !takesAway {
		return r, err
	}
	r = &Record{}
	if last != nil {
		*r = *last
	}
	r.Later = append(slices.Clone(r.Later), l.complete(did))
	return r, nil
}

// Room returns access.ErrLogFull if an actor's ordinary changes of an account are refused. It is for acts
// that are recorded when they are done.
func (l *Log) Room(ctx context.Context, by access.Actor, account string) error {
	_, err := l.Draft(ctx, Record{Account: account, Who: by})
	return err
}

// mostFor returns how many records an account may have for another one to be written; 0: any number.
// Operators' changes have no bound, nor has what takes a right away. What undoes what another has done, and
// what is done already, has as many again.
func (l *Log) mostFor(by access.Actor, what string) int64 {
	switch {
	case by.Kind == access.ActorOperator, Record{What: what}.TakesAway():
		return 0
	case slices.Contains(undoing, what):
		return 2 * l.Most
	}
	return l.Most
}

// checkFull refuses another record after the last one, if the account has as many as it may have. The error
// is access.ErrLogFull.
func (l *Log) checkFull(ctx context.Context, id string, last, most int64) error {
	m, err := l.conn.Next(ctx, topology.StreamAudit, subjects(id), 1)
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	number, err := strconv.ParseInt(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], 10, 64)
	if err == nil && last-number+1 >= most {
		return access.ErrLogFull
	}
	return nil // what no verifyd wrote is first
}

// Last returns the number of an account's newest record, whichever build wrote it; 0 if there is none. What
// no verifyd wrote is none.
func (l *Log) Last(ctx context.Context, account string) (int64, error) {
	m, err := l.conn.Last(ctx, topology.StreamAudit, subjects(account))
	if errors.Is(err, natsconf.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the audit log: %w", err)
	}
	if n, err := numberOf(m.Subject, m.Data); err == nil {
		return n, nil
	}
	return l.below(ctx, account, math.MaxInt64)
}

// numberOf returns the number of a stored record. That of a newer build has it on its subject, too: which
// number is next, also for the revocation of a key, needs no more of it.
func numberOf(on string, data []byte) (int64, error) {
	r, err := Decode(data)
	if errors.Is(err, natsconf.ErrNewer) {
		r.Number, err = strconv.ParseInt(on[strings.LastIndexByte(on, '.')+1:], 10, 32)
	}
	return r.Number, err
}

// below returns the largest number below another one of a record of a verifyd; 0 if there is none. It reads
// all records of the account: only what no verifyd wrote asks for it.
func (l *Log) below(ctx context.Context, account string, number int64) (below int64, err error) {
	all, err := l.conn.Newest(ctx, topology.StreamAudit, subjects(account))
	if err != nil {
		return 0, fmt.Errorf("read the audit log: %w", err)
	}
	for _, m := range all {
		switch n, err := numberOf(m.Subject(), m.Data()); {
		case err == nil && m.Subject() == subject(account, n) && n < number:
			below = max(below, n)
		case err != nil:
			err = l.LeaveOut(fmt.Errorf("%s: %w", m.Subject(), err))
			if err != nil {
				return 0, err
			}
		}
	}
	return below, nil
}

// write stores a record under its own number, or under the next free one if others took that, also something
// that no verifyd wrote. Numbers have no gap, and all processes that write one record begin at the same
// number, so that it cannot be there twice.
func (l *Log) write(ctx context.Context, r *Record) error {
	ctx, cancel := wait.For(ctx, writeWithin)
	defer cancel()
	r.Version = entry.Version
	for {
		data, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("encode audit record: %w", err)
		}
		m := &nats.Msg{Subject: subject(r.Account, r.Number), Data: data}
		existing, err := once.Store(ctx, l.conn, topology.StreamAudit, m,
			once.ByConn(l.conn, topology.StreamAudit))
		if err == nil {
			return nil
		}
		if !errors.Is(err, once.ErrTaken) {
			return fmt.Errorf("write the audit log: %w", err)
		}
		if found, err := Decode(existing.Data); isOf(found, err, r) {
			return nil
		}
		r.Number++
	}
}

// Conclude is write for the record of a stored change: even if the record cannot be written, the change must
// not be reported as undone.
func (l *Log) Conclude(ctx context.Context, r *Record) error {
	if len(r.Later) == 0 {
		return l.Uncertain(l.write(ctx, r))
	}
	ctx, cancel := wait.For(ctx, writeWithin)
	defer cancel()
	return l.Uncertain(l.Repair(ctx, r))
}

// Uncertain marks a failure after a change, to report that the change is stored, or may be.
func (*Log) Uncertain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: the change is made, its record is not: %w", natsconf.ErrUncertain, err)
}

// Repair makes sure that the record of a stored change is in the log, with those that follow it: the process
// that made the change may have died in between. The record stays in the changed entry until the next change
// of it, which does this first. The usual case is one read.
func (l *Log) Repair(ctx context.Context, r *Record) error {
	if r == nil {
		return nil
	}
	if !l.left(r) {
		found, err := l.read(ctx, r.Account, r.Number)
		if is := isOf(found, err, r); !is && errors.Is(err, natsconf.ErrUnavailable) {
			return err
		} else if !is {
			late := *r
			late.Later = nil
			if err := l.write(ctx, &late); err != nil {
				return err
			}
		}
	}
	return l.repairLater(ctx, r.Later)
}

// left reports whether a record is so old that it has left the log.
func (l *Log) left(r *Record) bool { return l.now().Sub(r.At) > topology.AuditTTL-24*time.Hour }

// repairLater is Repair for records that got no number before their change was stored. It reads all records
// of the account: whoever writes one of these begins at the number after those in which it was not.
func (l *Log) repairLater(ctx context.Context, later []Record) error {
	if len(later) == 0 {
		return nil
	}
	account := later[0].Account
	all, err := l.conn.Newest(ctx, topology.StreamAudit, subjects(account))
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	last, in := int64(0), map[string]bool{}
	for _, m := range all {
		r, _ := Decode(m.Data()) // what could be read of it
		in[r.ID] = true
		if n, err := numberOf(m.Subject(), m.Data()); err == nil && m.Subject() == subject(account, n) {
			last = max(last, n)
		}
	}
	for _, r := range later {
		if in[r.ID] || l.left(&r) {
			continue
		}
		r.Number = last + 1
		if err := l.write(ctx, &r); err != nil {
			return err
		}
		last = r.Number
	}
	return nil
}

// isOf reports whether a record that was read is another one, as any build has written it.
func isOf(found Record, err error, r *Record) bool {
	return (err == nil || errors.Is(err, natsconf.ErrNewer)) && found.ID == r.ID
}

func (l *Log) read(ctx context.Context, account string, number int64) (Record, error) {
	m, err := l.conn.Last(ctx, topology.StreamAudit, subject(account, number))
	if err != nil {
		return Record{}, fmt.Errorf("read the audit log: %w", err)
	}
	return Decode(m.Data)
}

// Decode reads a record as it is stored. Its errors are natsconf.ErrNewer, and one for a record that no build
// wrote; beside them it returns what could be read.
func Decode(data []byte) (r Record, err error) {
	if err := natsconf.DecodeRecord(data, &r, &r.Version, entry.Version); err != nil {
		return r, fmt.Errorf("audit record: %w", err)
	}
	return r, nil
}
