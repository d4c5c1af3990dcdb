package lists

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions/records"
)

const (
	// large is the minimum number of sessions of an account that is kept in memory before its first search:
	// fewer are read within 150 ms by the search itself.
	large = 10_000
	// maxKept bounds how much memory spans may take in total for the keeper to add to them. The rest of
	// maxHeld is left to searches, and to new records of the accounts that are kept.
	maxKept = maxHeld / 4 * 3
	// rowCost is about what a session takes in memory, to estimate the size of an account before it is read.
	rowCost = 100
	// samples is how many records are sampled to find large accounts, once in seekEvery: an account that has
	// a twentieth of all records is found the first time in 96 of 100 cases.
	samples   = 64
	seekEvery = time.Minute
	// maxLag is how many sequences the kept spans may lag behind: a search reads what is missing in 50 ms.
	// If fewer are stored, the spans still catch up once in catchUpEvery, so that they forget users who were
	// erased.
	maxLag       = 4096
	catchUpEvery = time.Minute
	// passEvery is the pause between two passes.
	passEvery = time.Second
	// restFor is how long the keeper rests, as a multiple of the time that it worked: it uses a twentieth of
	// a core at most.
	restFor = 19
	// maxRest bounds one rest. Work is measured by the clock, and may have been to wait for the store, or for
	// a search that used the span.
	maxRest = 5 * time.Second
	// startFor bounds how long the keeper rests only as long as it works, until it has read what was stored
	// at its start. It then uses half a core, so that it is ready before most searches. With a million
	// sessions in the store this took 50 s.
	startFor = 5 * time.Minute
)

// Keeper keeps the spans of accounts with many sessions in memory, so that no search has to read all of
// them. It finds these accounts, and reads their records and outcomes, soon after a start and at a low pace
// later. Then it follows new ones. It reads into the spans that searches use. A search that finds the keeper
// at work waits while the keeper, which then stops resting, reads its current window of records, and
// continues from there. Each process has its own Keeper. If it cannot keep up, or has no room, searches read
// what is missing, as they do without a keeper.
type Keeper struct {
	lists    *Lists
	log      zerolog.Logger
	large    int           // this field and the next six are for tests
	maxBytes int           // maxKept
	lag      uint64        // maxLag
	ended    int           // maxEnded
	every    time.Duration // passEvery
	rest     int           // restFor
	limit    time.Duration // maxRest

	begun    time.Time         // when Serve began
	started  bool              // what was stored then has been read
	accounts map[string]uint64 // that are kept, with the sequence up to which outcomes are in the span
	small    map[string]uint64 // accounts that cannot be large before a sequence
	sought   time.Time
	at       uint64 // sequence of the records' stream that all spans have reached
	caughtUp time.Time
	kept     atomic.Pointer[[]string]
}

// NewKeeper returns the keeper of these lists. If it cannot read, it logs that, and tries again.
func NewKeeper(l *Lists, log zerolog.Logger) *Keeper {
	return &Keeper{
		lists: l, log: log, large: large, maxBytes: maxKept, lag: maxLag, ended: maxEnded, every: passEvery,
		rest: restFor, limit: maxRest,
		accounts: map[string]uint64{}, small: map[string]uint64{},
	}
}

// String names the actor in the supervisor's log.
func (k *Keeper) String() string { return "search keeper" }

// Keeps reports whether an account's sessions are in memory, with their outcomes.
func (k *Keeper) Keeps(account string) bool {
	kept := k.kept.Load()
	return kept != nil && slices.Contains(*kept, account)
}

// Serve keeps spans until ctx ends.
func (k *Keeper) Serve(ctx context.Context) error {
	k.begun = time.Now()
	for {
		// the next pass continues; until then searches read by themselves
		err := k.pass(ctx)
		k.started = k.started || err == nil
		if err != nil && ctx.Err() == nil {
			k.log.Warn().Err(err).Msg("large accounts cannot be kept in memory: searches read them")
		}
		if err = pause(ctx, k.every, nil); err != nil {
			return err
		}
	}
}

// pass brings the kept spans to what is stored now, and builds those of other large accounts.
func (k *Keeper) pass(ctx context.Context) error {
	g, err := k.goal(ctx)
	if err != nil {
		return err
	}
	var failed error // an account that cannot be read does not keep the others from being followed
	if g.now.Sub(k.sought) >= seekEvery {
		if failed = k.seek(ctx, g); failed == nil {
			k.sought = g.now
		}
	}
	if len(k.accounts) == 0 || g.last-k.at < k.lag && g.now.Sub(k.caughtUp) < catchUpEvery {
		return failed
	}
	return errors.Join(failed, k.catchUp(ctx, g))
}

func (k *Keeper) catchUp(ctx context.Context, g goal) error {
	if err := k.follow(ctx, g); err != nil {
		return err
	}
	if err := k.outcomes(ctx, g); err != nil {
		return err
	}
	k.at, k.caughtUp = g.last, g.now
	k.publish()
	return nil
}

// goal is up to where a pass reads the streams. The end of the facts' stream is read first, so that each
// outcome has its record before last.
type goal struct {
	now         time.Time // of the lists' clock
	facts       uint64    // the last sequence of the facts' stream
	first, last uint64    // of the records'
}

func (k *Keeper) goal(ctx context.Context) (g goal, err error) {
	g.now = k.lists.Now()
	if _, g.facts, err = k.lists.Conn.Bounds(ctx, topology.StreamCompletions); err != nil {
		return g, err
	}
	g.first, g.last, err = k.lists.Conn.Bounds(ctx, topology.BucketStream(topology.BucketSessions))
	g.first = max(g.first, 1)
	return g, err
}

