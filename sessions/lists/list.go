package lists

import (
	"context"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"verifyd/natsconf/topology"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

// List returns an account's sessions, newest first, at most q.Limit. It walks back through the account's
// records. If ctx ends on the way, it returns what it has found so far, with the cursor to continue from. A
// session that is created after a page was returned is on no later page. Its errors are ErrBadCursor and
// natsconf.ErrUnavailable.
func (st *Lists) List(ctx context.Context, q Query) (Page, error) {
	page, err := st.list(ctx, q)
	for i := range page.Sessions {
		st.Explain(ctx, &page.Sessions[i])
	}
	return page, err
}

func (st *Lists) list(ctx context.Context, q Query) (Page, error) {
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
	l := lister{st: st, q: q, first: first, next: last, begun: time.Now()}
	before, _ := st.held.sizeOf(q.Account)
	if err := l.walkHeld(ctx); err != nil && (ctx.Err() == nil || l.page.Back.IsZero()) {
		return Page{}, fmt.Errorf("list sessions: %w", err)
	}
	if l.next >= first && l.next > 0 { // the page is full, or the time is up
		l.page.Next = encodeCursor(l.next)
	}
	if l.early {
		l.page.Reading = l.progress(ctx, before)
	}
	return l.page, nil
}

// one looks up the session of the query's ID.
func (st *Lists) one(ctx context.Context, q Query) (Page, error) {
	v, err := st.ReadOf(ctx, q.Account, q.ID)
	q.Text = "" // it is the same input as the ID
	switch {
	case isNoView(err), err == nil && !q.wants(v):
		return Page{}, nil
	case err != nil:
		return Page{}, fmt.Errorf("list sessions: %w", err)
	}
	return Page{Sessions: []facts.View{v}, Back: v.CreatedAt}, nil
}

// listBounds returns the first and the last sequence of the records to list.
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

// cursorVersion is the first byte of every cursor.
const cursorVersion = 1

var cursorEncoding = base32.HexEncoding.WithPadding(base32.NoPadding)

// encodeCursor hides that a cursor is a sequence, so that no client relies on it.
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
