package account

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
)

// What a record says was done. On names the thing: a key's id, an identity as "network:subject", an invite's
// or a login link's id; it is empty where it is the account itself.
const (
	AccountCreated  = "account.created"
	AccountRenamed  = "account.renamed"           // Detail: from, to
	AccountDisabled = "account.disabled"          //
	AccountEnabled  = "account.enabled"           //
	AccountDeleted  = "account.deleted"           // Detail: name, members, invites, signs_until
	SessionsEnded   = "account.sessions_canceled" // for who deletes: Detail: sessions
	QuotaSet        = "quota.set"                 // Detail: from, to
	KeyCreated      = "key.created"               // Detail: name, mode, expires_at
	KeyWasRolled    = "key.rolled"                // Detail: into, until
	KeyWasRevoked   = "key.revoked"               //
	SecretRotated   = "secret.rotated"            // Detail: until
	RotationEnded   = "secret.rotation_ended"
	SecretRevealed  = "secret.revealed"     //
	MemberAdded     = "member.added"        // Detail: name, role
	MemberJoined    = "member.joined"       // by an invite. Detail: name, role, invite
	RoleChanged     = "member.role_changed" // Detail: name, from, to, invites_withdrawn
	MemberRemoved   = "member.removed"      // Detail: name, role, invites_withdrawn
	InviteCreated   = "invite.created"      // Detail: role, until
	InviteWithdrawn = "invite.withdrawn"    // Detail: role; invites_withdrawn where On is a login link, of which all are
	LinkCreated     = "login_link.created"  // Detail: role, until
	LinkRedeemed    = "login_link.redeemed" // Detail: role
	LinkRevoked     = "login_link.revoked"  // Detail: role
	CallbackSent    = "callback.sent_again" // for who sends: On is the session
	CallbackTested  = "callback.test_sent"  // for who sends: Detail: host
	UserErased      = "user.erased"         // for who erases: Detail: sessions, identities; never who
	OperatorGranted = "operator.granted"    // in ServiceLog, as all below: On is the identity
	OperatorRevoked = "operator.revoked"    // the same
	HostPaused      = "host.paused"         // for who pauses: On is host and port. Detail: until, reason
	HostResumed     = "host.resumed"        // for who resumes
	StoreRecovered  = "store.recovered"     // On is the stream. Detail: what, file, lost, from, to, kept, deliveries_unknown, sessions_closed
)

// Record is one line of an account's audit log.
type Record struct {
	Number  int64             // from 1, without a gap
	At      time.Time         //
	Account string            // its id
	Who     Actor             //
	What    string            // "key.created" and the like
	On      string            //
	Detail  map[string]string // never a secret; may be nil

	id string // tells this record from another that took its number
}

// AuditPage is a piece of an account's audit log, newest first.
type AuditPage struct {
	Records []Record
	Next    string // the cursor of the next piece; empty: there is no more
}

// MaxAudit bounds one piece of the log.
const MaxAudit = 100

// ErrCursor is returned for a cursor that no page gave.
var ErrCursor = errors.New("not a cursor of this list")

// ledger writes and reads the audit log. Record n of an account is the one message on audit.<account>.<n>;
// the stream takes no second one there and deletes none.
type ledger struct{ conn *natsconf.Conn }

// recordWire is a record in storage.
type recordWire struct {
	Version int               `json:"v"`
	ID      string            `json:"id"`
	Number  int64             `json:"n"`
	At      time.Time         `json:"at"`
	Account string            `json:"account"`
	Who     Actor             `json:"who"`
	What    string            `json:"what"`
	On      string            `json:"on,omitempty"`
	Detail  map[string]string `json:"detail,omitempty"`
}

func (r *Record) wire() *recordWire {
	if r == nil {
		return nil
	}
	return &recordWire{
		Version: recordVersion, ID: r.id, Number: r.Number, At: r.At, Account: r.Account, Who: r.Who,
		What: r.What, On: r.On, Detail: r.Detail,
	}
}

func (w *recordWire) record() *Record {
	if w == nil {
		return nil
	}
	return &Record{
		id: w.ID, Number: w.Number, At: w.At, Account: w.Account, Who: w.Who, What: w.What, On: w.On,
		Detail: w.Detail,
	}
}

func auditSubject(account string, number int64) string {
	return "audit." + account + "." + strconv.FormatInt(number, 10)
}

// draft makes a record with the number that is free just now.
func (l ledger) draft(ctx context.Context, r Record) (*Record, error) {
	last, err := l.last(ctx, r.Account)
	if err != nil {
		return nil, err
	}
	r.Number, r.id, r.Detail = last+1, rand.Text(), maps.Clone(r.Detail)
	maps.DeleteFunc(r.Detail, func(_, v string) bool { return v == "" })
	return &r, nil
}

// last returns the number of an account's newest record; 0 where there is none.
func (l ledger) last(ctx context.Context, account string) (int64, error) {
	m, err := l.conn.Last(ctx, natsconf.StreamAudit, "audit."+account+".*")
	if errors.Is(err, natsconf.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the audit log: %w", err)
	}
	r, err := decodeRecord(m.Data)
	if err != nil {
		return 0, err
	}
	return r.Number, nil
}

