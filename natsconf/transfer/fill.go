package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/wait"
)

// ErrDiffers is returned if the store that is filled holds another message on a subject than the one that is
// brought.
var ErrDiffers = errors.New("the store that is filled holds another message there")

const (
	// fillBatch is how many messages go into one atomic batch, and how many single ones are in flight: the
	// server takes 1,000.
	fillBatch = 500
	// fillTries bounds how often a page whose answer did not come is tried, in a row without anything more of
	// it being stored.
	fillTries = 5
	// fillWait is how long a page that was not answered waits for the store, before what it holds of the page
	// is read: an election takes 9.4 s, and 500 single messages 15 s on a disk that syncs one in 30 ms.
	fillWait = time.Minute
)

// Filled returns the sequence, in the store that it came from, of the last message that was brought; 0 if
// none was. It waits up to fillWait for a store that does not answer.
func Filled(ctx context.Context, c *natsconf.Conn, a Asset) (uint64, error) {
	ctx, cancel := wait.For(ctx, fillWait)
	defer cancel()
	m, err := c.Last(ctx, a.Stream, ">")
	if errors.Is(err, natsconf.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	o, _ := natsconf.OriginOf(m.Header)
	return o.Sequence, nil
}

// Fill stores items, which come oldest first, in their asset's stream, and returns how many there were to
// store. A repeat is harmless: items that are there already stay. The errors are ErrDiffers and natsconf's.
func Fill(ctx context.Context, c *natsconf.Conn, a Asset, items []Item) (stored int, err error) {
	if a.Counts() {
		return fillCounters(ctx, c, a, items)
	}
	for len(items) > 0 {
		page := nextPage(items)
		err := destroyReplaced(ctx, c, a, page[0])
		if err == nil {
			stay := a.withoutReplaced(page)
			stored += len(stay)
			err = fillPage(ctx, c, a, stay)
		}
		if err != nil {
			return stored, fmt.Errorf("fill %s: %w", a.Stream, err)
		}
		items = items[len(page):]
	}
	return stored, nil
}

// nextPage cuts the next page off. A message that replaces another begins a page of its own.
func nextPage(items []Item) []Item {
	page := items[:min(len(items), fillBatch)]
	if i := slices.IndexFunc(page[1:], func(it Item) bool { return natsconf.Replaces(it.Header) }); i >= 0 {
		return page[:i+1]
	}
	return page
}

// destroyReplaced destroys the messages that a message replaces. It runs before the message is stored: the
// other way round, a copy that is interrupted between the two would find the message there, and leave the one
// before forever.
func destroyReplaced(ctx context.Context, c *natsconf.Conn, a Asset, it Item) error {
	if !natsconf.Replaces(it.Header) {
		return nil
	}
	return c.Destroy(ctx, a.Stream, it.Subject, 0)
}

// fillPage stores a page, and tries again if a lost answer, a slow disk, or a leader that went away in its
// midst leaves open what is stored.
func fillPage(ctx context.Context, c *natsconf.Conn, a Asset, items []Item) (err error) {
	end, _, err := position(ctx, c, a)
	if err != nil {
		return err
	}
	for tries := 0; tries < fillTries; tries++ {
		msgs := messages(a, items, c.Clock.Now())
		if a.config.AllowAtomicPublish {
			msgs[0].Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(end, 10))
			err = c.PublishBatch(ctx, a.Stream, msgs...)
		} else {
			err = publishChain(c, msgs, end)
		}
		switch conflict := errors.Is(err, natsconf.ErrConflict); {
		case err == nil:
			return nil
		case conflict && a.config.DiscardNewPerSubject:
			return fillSingly(ctx, c, a, items) // some of them are there
		case ctx.Err() != nil, !conflict && !errors.Is(err, natsconf.ErrUncertain) &&
			!errors.Is(err, natsconf.ErrUnavailable):
			return err
		}
		var last uint64
		var perr error
		if end, last, perr = position(ctx, c, a); perr != nil {
			return perr
		}
		for len(items) > 0 && items[0].Origin.Sequence <= last {
			items, tries = items[1:], 0
		}
		if len(items) == 0 {
			return nil
		}
	}
	return err
}

// position returns the last sequence of the stream, and Filled. In this order: if more of a page is stored
// between the two reads, what is sent again is refused, instead of being stored a second time.
func position(ctx context.Context, c *natsconf.Conn, a Asset) (end, last uint64, err error) {
	ctx, cancel := wait.For(ctx, fillWait)
	defer cancel()
	if _, end, err = c.Bounds(ctx, a.Stream); err != nil {
		return 0, 0, err
	}
	last, err = Filled(ctx, c, a)
	return end, last, err
}

// messages makes the messages of a page. Those whose life has ended meanwhile live a second more, so that the
// order has no gap.
func messages(a Asset, items []Item, now time.Time) []*nats.Msg {
	msgs := make([]*nats.Msg, len(items))
	for i, it := range items {
		m := &nats.Msg{Subject: it.Subject, Data: it.Data, Header: nats.Header{}}
		maps.Copy(m.Header, kept(it.Header)) // older backups hold roll-ups
		it.Origin.Put(m.Header)
		if a.config.AllowMsgTTL && !it.Origin.Until.IsZero() {
			// whole seconds, never less
			left := max(it.Origin.Until.Sub(now), 0).Truncate(time.Second) + time.Second
			m.Header.Set(jetstream.MsgTTLHeader, left.String())
		}
		msgs[i] = m
	}
	return msgs
}

