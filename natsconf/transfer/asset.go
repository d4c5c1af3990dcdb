package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
)

// Asset is one stream as it is carried.
type Asset struct {
	Stream string

	config jetstream.StreamConfig // as the topology has it
	loose  bool                   // the stream may lose messages that were brought from it
}

// order is the order of streams in which a store is read while it is in service. A stream that is read later
// is at least as new: facts come before the records that they are about, so that no outcome lacks its record,
// and both before the keys that open them; API keys before their accounts; the audit log before the accounts,
// whose records lead to what the log lacks. Streams that are not listed are hints.
var order = []string{
	topology.StreamCompletions,
	topology.StreamEvents,
	topology.StreamAudit,
	topology.BucketStream(topology.BucketKeys),
	topology.BucketStream(topology.BucketAccounts),
	topology.BucketStream(topology.BucketOperations),
	topology.BucketStream(topology.BucketAlarms),
	topology.StreamNotices,
	topology.BucketStream(topology.BucketSessions),
	topology.StreamSessionKeys,
	topology.BucketStream(topology.BucketIdempotency),
	topology.BucketStream(topology.BucketIdentities),
	topology.BucketStream(topology.BucketLogins),
	topology.BucketStream(topology.BucketKeyUses),
	topology.BucketStream(topology.BucketStore),
	topology.StreamUsage,
}

// loose are the streams that may lose messages that were brought from them: the events and the key of a user
// who was erased, and in a crash the last moments of streams that an embedded server writes to disk a little
// later. A sequence may then come a second time, too.
var loose = []string{
	topology.StreamEvents, topology.StreamSessionKeys, topology.BucketStream(topology.BucketKeyUses),
}

// Assets returns the streams of a topology that are carried, in the order in which they are.
func Assets(t topology.Topology) []Asset {
	var assets []Asset
	for _, name := range order {
		i := slices.IndexFunc(t.Streams, func(c jetstream.StreamConfig) bool { return c.Name == name })
		if i < 0 {
			continue
		}
		assets = append(assets, Asset{
			Stream: name, config: t.Streams[i], loose: slices.Contains(loose, name),
		})
	}
	return assets
}

// replacing reports whether a message of the asset replaces the one before it on its subject.
func (a Asset) replacing() bool {
	return a.config.MaxMsgsPerSubject == 1 && !a.config.DiscardNewPerSubject && !a.Counts()
}

// replaces reports whether a message of the asset whose life has ended may have replaced one whose life has
// not: it is stored for a moment, so that the other one is removed.
func (a Asset) replaces() bool { return a.replacing() && a.config.AllowMsgTTL }

// withoutReplaced leaves out the messages that others of the same page replace: a server refuses a batch that
// removes what it brings.
func (a Asset) withoutReplaced(items []Item) []Item {
	if !a.replacing() {
		return items
	}
	taken := map[string]bool{} // subjects on which nothing older stays
	var stay []Item
	for _, it := range slices.Backward(items) {
		if !taken[it.Subject] {
			stay = append(stay, it)
		}
		taken[it.Subject] = true
	}
	slices.Reverse(stay)
	return stay
}

// Counts reports whether the stream holds counters, which go on counting while it is carried: it cannot be
// sealed.
func (a Asset) Counts() bool { return a.config.AllowMsgCounter }

// holds reports whether a subject is one of the asset's. Others can be in a stream too: a server keeps the
// subject of a message that somebody's consumer made it send there. Such a subject belongs to no role, and
// stored again the message would land in another stream.
func (a Asset) holds(subject string) bool { return natsconf.Covered(subject, a.config.Subjects) }

// Sealable returns the names of the assets' streams that can be sealed. A counter stream cannot: a server
// would not start it again.
func Sealable(assets []Asset) []string {
	var names []string
	for _, a := range assets {
		if !a.Counts() && a.Stream != topology.BucketStream(topology.BucketStore) {
			names = append(names, a.Stream)
		}
	}
	return names
}

// Item is one message as it is carried.
type Item struct {
	Subject string          `json:"s"`
	Data    []byte          `json:"d,omitempty"`
	Header  nats.Header     `json:"h,omitempty"` // what is not the server's own
	Origin  natsconf.Origin `json:"o"`
}

// newItem reads a message. Its life is that of its stream (0: without end), unless it came with one of its
// own.
func newItem(life time.Duration, m jetstream.Msg) (Item, error) {
	meta, err := m.Metadata()
	if err != nil {
		return Item{}, err
	}
	return itemOf(life, m.Subject(), m.Headers(), m.Data(), meta.Sequence.Stream, meta.Timestamp)
}

