package lists

import (
	"context"
	"slices"
	"time"

	"verifyd/natsconf/topology"
	"verifyd/sessions/records"
)

const (
	// firstRows is how many rows are examined together at first; each further step takes four times as many.
	// So a list that examines many rows reads their outcomes together, and one that examines few reads few.
	firstRows = 64
	maxRows   = 1 << 15
	// patience is how long a search reads sessions into memory, unless it finds a page before, or the
	// account has fewer than large sessions, which take 150 ms.
	patience = time.Second
	large    = 10_000
)

// lister walks back through an account's sessions.
type lister struct {
	st    *Lists
	q     Query
	span  *span
	first uint64 // the oldest sequence to examine
	page  Page
	next  uint64 // the sequence to continue from, backwards
	begun time.Time
	early bool // it has ended since its time for reading was over
}

// walkHeld examines sessions, beginning with those in memory. If these are many, and in use until the time
// for reading is over, it examines none.
func (l *lister) walkHeld(ctx context.Context) error {
	wait, cancel := ctx, func() {}
	if rows, _ := l.st.held.sizeOf(l.q.Account); rows >= l.st.large {
		wait, cancel = context.WithTimeout(ctx, l.st.patience)
	}
	defer cancel()
	held, release, err := l.st.held.borrow(wait, l.q.Account, l.q.selective())
	if err != nil && ctx.Err() == nil {
		l.early = true
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	if held != nil && l.next < held.high && l.q.Cursor == "" && l.q.Until.IsZero() {
		// another list has read on since, or the stream was made anew
		_, last, err := l.st.Conn.Bounds(ctx, topology.BucketStream(topology.BucketSessions))
		if err != nil {
			return err
		}
		if last < held.high {
			*held = *newSpan(l.q.Account, 0)
		}
	}
	if err := l.position(ctx, held); err != nil {
		return err
	}
	return l.walk(ctx)
}

// position makes the span reach the sequence at which the list begins. A list that begins before the held
// span gets a span of its own: the records between them would be read for nothing.
func (l *lister) position(ctx context.Context, held *span) error {
	switch {
	case held == nil || l.next+1 < held.low && held.len() > 0:
		l.span = newSpan(l.q.Account, l.next)
		return nil
	case held.low > held.high, l.next+1 < held.low, l.next > held.high+maxGap:
		*held = *newSpan(l.q.Account, l.next)
	}
	l.span = held
	if l.next <= held.high {
		return nil
	}
	return held.up(ctx, l.st, l.next)
}

// walk examines sessions until enough are found, all were examined, or its time for reading is over.
func (l *lister) walk(ctx context.Context) error {
	looked, step := 0, firstRows
	for at := l.span.indexOf(l.next); l.next >= l.first && l.next > 0; {
		if at == l.span.len() {
			l.next = min(l.next, l.span.low-1)
			if l.next < l.first {
				return nil
			}
			if l.early = looked >= l.st.large && l.over(); l.early {
				return nil
			}
			limit := min(max(4*looked, minRecords), maxRecords)
			if err := l.span.down(ctx, l.st, l.first, limit); err != nil {
				return err
			}
			continue
		}
		if l.early = looked >= l.st.large && l.q.wantsOutcome() && l.over(); l.early {
			return nil // outcomes may have to be read, too
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

// over reports whether the rest of a large account is left to Ahead: the time is over, or Ahead reads it now.
func (l *lister) over() bool {
	return time.Since(l.begun) >= l.st.patience || l.st.held.isReading(l.q.Account)
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

// progress returns how far the account has been read, for a list that began with some rows in memory and has
// ended early, and makes Ahead read the rest. It returns nil if there is no room for that, or no answer.
func (l *lister) progress(ctx context.Context, before int) *Progress {
	_, all, err := l.st.Conn.Head(ctx, topology.BucketStream(topology.BucketSessions),
		records.RecordSubject(l.q.Account, "*"), 1)
	of, held := int64(all), l.st.held //nolint:gosec // a count
	read, bytes := held.sizeOf(l.q.Account)
	if err != nil || read == 0 || of*int64(bytes/read) > int64(held.maxBytes) {
		return nil
	}
	l.st.Expect(l.q.Account)
	p := Progress{Read: min(int64(read), of), Of: of}
	if read > before {
		p.Left = time.Since(l.begun) * time.Duration(of-p.Read) / time.Duration(read-before)
	}
	return &p
}
