package transfer

import (
	"context"
	"time"

	"verifyd/natsconf"
)

// pageItems is how many items are handed on at once.
const pageItems = 1024

// refill fills a store from the messages of a source, one by one; those of a copy include what was replaced.
type refill struct {
	ctx  context.Context //nolint:containedctx // of one call
	conn *natsconf.Conn
	skip Skip
	now  time.Time
	of   map[string]*assetRefill
}

type assetRefill struct {
	asset    Asset
	since    uint64 // what an interrupted run has brought already
	page     []Item
	counters map[string]Item // the newest of each
	brought  int
}

// refillFrom fills a store with what read takes.
func refillFrom(ctx context.Context, c *natsconf.Conn, assets []Asset, skip Skip,
	read func(*refill) error) (reports []Report, err error) {
	r := refill{ctx: ctx, conn: c, skip: skip, now: c.Clock.Now(), of: map[string]*assetRefill{}}
	for _, a := range assets {
		one := &assetRefill{asset: a, counters: map[string]Item{}}
		r.of[a.Stream] = one
		if a.Counts() {
			continue
		}
		if one.since, err = Filled(ctx, c, a); err != nil {
			return nil, err
		}
	}
	if err := read(&r); err != nil {
		return nil, err
	}
	for _, a := range assets {
		one := r.of[a.Stream]
		for _, it := range one.counters {
			one.page = append(one.page, it)
		}
		if err := r.flush(one); err != nil {
			return nil, err
		}
		reports = append(reports, Report{Stream: a.Stream, Filled: one.brought})
	}
	return reports, nil
}

// wanting returns the asset that takes the message of a sequence; nil: none does.
func (r *refill) wanting(stream, subject string, sequence uint64) *assetRefill {
	one := r.of[stream]
	if one == nil || !one.asset.holds(subject) || r.skip.skips(one.asset, subject) || sequence <= one.since {
		return nil
	}
	return one
}

func (r *refill) take(one *assetRefill, it Item) error {
	if one.asset.Counts() {
		one.counters[it.Subject] = it
		return nil
	}
	if one.page = append(one.page, it); len(one.page) < pageItems {
		return nil
	}
	return r.flush(one)
}

func (r *refill) flush(one *assetRefill) error {
	n, err := Fill(r.ctx, r.conn, one.asset, one.page)
	one.page = one.page[:0]
	one.brought += n
	return err
}
