package lists

import (
	"context"
	"time"

	"github.com/rs/zerolog"
)

// NewTestKeeper makes a keeper of accounts with so many sessions, which looks for new ones at each pass that
// the lists' clock is a minute after the last such look, lets nothing wait, puts a few outcomes at once into
// the spans, and rests not at all. Of more than a few facts the lists read the outcomes alone.
func NewTestKeeper(l *Lists, from int) *Keeper {
	k := NewKeeper(l, zerolog.Nop())
	k.large, k.lag, k.ended, k.every, k.rest = from, 1, 7, time.Millisecond, 0
	l.few = 20
	return k
}

// Rest sets how long the keeper rests, as a multiple of the time that it worked.
func (k *Keeper) Rest(times int) { k.rest = times }

// AtOnce sets how many outcomes the keeper puts into the spans at once.
func (k *Keeper) AtOnce(n int) { k.ended = n }

// Rests returns how long the keeper rests that has worked so long, at an instant after its start.
func (k *Keeper) Rests(worked, since time.Duration) time.Duration {
	k.begun = time.Now().Add(-since)
	return k.rests(worked)
}

// Log sets where the keeper logs to.
func (k *Keeper) Log(l zerolog.Logger) { k.log = l }

// Bound sets what the keeper, and all spans, may take in memory.
func (k *Keeper) Bound(bytes int) { k.most, k.lists.held.most = bytes, bytes }

// Goal asks what is stored now, and returns what brings the spans there.
func (k *Keeper) Goal(ctx context.Context) (func(context.Context) error, error) {
	g, err := k.goal(ctx)
	return func(ctx context.Context) error { return k.catchUp(ctx, g) }, err
}

// Pass is one pass, for a keeper that does not serve.
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

// PositionBehind reports whether a list that begins so many sequences behind what is kept leaves that alone.
func PositionBehind(sequences uint64) (leftAlone bool, err error) {
	s := newSpan("acc_a", 10)
	s.kept, s.newer = 1, []row{{sequence: 10}}
	l := lister{q: Query{Account: "acc_a"}, next: s.high + sequences}
	err = l.position(context.Background(), s)
	return l.span != s && s.kept > 0 && s.len() == 1, err
}
