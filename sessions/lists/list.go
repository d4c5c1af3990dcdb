// Package lists finds sessions and deliveries in what is stored, and counts them: an account's sessions, the
// newest deliveries, the backlog, the verdicts, and the timeline of one session. All of it is read; nothing
// is kept beside the records and facts.
package lists

import (
	"context"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

const (
	// listWindow is how many sequences of the records' stream are looked through at first, for a list's next
	// sessions. It grows while they hold few of the account's.
	listWindow    = 512
	maxListWindow = 1 << 18
	// maxListRecords is how many records are read at once, a few KiB each; a window that holds more is made
	// smaller. It is at least listWindow, so that there is always a window that is read.
	maxListRecords = 1024
	// minListRecords is below how many of the account's records a window counts as nearly empty.
	minListRecords = 64
)

// ErrBadCursor is returned for a cursor that no list returned.
var ErrBadCursor = errors.New("not a cursor of this list")

// Query says which of an account's sessions are wanted. The zero value of a field asks for any.
type Query struct {
	Account        string // required
	Test           *bool  // started with a test key, or with a live one
	PlatformUserID string
	States         []sessions.State
	Deliveries     []facts.DeliveryState
	Since, Until   time.Time // of creation: from Since on, before Until
	Cursor         string    // Page.Next of the page before
	Limit          int       // 1 or more
}

// Page is a part of a list, newest session first.
type Page struct {
	Sessions []facts.View
	Next     string    // the cursor of what follows; empty where there is no more
	Back     time.Time // the creation instant of the oldest session looked at; zero where none was
}

// Lists looks for sessions, and counts them, in what is stored.
type Lists struct{ *records.Reader }

// New makes lists of what a reader reads.
func New(r *records.Reader) *Lists { return &Lists{r} }

// List returns an account's sessions, newest first, at most q.Limit. It looks back through the account's
// records; when ctx ends on the way, what was found until then is the answer, with the cursor from which to
// go on. A session that is created meanwhile is on no later page. Its errors are ErrBadCursor and
// natsconf.ErrUnavailable.
func (st *Lists) List(ctx context.Context, q Query) (Page, error) {
	first, last, err := st.listBounds(ctx, q)
	if err != nil {
		return Page{}, err
	}
	erasing, err := st.IsErased(ctx, "*")
	if err != nil {
		return Page{}, fmt.Errorf("list sessions: %w", err)
	}
	l := lister{st: st, q: q, next: last, erasing: erasing}
	for window := uint64(listWindow); l.next >= first && !l.done; {
		from := first
		if l.next-first >= window {
			from = l.next - window + 1
		}
		msgs, err := st.Conn.RangeOf(ctx, topology.BucketStream(topology.BucketSessions),
			records.RecordSubject(q.Account, "*"), from, l.next, maxListRecords)
		if errors.Is(err, natsconf.ErrTooMany) {
			window = listWindow
			continue
		}
		if err == nil {
			err = l.back(ctx, msgs, from)
		}
		if err != nil && ctx.Err() != nil && !l.page.Back.IsZero() {
			break // the time is up
		}
		if err != nil {
			return Page{}, fmt.Errorf("list sessions: %w", err)
		}
		if len(msgs) < minListRecords {
			window = min(4*window, maxListWindow)
		}
	}
	if l.next >= first {
		l.page.Next = encodeCursor(l.next)
	}
	return l.page, nil
}

// listBounds returns the sequences between which the records are.
func (st *Lists) listBounds(ctx context.Context, q Query) (first, last uint64, err error) {
	stream := topology.BucketStream(topology.BucketSessions)
	if first, last, err = st.Conn.Bounds(ctx, stream); err != nil {
		return 0, 0, fmt.Errorf("list sessions: %w", err)
	}
	first = max(first, 1)
	if q.Cursor != "" {
		at, err := decodeCursor(q.Cursor)
		if err != nil {
			return 0, 0, err
		}
		last = min(last, at)
	}
	if !q.Since.IsZero() {
		since, err := st.Conn.SequenceAt(ctx, stream, q.Since.Add(-records.ClockSkew))
		if err != nil {
			return 0, 0, fmt.Errorf("list sessions: %w", err)
		}
		first = max(first, since)
	}
	if !q.Until.IsZero() {
		until, err := st.Conn.SequenceAt(ctx, stream, q.Until.Add(records.ClockSkew))
		if err != nil {
			return 0, 0, fmt.Errorf("list sessions: %w", err)
		}
		last = min(last, until)
	}
	return first, last, nil
}

// lister walks back through an account's records.
type lister struct {
	st   *Lists
	q    Query
	page Page
	next uint64 // the sequence to go on from, backwards
	done bool   // as many as wanted are found
	// erasing: some user was erased. A server that is behind the leader still returns the record, so that
	// each listed session is looked up.
	erasing bool
}

// back processes a window of records that starts at a sequence.
func (l *lister) back(ctx context.Context, msgs []jetstream.Msg, from uint64) error {
	for _, m := range slices.Backward(msgs) {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if err := l.take(ctx, m.Subject(), m.Data()); err != nil {
			return err
		}
		l.next = meta.Sequence.Stream - 1
		if l.done = len(l.page.Sessions) >= l.q.Limit; l.done {
			return nil
		}
	}
	l.next = from - 1
	return nil
}

func (l *lister) take(ctx context.Context, subject string, data []byte) error {
	id, err := sessions.ParseID(subject[strings.LastIndexByte(subject, '.')+1:])
	if err != nil {
		return fmt.Errorf("record on subject %q: %w", subject, err)
	}
	s, err := l.st.OpenSession(ctx, id, data)
	if errors.Is(err, natsconf.ErrUnavailable) {
		return err // its key cannot be read now
	}
	if err != nil {
		return nil //nolint:nilerr // one damaged record, or one of a newer build, must not hide all others; Read returns the error
	}
	if l.q.wants(s) {
		v, err := l.st.View(ctx, s)
		if errors.Is(err, natsconf.ErrNewer) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := l.addIfWanted(ctx, v); err != nil {
			return err
		}
	}
	l.page.Back = s.CreatedAt
	return nil
}

// addIfWanted puts a session on the page, if it is wanted and its user was not erased.
func (l *lister) addIfWanted(ctx context.Context, v facts.View) error {
	if !wanted(l.q.States, v.State) || !wanted(l.q.Deliveries, v.Delivery.State) {
		return nil
	}
	if l.erasing {
		if gone, err := l.st.IsErased(ctx, v.ID); err != nil || gone {
			return err
		}
	}
	l.page.Sessions = append(l.page.Sessions, v)
	return nil
}

// wants reports whether a session is wanted, as far as its record shows.
func (q Query) wants(s sessions.Session) bool {
	return (q.Test == nil || *q.Test == s.Test) &&
		(q.PlatformUserID == "" || q.PlatformUserID == s.PlatformUserID) &&
		!s.CreatedAt.Before(q.Since) && (q.Until.IsZero() || s.CreatedAt.Before(q.Until))
}

func wanted[T comparable](these []T, this T) bool {
	return len(these) == 0 || slices.Contains(these, this)
}

// cursorVersion opens every cursor.
const cursorVersion = 1

var cursorEncoding = base32.HexEncoding.WithPadding(base32.NoPadding)

// encodeCursor hides that a cursor is a sequence, so that nobody relies on it.
func encodeCursor(sequence uint64) string {
	return strings.ToLower(cursorEncoding.EncodeToString(binary.BigEndian.AppendUint64([]byte{cursorVersion},
		sequence)))
}

func decodeCursor(s string) (uint64, error) {
	b, err := cursorEncoding.DecodeString(strings.ToUpper(s))
	if err != nil || len(b) != 9 || b[0] != cursorVersion ||
		encodeCursor(binary.BigEndian.Uint64(b[1:])) != s {
		return 0, ErrBadCursor
	}
	return binary.BigEndian.Uint64(b[1:]), nil
}