// write stores a record under its own number, or under the next one that is free where others took that.
// Numbers have no gap, and all who write one record begin at the same number, so that it cannot be there
// twice.
func (l ledger) write(ctx context.Context, r *Record) error {
	for {
		err := l.publish(ctx, *r)
		if err == nil {
			return nil
		}
		if !errors.Is(err, natsconf.ErrConflict) && !errors.Is(err, natsconf.ErrUncertain) {
			return err
		}
		found, rerr := l.read(ctx, r.Account, r.Number)
		switch {
		case errors.Is(rerr, natsconf.ErrNotFound): // another one is on its way there, or ours is: look again
			if perr := pause(ctx); perr != nil {
				return fmt.Errorf("%w (last: %w)", perr, err)
			}
		case rerr != nil:
			return rerr
		case found.id == r.id:
			return nil
		default:
			r.Number++
		}
	}
}

// conclude is write for the record of a change that stands: whatever keeps the record away, nobody may take
// the change for undone.
func (l ledger) conclude(ctx context.Context, r *Record) error {
	return uncertain(l.write(ctx, r))
}

// uncertain says of a failure after a change that the change stands, or may.
func uncertain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: the change is made, its record is not: %w", natsconf.ErrUncertain, err)
}

// settle makes sure that the record of a change that stands is in the log: who made the change may have died
// in between. The record lies in what was changed until the next change of the same thing, which settles it
// first. The usual case is one read.
func (l ledger) settle(ctx context.Context, r *Record, now time.Time) error {
	if r == nil || now.Sub(r.At) > natsconf.AuditTTL-24*time.Hour { // older ones have left the log
		return nil
	}
	found, err := l.read(ctx, r.Account, r.Number)
	switch {
	case err == nil && found.id == r.id:
		return nil
	case err != nil && !errors.Is(err, natsconf.ErrNotFound):
		return err
	}
	late := *r
	return l.write(ctx, &late)
}

func (l ledger) publish(ctx context.Context, r Record) error {
	data, err := json.Marshal(r.wire())
	if err != nil {
		return fmt.Errorf("encode audit record: %w", err)
	}
	m := &nats.Msg{
		Subject: auditSubject(r.Account, r.Number), Data: data, Header: nats.Header{
			jetstream.ExpectedLastSubjSeqHeader: {"0"},
		},
	}
	// No retries: a repeat without a look at the leader could take its own first try for another's record.
	if err = l.conn.PublishOne(ctx, natsconf.StreamAudit, m); err != nil {
		return fmt.Errorf("write the audit log: %w", natsconf.Kind(err))
	}
	return nil
}

func (l ledger) read(ctx context.Context, account string, number int64) (*Record, error) {
	m, err := l.conn.Last(ctx, natsconf.StreamAudit, auditSubject(account, number))
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	return decodeRecord(m.Data)
}

func decodeRecord(data []byte) (*Record, error) {
	var w recordWire
	if err := decode(data, &w, &w.Version); err != nil {
		return nil, fmt.Errorf("audit record: %w", err)
	}
	return w.record(), nil
}

// writePause lets another publish that is in flight on the subject land before the next look.
const writePause = 20 * time.Millisecond

func pause(ctx context.Context) error {
	select {
	case <-time.After(writePause):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", natsconf.ErrUncertain, ctx.Err())
	}
}

// Audit reads an account's audit log, newest first, from a cursor; an empty one begins at the newest record.
// limit is bounded by MaxAudit; below 1 it is MaxAudit. Its errors are ErrCursor, ErrNoAccount for what is
// no account's id, and natsconf.ErrUnavailable.
func (s *Store) Audit(ctx context.Context, account, cursor string, limit int) (AuditPage, error) {
	if limit < 1 || limit > MaxAudit {
		limit = MaxAudit
	}
	if !isAccountID(account) && account != ServiceLog {
		return AuditPage{}, ErrNoAccount
	}
	from, err := s.auditFrom(ctx, account, cursor)
	if err != nil {
		return AuditPage{}, err
	}
	var page AuditPage
	for n := from; n > 0; n-- {
		if len(page.Records) == limit {
			page.Next = strconv.FormatInt(n, 10)
			break
		}
		r, err := s.ledger.read(ctx, account, n)
		if errors.Is(err, natsconf.ErrNotFound) {
			break // aged out, and all before it
		}
		if err != nil {
			return AuditPage{}, err
		}
		page.Records = append(page.Records, *r)
	}
	return page, nil
}

// auditFrom returns the number of the first record to read.
func (s *Store) auditFrom(ctx context.Context, account, cursor string) (int64, error) {
	if cursor == "" {
		return s.ledger.last(ctx, account)
	}
	n, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: %q", ErrCursor, cursor)
	}
	return n, nil
}

// Note writes a record of something that changed nothing in the account, such as a callback that was sent
// again. What it says is durable when it returns. It judges no right: who did the thing has. The error is
// ErrNoAccount for what is no account's id.
func (s *Store) Note(ctx context.Context, by Actor, account, what, on string,
	detail map[string]string) error {
	if !isAccountID(account) && account != ServiceLog {
		return ErrNoAccount
	}
	done, err := s.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	r, err := s.draft(ctx, by, account, what, on, detail)
	if err != nil {
		return err
	}
	return s.ledger.write(ctx, r)
}

func (s *Store) draft(ctx context.Context, by Actor, account, what, on string,
	detail map[string]string) (*Record, error) {
	return s.ledger.draft(ctx, Record{
		At: s.instant(), Account: account, Who: by, What: what, On: on, Detail: detail,
	})
}
