package lists

import (
	"context"
	"time"

	"github.com/rs/zerolog"
)

// NewTestKeeper returns a Keeper that keeps accounts with at least from sessions. It looks for large
// accounts in each pass that comes, by the lists' clock, a minute after the last such pass. It never lets
// new records wait, puts a few outcomes at a time into the spans, and does not rest. Of more than a few
// facts, the lists read only the outcomes.
func NewTestKeeper(l *Lists, from int) *Keeper {
	k := NewKeeper(l, zerolog.Nop())
	k.large, k.lag, k.ended, k.every, k.rest, k.limit = from, 1, 7, time.Millisecond, 0, time.Hour
	l.few = 20
	return k
}

// Rest sets how long the keeper rests, as a multiple of the time that it worked, for an hour at most.
func (k *Keeper) Rest(times int) { k.rest = times }

// AtOnce sets how many outcomes the keeper puts into the spans at once.
func (k *Keeper) AtOnce(n int) { k.ended = n }

// Rests returns how long the keeper rests after it has worked for some time, at a time since its start.
func (k *Keeper) Rests(worked, since time.Duration) time.Duration {
	k.begun = time.Now().Add(-since)
	return k.rests(worked)
}

// Log sets the keeper's logger.
func (k *Keeper) Log(l zerolog.Logger) { k.log = l }

// Bound sets the memory limit of the keeper, and that of all spans.
func (k *Keeper) Bound(bytes int) { k.maxBytes, k.lists.held.maxBytes = bytes, bytes }

// Goal reads what is stored now, and returns a function that brings the spans there.
func (k *Keeper) Goal(ctx context.Context) (func(context.Context) error, error) {
	g, err := k.goal(ctx)
	return func(ctx context.Context) error { return k.catchUp(ctx, g) }, err
}

// Pass runs one pass, for a keeper that does not serve.
func (k *Keeper) Pass(ctx context.Context) error { return k.pass(ctx) }

// Rows returns how many sessions of an account are in memory.
func (st *Lists) Rows(account string) int {
	st.held.mu.Lock()
	e := st.held.spans[account]
	st.held.mu.Unlock()
	if e == nil {
		return 0
	}
	e.busy <- struct{}{}
	defer func() { <-e.busy }()
	return e.span.len()
}

// PositionBehind reports whether a list that begins so many sequences after a kept span leaves it unchanged.
func PositionBehind(sequences uint64) (leftAlone bool, err error) {
	s := newSpan("acc_a", 10)
	s.kept, s.newer = 1, []row{{sequence: 10}}
	l := lister{q: Query{Account: "acc_a"}, next: s.high + sequences}
	err = l.position(context.Background(), s)
	return l.span != s && s.kept > 0 && s.len() == 1, err
}
