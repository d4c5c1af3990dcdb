package lists

import (
	"context"
	"slices"
)

const (
	// firstRows is how many rows are examined together at first; each further step takes four times as many.
	// So a list that examines many rows reads their outcomes together, and one that examines few reads few.
	firstRows = 64
	maxRows   = 1 << 15
)

// lister walks back through an account's sessions.
type lister struct {
	st    *Lists
	q     Query
	span  *span
	first uint64 // the oldest sequence to examine
	page  Page
	next  uint64 // the sequence to continue from, backwards
}

// position makes the span reach the sequence at which the list begins. A list that begins before the held
// span, or far after a kept one, gets a span of its own: the records between them would be read for nothing.
func (l *lister) position(ctx context.Context, held *span) error {
	switch {
	case held == nil || l.next+1 < held.low && held.len() > 0, held.kept > 0 && l.next > held.high+maxGap:
		l.span = newSpan(l.q.Account, l.next)
		return nil
	case held.len() == 0 || l.next > held.high+maxGap:
		*held = *newSpan(l.q.Account, l.next)
	}
	l.span = held
	if l.next <= held.high {
		return nil
	}
	return held.up(ctx, l.st, l.next)
}

// walk examines sessions until enough are found, or all were examined.
func (l *lister) walk(ctx context.Context) error {
	looked, step := 0, firstRows
	for at := l.span.indexOf(l.next); l.next >= l.first && l.next > 0; {
		if at == l.span.len() {
			l.next = min(l.next, l.span.low-1)
			if l.next < l.first {
				return nil
			}
			limit := min(max(4*looked, minRecords), maxRecords)
			if err := l.span.down(ctx, l.st, l.first, limit); err != nil {
				return err
			}
			continue
		}
		end := min(at+step, l.span.len())
		full, err := l.take(ctx, at, end)
		if full || err != nil {
			return err
		}
		looked, at, step = looked+end-at, end, min(4*step, maxRows)
	}
	return nil
}

// take examines a range of rows, and reports whether the page is full.
func (l *lister) take(ctx context.Context, from, to int) (full bool, err error) {
	var found []*row
	for i := from; i < to; i++ {
		r := l.span.at(i)
		if r.sequence < l.first {
			break
		}
		if l.q.matches(l.span.traits(r)) {
			found = append(found, r)
		}
	}
	if l.q.wantsOutcome() {
		if err := l.span.look(ctx, l.st, found); err != nil {
			return false, err
		}
		now := l.st.Now()
		found = slices.DeleteFunc(found, func(r *row) bool {
			o, _ := l.span.known(r, now)
			return o.State != "" && !l.q.matchesOutcome(o)
		})
	}
	for _, r := range found {
		if full, err := l.view(ctx, r); full || err != nil {
			return full, err
		}
	}
	l.passed(l.span.at(to - 1))
	return false, nil
}

// passed records that a row, and all newer ones, were examined.
func (l *lister) passed(r *row) {
	if r.sequence >= l.first {
		l.page.Back = r.createdAt()
	}
	l.next = r.sequence - 1
}

// view reads a session, and puts it on the page if the query selects its current state.
func (l *lister) view(ctx context.Context, r *row) (full bool, err error) {
	v, err := l.st.ReadOf(ctx, l.q.Account, r.session())
	switch {
	case err == nil && l.q.wants(v):
		l.page.Sessions = append(l.page.Sessions, v)
	case err != nil && !isNoView(err):
		return false, err
	}
	l.passed(r)
	return len(l.page.Sessions) >= l.q.Limit, nil
}
