package lists

import (
	"context"
	"slices"
)

const (
	// firstRows is how many rows are looked at together at first, and then four times as many: so the
	// outcomes of many are read at once, and those of a few first.
	firstRows = 64
	maxRows   = 1 << 15
)

// lister walks back through an account's sessions.
type lister struct {
	st    *Lists
	q     Query
	span  *span
	first uint64 // the oldest sequence that is looked at
	page  Page
	next  uint64 // the sequence to go on from, backwards
}

// position makes the span reach the sequence that the list begins at; of a list that begins before what is
// held it makes another one, since what is between them would be read for nothing.
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

// walk looks for sessions until as many as wanted are found, or all were looked at.
func (l *lister) walk(ctx context.Context) error {
	looked, some := 0, firstRows
	for at := l.span.placeOf(l.next); l.next >= l.first && l.next > 0; {
		if at == l.span.len() {
			l.next = min(l.next, l.span.low-1)
			if l.next < l.first {
				return nil
			}
			most := min(max(4*looked, minRecords), maxRecords)
			if err := l.span.down(ctx, l.st, l.first, most); err != nil {
				return err
			}
			continue
		}
		end := min(at+some, l.span.len())
		full, err := l.take(ctx, at, end)
		if full || err != nil {
			return err
		}
		looked, at, some = looked+end-at, end, min(4*some, maxRows)
	}
	return nil
}

// take looks at the rows between two places, and reports whether the page is full.
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

// passed notes that a row, and all that are newer, were looked at.
func (l *lister) passed(r *row) {
	if r.sequence >= l.first {
		l.page.Back = r.createdAt()
	}
	l.next = r.sequence - 1
}

// view reads a session and puts it on the page, if it is wanted as it stands now.
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