// publishChain stores messages in a stream that takes no batches, after the sequence end: each is refused
// unless it comes right after the one before.
func publishChain(c *natsconf.Conn, msgs []*nats.Msg, end uint64) (err error) {
	acks := make([]jetstream.PubAckFuture, len(msgs))
	for i, m := range msgs {
		m.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(end+uint64(i), 10))
		if acks[i], err = c.JS.PublishMsgAsync(m, jetstream.WithRetryAttempts(0)); err != nil {
			return fmt.Errorf("%w: %w", natsconf.ErrUncertain, err)
		}
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return natsconf.Kind(err)
		}
	}
	return nil
}

// fillSingly stores the messages of a page that are not there yet, and compares those that are.
func fillSingly(ctx context.Context, c *natsconf.Conn, a Asset, items []Item) error {
	for i, m := range messages(a, items, c.Clock.Now()) {
		_, err := c.JS.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
		if err == nil {
			continue
		}
		if kind := natsconf.Kind(err); !errors.Is(kind, natsconf.ErrConflict) {
			return kind
		}
		there, err := c.Last(ctx, a.Stream, m.Subject)
		if err != nil {
			return err
		}
		var have, want Sum
		have.add(Item{Subject: there.Subject, Data: there.Data, Header: kept(there.Header)})
		want.add(items[i])
		if have != want {
			return fmt.Errorf("%w: %s", ErrDiffers, m.Subject)
		}
	}
	return nil
}

// fillCounters makes counters equal to the values that were read, and returns how many were not.
func fillCounters(ctx context.Context, c *natsconf.Conn, a Asset, items []Item) (stored int, err error) {
	msgs, err := c.Newest(ctx, a.Stream, ">")
	if err != nil {
		return 0, err
	}
	have := make(map[string]*big.Int, len(msgs))
	for _, m := range msgs {
		if have[m.Subject()], err = counterValue(m.Data()); err != nil {
			return 0, fmt.Errorf("the counter %s: %w", m.Subject(), err)
		}
	}
	for _, it := range items {
		want, err := counterValue(it.Data)
		if err != nil {
			return stored, fmt.Errorf("the counter %s: %w", it.Subject, err)
		}
		h := have[it.Subject]
		if h == nil {
			h = new(big.Int)
		} else if h.Cmp(want) == 0 {
			continue
		}
		have[it.Subject] = want
		m := &nats.Msg{
			Subject: it.Subject, Header: nats.Header{
				"Nats-Incr": {fmt.Sprintf("%+d", new(big.Int).Sub(want, h))},
			},
		}
		it.Origin.Put(m.Header)
		// No repeat by the library: an increment without an answer may be counted, and the next run reads
		// whether it is.
		if _, err := c.JS.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0)); err != nil {
			return stored, fmt.Errorf("set the counter %s: %w", it.Subject, natsconf.Kind(err))
		}
		stored++
	}
	return stored, nil
}

// counterValue reads the total that a counter stream keeps in each message.
func counterValue(data []byte) (*big.Int, error) {
	var v struct {
		Val string `json:"val"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, err
	}
	n, ok := new(big.Int).SetString(v.Val, 10)
	if !ok {
		return nil, fmt.Errorf("%q is no number", v.Val)
	}
	return n, nil
}

// Empty reports whether a store holds nothing of the assets.
func Empty(ctx context.Context, c *natsconf.Conn, assets []Asset, skip Skip) (bool, error) {
	for _, a := range assets {
		empty := true
		err := Read(ctx, c, a, skip, 1, time.Time{}, func(items []Item) error {
			empty = empty && len(items) == 0
			return nil
		})
		if err != nil || !empty {
			return false, err
		}
	}
	return true, nil
}

// Report is what one run has done with an asset.
type Report struct {
	Stream string
	Filled int // messages in this run
}

// Copy brings the messages of an asset that one store has, and the other does not have yet. The errors are
// Read's and Fill's.
func Copy(ctx context.Context, from, to *natsconf.Conn, a Asset, skip Skip) (Report, error) {
	r := Report{Stream: a.Stream}
	since := uint64(1)
	if !a.Counts() {
		last, err := Filled(ctx, to, a)
		if err != nil {
			return r, err
		}
		since = last + 1
	}
	err := Read(ctx, from, a, skip, since, from.Clock.Now(), func(items []Item) error {
		n, err := Fill(ctx, to, a, items)
		r.Filled += n
		crashpoint.Reach(crashpoint.MovePage)
		return err
	})
	return r, err
}

// Again empties an asset that differs although the store it comes from accepts nothing any more, and brings
// all of it once more, if that store may have lost what was brought (Asset.loose). Other assets stay as they
// are. The errors are Copy's, and those of the server's API.
func Again(ctx context.Context, from, to *natsconf.Conn, a Asset, skip Skip) error {
	if !a.loose {
		return nil
	}
	if err := to.Purge(ctx, a.Stream, ">"); err != nil {
		return err
	}
	_, err := Copy(ctx, from, to, a, skip)
	return err
}

// Comparison is what both sides hold of an asset.
type Comparison struct {
	Stream   string
	From, To Sum
}

// Equal reports whether both sides hold the same.
func (c Comparison) Equal() bool { return c.From == c.To }

// compareMargin keeps out of a comparison the messages that are about to leave a store by their age, which
// may happen on one side first.
const compareMargin = 2 * time.Minute

// Compare reads the whole of an asset on both sides, at the same time.
func Compare(ctx context.Context, from, to *natsconf.Conn, a Asset, skip Skip) (Comparison, error) {
	alive := from.Clock.Now().Add(compareMargin)
	c := Comparison{Stream: a.Stream}
	done := make(chan error, 1)
	go func() {
		var err error
		c.To, err = SumOf(ctx, to, a, skip, alive)
		done <- err
	}()
	var err error
	c.From, err = SumOf(ctx, from, a, skip, alive)
	return c, errors.Join(err, <-done)
}