// publish updates what Keeps reports.
func (k *Keeper) publish() {
	accounts := make([]string, 0, len(k.accounts))
	for account := range k.accounts {
		accounts = append(accounts, account)
	}
	k.kept.Store(&accounts)
}

// seek finds large accounts by a sample of the records, and builds their spans, the largest first.
func (k *Keeper) seek(ctx context.Context, g goal) error {
	for account, until := range k.small {
		if g.last >= until {
			delete(k.small, account)
		}
	}
	if g.last < g.first || g.last-g.first < uint64(k.large)-1 { //nolint:gosec // positive
		return nil
	}
	sizes, err := k.sizes(ctx, g)
	if err != nil {
		return err
	}
	found := make([]string, 0, len(sizes))
	for account, n := range sizes {
		if n < k.large {
			k.small[account] = g.last + uint64(k.large-n) //nolint:gosec // positive
			continue
		}
		found = append(found, account)
	}
	slices.SortFunc(found, func(a, b string) int { return sizes[b] - sizes[a] })
	for _, account := range found {
		if k.lists.held.room(k.maxBytes) < min(sizes[account]*rowCost, k.maxBytes/2) {
			continue
		}
		if err := k.build(ctx, account, sizes[account], g); err != nil {
			return err
		}
	}
	return nil
}

// sizes returns how many sessions the accounts of a sample of the records have, without those that are kept
// or known to be small.
func (k *Keeper) sizes(ctx context.Context, g goal) (map[string]int, error) {
	sizes := map[string]int{}
	for i := range uint64(samples) {
		part := (g.last - g.first + 1) / samples
		account, err := k.accountAt(ctx, g.first+i*part+rand.Uint64N(part+1)) //nolint:gosec // a sample
		if err != nil {
			return nil, err
		}
		_, seen := sizes[account]
		_, kept := k.accounts[account]
		if seen || kept || account == "" || k.small[account] > 0 {
			continue
		}
		_, n, err := k.lists.Conn.Head(ctx, topology.BucketStream(topology.BucketSessions),
			records.RecordSubject(account, "*"), 1)
		if err != nil {
			return nil, err
		}
		sizes[account] = int(n) //nolint:gosec // a count
	}
	return sizes, nil
}

// accountAt returns the account of the first record at or after a sequence; empty if there is none.
func (k *Keeper) accountAt(ctx context.Context, sequence uint64) (string, error) {
	m, err := k.lists.Conn.Next(ctx, topology.BucketStream(topology.BucketSessions),
		records.AnyRecordSubject("*"), sequence)
	switch {
	case errors.Is(err, natsconf.ErrNotFound):
		return "", nil
	case err != nil:
		return "", err
	}
	return records.AccountOf(m.Subject), nil
}

// build reads an account's records into the span that searches use. It borrows the span for one window of
// records at a time.
func (k *Keeper) build(ctx context.Context, account string, size int, g goal) error {
	for low := uint64(math.MaxUint64); ; {
		s, release, err := k.lists.held.borrow(ctx, account, true)
		if err != nil {
			return err
		}
		if low == math.MaxUint64 && (s.len() == 0 || g.last > s.high+maxGap) {
			*s = *newSpan(account, g.last)
			s.window = windowOf(size, g)
		}
		// if it was cut or dropped since, there is no room for more
		if s.low <= g.first || s.low > low || k.lists.held.room(k.maxBytes) <= 0 {
			err = k.keep(ctx, s)
			release()
			return err
		}
		hurry := k.lists.held.hurryOf(account)
		s.pace = func(ctx context.Context, begun time.Time) error {
			return pause(ctx, k.rests(time.Since(begun)), hurry)
		}
		err = s.down(ctx, k.lists, g.first, maxRecords)
		s.pace, low = nil, s.low
		release()
		if err != nil {
			return err
		}
	}
}

// windowOf returns how many sequences hold about as many records of an account of this size as are read at
// once.
func windowOf(size int, g goal) uint64 {
	window := (g.last - g.first + 1) * (maxRecords / 4 * 3) / uint64(size) //nolint:gosec // positive
	return max(firstWindow, min(window, maxWindow))
}

// keep adds the account of a span to those that are kept.
func (k *Keeper) keep(ctx context.Context, s *span) error {
	if s.len() == 0 {
		return nil
	}
	facts, err := s.beforeEnd(ctx, k.lists, s.at(s.len()-1))
	if err != nil {
		return err
	}
	s.kept, s.older = s.low, slices.Clone(s.older) // without the spare capacity
	k.accounts[s.account] = facts - min(facts, 1)
	k.caughtUp = time.Time{} // this pass reads its outcomes
	return nil
}

// pace rests after a piece of work.
func (k *Keeper) pace(ctx context.Context, begun time.Time) error {
	return pause(ctx, k.rests(time.Since(begun)), nil)
}

// rests returns how long the keeper rests after working for some time.
func (k *Keeper) rests(worked time.Duration) time.Duration {
	rest := k.rest
	if !k.started && time.Since(k.begun) < startFor {
		rest = min(rest, 1)
	}
	return min(time.Duration(rest)*worked, k.limit)
}

// pause waits for a time, or until it can receive from hurry.
func pause(ctx context.Context, d time.Duration, hurry <-chan struct{}) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-hurry:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
