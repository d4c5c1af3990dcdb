package lists

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/base32"
	"verifyd/sessions/records"
)

// maxEnded is how many outcomes are read before they are put into the spans: some megabytes.
const maxEnded = 1 << 16

// with calls do with the kept span of an account. If the span was dropped to make room, or has become small,
// the account is no longer kept, and do is not called.
func (k *Keeper) with(ctx context.Context, account string, do func(*span) error) error {
	s, release, err := k.lists.held.borrow(ctx, account, true)
	if err != nil {
		return err
	}
	defer release()
	if s.kept > 0 && s.len() >= k.large/2 {
		return do(s)
	}
	s.kept = 0
	delete(k.accounts, account)
	return nil
}

// follow reads the new records, once for all accounts: a consumer for each account would make the server
// look at all of its subjects. It forgets records that have aged out.
func (k *Keeper) follow(ctx context.Context, g goal) error {
	from := g.last + 1
	for account := range k.accounts {
		if err := k.with(ctx, account, func(s *span) error {
			s.trim(g.first)
			err := k.checkHigh(ctx, s, g.last)
			from = min(from, s.high+1)
			return err
		}); err != nil {
			return err
		}
	}
	begun := time.Now()
	err := k.lists.Conn.Pages(ctx, topology.BucketStream(topology.BucketSessions), ">", from, g.last,
		func(msgs []jetstream.Msg) error {
			if err := k.share(ctx, msgs); err != nil {
				return err
			}
			err := k.pace(ctx, begun)
			begun = time.Now()
			return err
		})
	if err != nil {
		return err
	}
	for account := range k.accounts {
		if err := k.with(ctx, account, func(s *span) error {
			s.high = max(s.high, g.last)
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// share puts records into the spans of their accounts.
func (k *Keeper) share(ctx context.Context, msgs []jetstream.Msg) error {
	of := map[string][]jetstream.Msg{}
	for _, m := range msgs {
		account := records.AccountOf(m.Subject())
		if _, kept := k.accounts[account]; kept {
			of[account] = append(of[account], m)
		}
	}
	for account, msgs := range of {
		if err := k.with(ctx, account, func(s *span) error {
			return s.takeNew(ctx, k.lists, msgs)
		}); err != nil {
			return err
		}
	}
	return nil
}

// takeNew takes those of an account's records that are newer than the span; a search may have read some of
// them.
func (s *span) takeNew(ctx context.Context, st *Lists, msgs []jetstream.Msg) error {
	for _, m := range msgs {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Stream <= s.high {
			continue
		}
		if err := s.take(ctx, st, m.Subject(), m.Data(), meta.Sequence.Stream, s.add); err != nil {
			return err
		}
		s.high = meta.Sequence.Stream
	}
	return nil
}

// checkHigh empties a span if the stream was recreated, and ends before the span does.
func (k *Keeper) checkHigh(ctx context.Context, s *span, last uint64) error {
	if last >= s.high {
		return nil
	}
	_, now, err := k.lists.Conn.Bounds(ctx, topology.BucketStream(topology.BucketSessions))
	if err == nil && now < s.high { // otherwise a search has extended the span since
		*s = *newSpan(s.account, 0)
	}
	return err
}

// outcomes reads the new outcomes, once for all spans. For a span that was built a moment ago, they begin
// earlier than for the others.
func (k *Keeper) outcomes(ctx context.Context, g goal) error {
	open, err := k.open(ctx, g)
	if err != nil {
		return err
	}
	from := g.facts + 1
	for _, facts := range k.accounts {
		from = min(from, facts+1)
	}
	ended, read, begun := map[[20]byte]sessions.Outcome{}, from-1, time.Now()
	if len(open) > 0 {
		err = k.lists.completions(ctx, from, g.facts, func(id sessions.ID, data []byte) {
			var key [20]byte
			n, err := base32.Lower.Decode(key[:], []byte(id))
			if err == nil && n == len(key) && open[key] {
				ended[key] = outcomeIn(id, data) // decoding all others would be a third of the work
			}
		}, func(at uint64) error {
			read = at
			err := k.pace(ctx, begun)
			if err == nil && len(ended) >= k.ended {
				err = k.end(ctx, ended, at, false, g) // which rests by itself
				clear(ended)
			}
			begun = time.Now()
			return err
		})
	}
	if err != nil {
		_ = k.end(ctx, ended, read, false, g) // the next pass continues from there
		return err
	}
	return k.end(ctx, ended, g.facts, true, g)
}

// open returns the sessions whose outcome the spans lack.
func (k *Keeper) open(ctx context.Context, g goal) (map[[20]byte]bool, error) {
	open := map[[20]byte]bool{}
	for account := range k.accounts {
		if err := k.with(ctx, account, func(s *span) error {
			for i := s.indexOf(g.last); i < s.len(); i++ {
				if r := s.at(i); r.outcome == 0 {
					open[r.id] = true
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return open, nil
}

// end puts outcomes into the spans. They are all outcomes up to a sequence of the facts' stream, except
// those that were put there before.
func (k *Keeper) end(ctx context.Context, ended map[[20]byte]sessions.Outcome, to uint64, last bool,
	g goal) error {
	for account, facts := range k.accounts {
		var begun time.Time // only its own work counts, and not a wait for the span
		if err := k.with(ctx, account, func(s *span) error {
			begun = time.Now()
			endAll(s, ended, last, g)
			k.accounts[account] = max(facts, to)
			return nil
		}); err != nil {
			return err
		}
		if begun.IsZero() { // it is no longer kept
			continue
		}
		if err := k.pace(ctx, begun); err != nil {
			return err
		}
	}
	return nil
}

// endAll records the outcomes of a span's sessions up to a goal. After the last outcomes of a pass, the rows
// that the keeper follows have been looked up.
func endAll(s *span, ended map[[20]byte]sessions.Outcome, last bool, g goal) {
	if last {
		s.seen = g.facts // a search may have read further, but not for all rows: it reads again from here
	}
	for i := s.indexOf(g.last); i < s.len(); i++ {
		r := s.at(i)
		if r.outcome != 0 {
			continue
		}
		if o, ok := ended[r.id]; ok {
			s.end(r, o)
			continue
		}
		if r.looked = r.looked || last && r.sequence >= s.kept; r.looked && last {
			s.expire(r, g.now)
		}
	}
}
