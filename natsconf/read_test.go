package natsconf_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// put stores messages whose data is their subject.
func put(t *testing.T, c *natsconf.Conn, subjects ...string) {
	t.Helper()
	for _, s := range subjects {
		natstest.Publish(t, c, s, []byte(s))
	}
}

func TestNextWalksOneSubject(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t)
	put(t, c, "session.a.1", "session.a.2", "session.b.1", "session.b.2", "session.c.1")
	var got []string
	for seq := uint64(1); ; {
		m, err := c.Next(t.Context(), topology.StreamEvents, "session.*.1", seq)
		if errors.Is(err, natsconf.ErrNotFound) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got, seq = append(got, m.Subject), m.Sequence+1
	}
	if want := []string{"session.a.1", "session.b.1", "session.c.1"}; !reflect.DeepEqual(got, want) {
		t.Errorf("walked %v, want %v", got, want)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Next(canceled, topology.StreamEvents, "session.*.1", 1); !errors.Is(err,
		natsconf.ErrUnavailable) {
		t.Errorf("out of time: %v", err)
	}
}

func TestRangeGivesWhatIsThereAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t)
	if first, last, err := c.Bounds(t.Context(), topology.StreamEvents); err != nil || last >= first &&
		last != 0 {
		t.Errorf("an empty stream reaches from %d to %d, %v", first, last, err)
	}
	put(t, c, "session.a.1", "session.b.1", "session.c.1", "session.d.1", "session.e.1")
	first, last, err := c.Bounds(t.Context(), topology.StreamEvents)
	if err != nil || first != 1 || last != 5 {
		t.Fatalf("bounds are %d and %d, %v", first, last, err)
	}
	s, err := c.JS.Stream(t.Context(), topology.StreamEvents)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteMsg(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		first, last uint64
		want        []string
	}{
		{1, 5, []string{"session.a.1", "session.b.1", "session.d.1", "session.e.1"}},
		{2, 4, []string{"session.b.1", "session.d.1"}},
		{2, 3, []string{"session.b.1"}},
		{3, 3, nil},
		{5, 9, []string{"session.e.1"}},
	} {
		awaitRange(t, c, r.first, r.last, r.want...)
	}
	// The newest message may leave before others, with a TTL of its own.
	if err := s.DeleteMsg(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	if m, err := c.Last(t.Context(), topology.StreamEvents, ">"); err != nil || m.Sequence != 4 {
		t.Errorf("the newest message that is left: %v, %v", m, err)
	}
	awaitRange(t, c, 1, 5, "session.a.1", "session.b.1", "session.d.1")
	natstest.AwaitConsumers(t, c, topology.StreamEvents, 0)
}

// awaitRange waits until the readings of a range have these subjects: on a cluster a server may have a
// deleted message for a moment more.
func awaitRange(t *testing.T, c *natsconf.Conn, first, last uint64, want ...string) {
	t.Helper()
	natstest.Await(t, fmt.Sprintf("messages %d to %d are %v", first, last, want), func() bool {
		msgs, err := c.Range(t.Context(), topology.StreamEvents, ">", first, last)
		if err != nil && !errors.Is(err, natsconf.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil && slices.Equal(subjects(msgs), want)
	})
}

// The consumer of a reading may be on a server that has not yet received what the leader has acknowledged.
// Many write concurrently, so that the servers have to catch up.
//
// If a leader has been replaced and has not heard of it, both answer for a moment. So the test begins when
// the leaders are elected, and a round in which one changed is repeated.
func TestReadingsSeeWhatWasAcknowledged(t *testing.T) {
	const rounds, inOne, stands = 25, 40, time.Second
	c := natstest.StartCluster(t)
	var wg sync.WaitGroup
	for _, bucket := range []string{
		topology.BucketOperations, topology.BucketAlarms, topology.BucketIdempotency,
		topology.BucketIdentities, topology.BucketKeyUses, topology.BucketLogins,
	} {
		wg.Go(func() {
			for round := 0; round < rounds; {
				since := leaderSince(t, c, bucket)
				if wait := time.Until(since.Add(stands)); wait > 0 {
					<-time.After(wait)
					continue
				}
				err := writeAndRead(t.Context(), c, bucket, round, inOne)
				// The leader of all streams, too, may be a new one: then a reading may not begin.
				if after := leaderSince(t, c, bucket); err != nil && after.Equal(since) &&
					!errors.Is(err, natsconf.ErrUnavailable) {
					t.Errorf("%s, round %d, led since %s: %v", bucket, round, since, err)
					return
				}
				if err == nil {
					round++
				}
			}
		})
	}
	wg.Wait()
}

// leaderSince returns since when the bucket's leader leads it.
func leaderSince(t *testing.T, c *natsconf.Conn, bucket string) time.Time {
	t.Helper()
	for t.Context().Err() == nil {
		s, err := c.JS.Stream(t.Context(), topology.BucketStream(bucket))
		if err != nil {
			continue // it has no leader
		}
		if of := s.CachedInfo().Cluster; of != nil && of.LeaderSince != nil {
			return *of.LeaderSince
		}
	}
	return time.Time{}
}

// writeAndRead writes a number of entries of a bucket concurrently, and reads them as soon as they are
// acknowledged.
func writeAndRead(ctx context.Context, c *natsconf.Conn, bucket string, round, entries int) error {
	acks := make([]jetstream.PubAckFuture, entries)
	for i := range acks {
		ack, err := c.JS.PublishAsync(topology.BucketSubject(bucket, "n."+strconv.Itoa(i)),
			[]byte(strconv.Itoa(round)))
		if err != nil {
			return err
		}
		acks[i] = ack
	}
	var last uint64
	for _, ack := range acks {
		select {
		case a := <-ack.Ok():
			last = a.Sequence
		case err := <-ack.Err():
			return err
		}
	}
	stream, written := topology.BucketStream(bucket), topology.BucketSubject(bucket, "n.*")
	newest, err := c.Newest(ctx, stream, written)
	if err != nil || len(newest) != entries {
		return fmt.Errorf("the newest of each entry are %d, %w", len(newest), err)
	}
	for _, m := range newest {
		if string(m.Data()) != strconv.Itoa(round) {
			return fmt.Errorf("%s is still of round %s", m.Subject(), m.Data())
		}
	}
	msgs, err := c.Range(ctx, stream, written, last-uint64(entries)+1, last)
	if err != nil || len(msgs) != entries {
		return fmt.Errorf("read as %d messages, %w", len(msgs), err)
	}
	return nil
}

func TestPagesEndIfTheNewestIsRemoved(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t)
	all := make([]string, 1100) // more than a page
	for i := range all {
		all[i] = "session.n." + strconv.Itoa(i)
	}
	put(t, c, all...)
	s, err := c.JS.Stream(t.Context(), topology.StreamEvents)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	err = c.Pages(t.Context(), topology.StreamEvents, "session.n.*", 1, math.MaxUint64,
		func(page []jetstream.Msg) error {
			if got = append(got, subjects(page)...); len(got) == len(page) {
				for _, last := range []uint64{1099, 1100} {
					if err := s.DeleteMsg(t.Context(), last); err != nil {
						return err
					}
				}
			}
			return nil
		})
	if natstest.OnCluster() { // a copy that is read from may still hold what the leader has removed
		got = slices.DeleteFunc(got, func(s string) bool { return slices.Contains(all[len(all)-2:], s) })
	}
	if want := all[:len(all)-2]; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%d messages, %v, want %d", len(got), err, len(want))
	}
}