// itemOf is newItem for a message's parts.
func itemOf(life time.Duration, subject string, h nats.Header, data []byte, sequence uint64,
	at time.Time) (Item, error) {
	it := Item{Subject: subject, Data: data, Header: kept(h)}
	if o, ok := natsconf.OriginOf(h); ok {
		it.Origin = o
		it.Origin.Sequence = sequence
		return it, nil
	}
	it.Origin = natsconf.Origin{Sequence: sequence, Stored: at.UTC().Truncate(time.Millisecond)}
	if text := h.Get(jetstream.MsgTTLHeader); text != "" {
		own, err := time.ParseDuration(text)
		if err != nil {
			return Item{}, fmt.Errorf("the life %q of a message on %s: %w", text, subject, err)
		}
		if life == 0 || own < life {
			life = own
		}
	}
	if life > 0 {
		it.Origin.Until = it.Origin.Stored.Add(life)
	}
	return it, nil
}

// kept leaves out the fields that the server or a publisher's own conditions have put into a header, and the
// roll-ups by which builds before 0.10.0 removed entries.
func kept(h nats.Header) nats.Header {
	var k nats.Header
	for name, values := range h {
		if natsconf.IsOriginHeader(name) || strings.HasPrefix(name, "Nats-") {
			continue
		}
		if k == nil {
			k = nats.Header{}
		}
		k[name] = values
	}
	return k
}

// over reports whether an item's life has ended.
func (it Item) over(now time.Time) bool { return it.Origin.Over(now) }

// Sum is the count and the digest of a set of items, whatever their order.
type Sum struct {
	Count  uint64
	digest [sha256.Size / 8]uint64
}

// add adds an item: the sum of SHA-256 over subject, header and data of each. It detects faults, not forgers:
// those meet the seal of a backup, or are the operator.
func (s *Sum) add(it Item) {
	h := sha256.New()
	part := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		_, _ = h.Write(n[:])
		_, _ = h.Write(b)
	}
	part([]byte(it.Subject))
	part(it.Data)
	for _, name := range slices.Sorted(maps.Keys(it.Header)) {
		part([]byte(name))
		for _, v := range it.Header[name] {
			part([]byte(v))
		}
	}
	sum := h.Sum(nil)
	s.Count++
	for i := range s.digest {
		s.digest[i] += binary.BigEndian.Uint64(sum[8*i:])
	}
}

// Digest returns the digest as text.
func (s *Sum) Digest() string {
	var b []byte
	for _, n := range s.digest {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return hex.EncodeToString(b)
}

// Skip selects the messages that are not copied. nil: none.
type Skip func(stream, subject string) bool

func (s Skip) skips(a Asset, subject string) bool {
	own := a.Stream == topology.BucketStream(topology.BucketStore) && subject == storestate.Subject()
	return own || s != nil && s(a.Stream, subject)
}

// Read reads an asset from a sequence of its stream on, oldest first, and hands it on page by page; messages
// whose life has ended at an instant are left out. Its errors are natsconf.ErrUnavailable and do's.
func Read(ctx context.Context, c *natsconf.Conn, a Asset, skip Skip, from uint64, alive time.Time,
	do func([]Item) error) error {
	_, last, err := c.Bounds(ctx, a.Stream)
	if err != nil {
		return err
	}
	return readTo(ctx, c, a, skip, from, last, alive, do)
}

// readTo is Read up to a sequence.
func readTo(ctx context.Context, c *natsconf.Conn, a Asset, skip Skip, from, last uint64, alive time.Time,
	do func([]Item) error) error {
	if last < from {
		return nil
	}
	// not from this command's settings: an operator's shell may lack those of the service
	life, err := c.KeptFor(ctx, a.Stream)
	if err != nil {
		return err
	}
	return c.Pages(ctx, a.Stream, ">", from, last, func(msgs []jetstream.Msg) error {
		items := make([]Item, 0, len(msgs))
		for _, m := range msgs {
			if !a.holds(m.Subject()) || skip.skips(a, m.Subject()) {
				continue
			}
			it, err := newItem(life, m)
			if err != nil {
				return fmt.Errorf("read from %s: %w", a.Stream, err)
			}
			if !it.over(alive) {
				items = append(items, it)
			}
		}
		return do(items)
	})
}

// SumOf reads a whole asset and returns its sum. Of a stream that keeps more messages on a subject than the
// asset does, as builds before 0.10.0 made them, only those count that the asset keeps.
func SumOf(ctx context.Context, c *natsconf.Conn, a Asset, skip Skip, alive time.Time) (Sum, error) {
	var s Sum
	kept, err := c.JS.Stream(ctx, a.Stream)
	if err != nil {
		return s, natsconf.Kind(err)
	}
	replacing := kept.CachedInfo().Config.MaxMsgsPerSubject != 1 && a.replacing()
	newest := map[string]Item{}
	err = Read(ctx, c, a, skip, 1, alive, func(items []Item) error {
		for _, it := range items {
			if replacing {
				newest[it.Subject] = it
			} else {
				s.add(it)
			}
		}
		return nil
	})
	for _, it := range newest {
		s.add(it)
	}
	return s, err
}
