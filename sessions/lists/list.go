// Package lists finds sessions and deliveries in what is stored, and counts them: an account's sessions, the
// newest deliveries, the backlog, the verdicts, and the timeline of one session.
//
// All of it is read, and nothing is stored beside the records and facts. What a list has read of an
// account's records stays in memory for a while (span, held), so that the next one does not read it
// again. Of accounts with many sessions a Keeper reads it before anybody asks, and goes on with what
// comes. It says where to look, never what is there: each session on a page was read from the leaders for
// that page, and what a span lacks is read before a list uses it.
package lists

import (
	"context"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

// ErrBadCursor is returned for a cursor that no list returned.
var ErrBadCursor = errors.New("not a cursor of this list")

// Page is a part of a list, newest session first.
type Page struct {
	Sessions []facts.View
	Next     string    // the cursor of what follows; empty where there is no more
	Back     time.Time // the creation instant of the oldest session looked at; zero where none was
}

// Lists looks for sessions, and counts them, in what is stored.
type Lists struct {
	*records.Reader

	held *held
	few  uint64 // fewFacts, but for tests
}

// New makes lists of what a reader reads.
func New(r *records.Reader) *Lists { return &Lists{r, newHeld(), fewFacts} }

// List returns an account's sessions, newest first, at most q.Limit. It looks back through the account's
// records; when ctx ends on the way, what was found until then is the answer, with the cursor from which to
// go on. A session that is created meanwhile is on no later page. Its errors are ErrBadCursor and
// natsconf.ErrUnavailable.
func (st *Lists) List(ctx context.Context, q Query) (Page, error) {
	if q.ID != "" && q.Cursor == "" {
		if p, err := st.one(ctx, q); err != nil || len(p.Sessions) > 0 {
			return p, err
		}
	}
	if q.ID != "" && q.Text == "" {
		return Page{}, nil
	}
	first, last, err := st.listBounds(ctx, q)
	if err != nil {
		return Page{}, err
	}
	s, release, err := st.held.borrow(ctx, q.Account, q.selective())
	if err != nil {
		return Page{}, fmt.Errorf("list sessions: %w", err)
	}
	defer release()
	l := lister{st: st, q: q, first: first, next: last}
	if err = l.position(ctx, s); err == nil {
		err = l.walk(ctx)
	}
	if err != nil && (ctx.Err() == nil || l.page.Back.IsZero()) {
		return Page{}, fmt.Errorf("list sessions: %w", err)
	}
	if l.next >= first && l.next > 0 { // or the time is up
		l.page.Next = encodeCursor(l.next)
	}
	return l.page, nil
}

// one looks up the session that the query names.
func (st *Lists) one(ctx context.Context, q Query) (Page, error) {
	v, err := st.ReadOf(ctx, q.Account, q.ID)
	q.Text = "" // it is the same text, read otherwise
	switch {
	case isNoView(err), err == nil && !q.wants(v):
		return Page{}, nil
	case err != nil:
		return Page{}, fmt.Errorf("list sessions: %w", err)
	}
	return Page{Sessions: []facts.View{v}, Back: v.CreatedAt}, nil
}

// isNoView reports whether a session is on no list: its user was erased, it has aged out, or what stands in
// its place is a newer build's or damaged. One such session hides no other.
func isNoView(err error) bool {
	return errors.Is(err, sessions.ErrNotFound) || errors.Is(err, natsconf.ErrNewer) ||
		errors.Is(err, facts.ErrUnreadable)
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