// A reading of many subjects asks the leader for several at once, and for no more than eight: otherwise each
// would take a round trip in turn. The result is complete, and if the leader cannot be asked there is an
// error.
func TestManySubjectsAreRequestedAtOnce(t *testing.T) {
	natstest.NeedsEmbedded(t, "its endpoint; the reading is the same one")
	t.Parallel()
	dir := t.TempDir()
	c, _ := natstest.StartIn(t, dir)
	var days, filters []string
	for i := range 31 {
		days, filters = append(days, fmt.Sprintf("session.d%d.x", i)),
			append(filters, fmt.Sprintf("session.d%d.*", i))
	}
	put(t, c, days...)
	end, err := embedded.ReadEndpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	var held atomic.Pointer[chan struct{}] // what the server answers waits for it to be closed
	g := natstest.NewGate(t, strings.TrimPrefix(end.URL, "nats://"), func() func(bool) bool {
		return func(toServer bool) bool {
			if hold := held.Load(); !toServer && hold != nil {
				<-*hold
			}
			return true
		}
	})
	through, err := natsconf.Connect(t.Context(), natsconf.ConnectOptions{
		URL: "nats://" + g.Addr().String(), User: end.User, Password: end.Password, Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(through.Close)
	// it knows the stream from here on
	if _, err := through.Last(t.Context(), topology.StreamEvents, days[0]); err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 100)
	const after = "test.after"
	for _, subject := range []string{"$JS.API.DIRECT.GET." + topology.StreamEvents + ".>", after} {
		sub, err := c.NC.Subscribe(subject, func(m *nats.Msg) { asked <- m.Subject })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sub.Unsubscribe() })
	}
	if err := c.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { held.Store(nil); close(hold) })
	t.Cleanup(release)
	held.Store(&hold)
	type answer struct {
		msgs []jetstream.Msg
		err  error
	}
	read := make(chan answer, 1)
	go func() {
		msgs, err := through.Newest(t.Context(), topology.StreamEvents, filters...)
		read <- answer{msgs, err}
	}()
	natstest.Await(t, "eight subjects are asked about", func() bool { return len(asked) >= 8 })
	if err := through.NC.Publish(after, nil); err != nil { // after all requests
		t.Fatal(err)
	}
	natstest.Await(t, "what was asked has come", func() bool { return len(asked) >= 9 })
	for range 8 {
		if subject := <-asked; subject == after {
			t.Fatal("fewer than eight questions are under way")
		}
	}
	if subject := <-asked; subject != after {
		t.Error("more than eight questions are under way")
	}
	release()
	got := natstest.Receive(t, "the reading ends", read)
	all := subjects(got.msgs)
	slices.Sort(all)
	slices.Sort(days)
	if got.err != nil || !slices.Equal(all, days) {
		t.Errorf("%d messages, %v", len(got.msgs), got.err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := through.Newest(over, topology.StreamEvents, filters...); !errors.Is(err,
		natsconf.ErrUnavailable) {
		t.Errorf("out of time: %v", err)
	}
}

func subjects(msgs []jetstream.Msg) (all []string) {
	for _, m := range msgs {
		all = append(all, m.Subject())
	}
	return all
}
