package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/transfer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

// pair is a store and a new one to copy it to.
type pair struct{ from, to *natsconf.Conn }

func newPair(t *testing.T) pair {
	t.Helper()
	natstest.NeedsEmbedded(t,
		"what is moved is an embedded store, and the counts are exact; a reading of three servers may "+
			"be behind by the time of a replication")
	return pair{natstest.Start(t), natstest.Start(t)}
}

func assets() []transfer.Asset {
	return transfer.Assets(topology.New(topology.Options{}))
}

// copy copies everything and returns how many messages there were.
func (p pair) copy(t *testing.T) (brought int) {
	t.Helper()
	for _, a := range assets() {
		r, err := transfer.Copy(t.Context(), p.from, p.to, a, nil)
		if err != nil {
			t.Fatal(err)
		}
		brought += r.Filled
	}
	return brought
}

// equal fails the test unless both stores hold the same, and at least a number of messages.
func (p pair) equal(t *testing.T, least uint64) {
	t.Helper()
	var all uint64
	for _, a := range assets() {
		c, err := transfer.Compare(t.Context(), p.from, p.to, a, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !c.Equal() {
			t.Errorf("%s: %d and %d messages, digests %s and %s", c.Stream, c.From.Count, c.To.Count,
				c.From.Digest(), c.To.Digest())
		}
		all += c.From.Count
	}
	if all < least {
		t.Errorf("%d messages compared, want %d at least", all, least)
	}
}

func publish(t *testing.T, c *natsconf.Conn, subject, data string, headers ...string) {
	t.Helper()
	m := &nats.Msg{Subject: subject, Data: []byte(data), Header: nats.Header{}}
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	natstest.Publish(t, c, m.Subject, m.Data, m.Header)
}

func bucket(t *testing.T, c *natsconf.Conn, name string) jetstream.KeyValue {
	t.Helper()
	kv, err := c.JS.KeyValue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// purged is the headers of a marker that removes what stands before it under its subject.
var purged = []string{"KV-Operation", "PURGE"}

// fill writes something of every kind.
func fill(t *testing.T, c *natsconf.Conn, round int) {
	t.Helper()
	for i := range 40 {
		publish(t, c, fmt.Sprintf("completion.s%d_%d", round, i), "outcome", "Verifyd-Nonce", "n",
			jetstream.ExpectedLastSubjSeqHeader, "0")
		publish(t, c, fmt.Sprintf("claim.s%d_%d.1", round, i), "claim", jetstream.ExpectedLastSubjSeqHeader,
			"0")
		publish(t, c, fmt.Sprintf("session.sign_in.s%d_%d", round, i%3), "event")
		publish(t, c, fmt.Sprintf("audit.acc_a.%d", 40*round+i+1), "record",
			jetstream.ExpectedLastSubjSeqHeader, "0")
	}
	publish(t, c, "usage.acc_a.203001", "", "Nats-Incr", "+7")
	publish(t, c, "stat.acc_a.20300101.live_started", "", "Nats-Incr", fmt.Sprint("+", 3*round+1))
	publish(t, c, topology.BucketSubject(topology.BucketIdentities, "hash"), "hold", jetstream.MsgTTLHeader,
		"1h0m0s")
	for _, key := range []string{"acc_a", "acc_b"} {
		publish(t, c, topology.BucketSubject(topology.BucketAccounts, key), fmt.Sprint("account ", round))
	}
	login := topology.BucketSubject(topology.BucketLogins, "session.a")
	publish(t, c, login, "login")
	publish(t, c, login, "", purged...)
}

// Whatever is written is copied, once; a repeat copies only what is new, and both sides hold the same.
func TestCopyCanBeRepeated(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	fill(t, p.from, 0)
	first := p.copy(t)
	p.equal(t, 160)
	if n := p.copy(t); n != 0 {
		t.Errorf("a second run brings %d messages of %d again", n, first)
	}
	fill(t, p.from, 1)
	if n := p.copy(t); n < 160 || n > first {
		t.Errorf("a run after more was written brings %d messages, the first one %d", n, first)
	}
	p.equal(t, 320)
	if _, err := bucket(t, p.to, topology.BucketLogins).
		Get(t.Context(), "session.a"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("a login that was ended is there: %v", err)
	}
	m, err := p.to.Last(t.Context(), topology.StreamUsage, "usage.acc_a.203001")
	if err != nil || string(m.Data) != `{"val":"14"}` {
		t.Errorf("the counter is %s, %v", m.Data, err)
	}
	publish(t, p.to, "usage.acc_a.203001", "", "Nats-Incr", "+1") // it goes on counting
}

// A copied message keeps its time and its expiry, also over two moves.
func TestCopyKeepsLives(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	before := time.Now()
	aged := nats.Header{} // it was copied to the first store, too
	natsconf.Origin{Sequence: 7, Stored: before.Add(-time.Hour), Until: before.Add(70 * time.Hour)}.Put(aged)
	natstest.Publish(t, p.from, "completion.aged", []byte("outcome"), aged)
	publish(t, p.from, "completion.old", "outcome")
	subject := topology.BucketSubject(topology.BucketIdentities, "hash")
	publish(t, p.from, subject, "hold", jetstream.MsgTTLHeader, "1h0m0s")
	short := nats.Header{}
	natsconf.Origin{Sequence: 1, Stored: before, Until: before.Add(3 * time.Second)}.Put(short)
	short.Set(jetstream.MsgTTLHeader, "1h0m0s") // the origin counts, not the time left here
	natstest.Publish(t, p.from, "session.sign_in.short", []byte("event"), short)
	p.copy(t)
	third := pair{p.to, natstest.Start(t)}
	third.copy(t)
	for _, c := range []*natsconf.Conn{p.to, third.to} {
		m, err := c.Last(t.Context(), topology.BucketStream(topology.BucketIdentities), subject)
		if err != nil {
			t.Fatal(err)
		}
		o, ok := natsconf.OriginOf(m.Header)
		left, err := time.ParseDuration(m.Header.Get(jetstream.MsgTTLHeader))
		if !ok || err != nil || left > time.Hour || left < time.Hour-time.Minute ||
			o.Until.Sub(o.Stored) != time.Hour {
			t.Errorf("a hold of an hour: %v %v %v", o, left, err)
		}
		if at := natsconf.StoredAt(m.Header, m.Time); at.Before(before.Add(-time.Second)) ||
			at.After(m.Time) {
			t.Errorf("it was stored at %s, brought at %s", at, m.Time)
		}
		if m, err = c.Last(t.Context(), topology.StreamCompletions, "completion.old"); err != nil {
			t.Fatal(err)
		}
		if o, _ := natsconf.OriginOf(m.Header); o.Until.Sub(o.Stored) != topology.DefaultKeepResults {
			t.Errorf("an outcome may be read from %s until %s", o.Stored, o.Until)
		}
		// The list of an account's sessions by time looks for sequences by it.
		if seq, err := c.SequenceAt(t.Context(), topology.StreamCompletions,
			before.Add(-time.Minute)); err != nil || seq != 2 {
			t.Errorf("the first message since a minute ago is %d, %v", seq, err)
		}
		gone(t, c, topology.StreamEvents, "session.sign_in.short")
	}
}

// No fact leaves a store before its outcome.
func TestFactsStayAsLongAsTheirOutcome(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	facts := []string{"claim.a.1", "result.a.1", "resend.a.2", "claim.a.2"}
	publish(t, p.from, "completion.a", "outcome")
	for _, subject := range facts {
		publish(t, p.from, subject, "fact")
	}
	p.copy(t)
	third := pair{p.to, natstest.Start(t)}
	third.copy(t)
	for _, c := range []*natsconf.Conn{p.to, third.to} {
		leaves := func(subject string) time.Time {
			t.Helper()
			m, err := c.Last(t.Context(), topology.StreamCompletions, subject)
			if err != nil {
				t.Fatal(err)
			}
			until, err := c.KeptUntil(t.Context(), topology.StreamCompletions, m)
			if err != nil {
				t.Fatal(err)
			}
			return until
		}
		outcome := leaves("completion.a")
		for _, subject := range facts {
			if at := leaves(subject); at.Before(outcome) {
				t.Errorf("%s leaves at %s, its outcome at %s", subject, at, outcome)
			}
		}
	}
}

// A store that an older build made keeps five revisions, and removed entries by roll-ups: the copy has what
// was valid, and nothing of what was removed.
func TestCopyOfAnOlderStore(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	natstest.Outdate(t, p.from)
	account := topology.BucketSubject(topology.BucketAccounts, "acc_deleted")
	for range 700 { // more than a page
		publish(t, p.from, topology.BucketSubject(topology.BucketAccounts, "acc_busy"), "account")
	}
	publish(t, p.from, account, "members")
	publish(t, p.from, account, "deleted", jetstream.MsgRollup, jetstream.MsgRollupSubject)
	publish(t, p.from, "completion.short", "outcome", jetstream.MsgTTLHeader, "1h0m0s")
	fill(t, p.from, 0)
	p.copy(t)
	p.equal(t, 161)
	m, err := p.to.Last(t.Context(), topology.BucketStream(topology.BucketAccounts), account)
	if err != nil || string(m.Data) != "deleted" || m.Header.Get(jetstream.MsgRollup) != "" {
		t.Errorf("the deleted account is %q %v, %v", m.Data, m.Header, err)
	}
}

// Messages before one that has expired are copied anyway.
func TestCopyWithoutTheNewestMessage(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	publish(t, p.from, "session.sign_in.old", "event")
	publish(t, p.from, "session.sign_in.short", "event", jetstream.MsgTTLHeader, "1s")
	gone(t, p.from, topology.StreamEvents, "session.sign_in.short")
	p.copy(t)
	if _, err := p.to.Last(t.Context(), topology.StreamEvents, "session.sign_in.old"); err != nil {
		t.Error(err)
	}
}

// gone waits until a message has left the store by its age.
func gone(t *testing.T, c *natsconf.Conn, stream, subject string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := c.Last(ctx, stream, subject)
		if errors.Is(err, natsconf.ErrNotFound) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s is kept beyond the end of its life: %v", subject, err)
		}
	}
}

// If the new store no longer shows how far it was filled, existing messages are compared, and never stored
// twice.
func TestCopyWithoutAPlaceToGoOnFrom(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	fill(t, p.from, 0)
	p.copy(t)
	publish(t, p.to, "claim.s0_0.2", "somebody else's") // it has no origin
	p.copy(t)
	c, err := transfer.Compare(t.Context(), p.from, p.to, assets()[0], nil)
	if err != nil || c.To.Count != c.From.Count+1 {
		t.Errorf("%d and %d facts, %v", c.From.Count, c.To.Count, err)
	}
}

// A store that holds something else on a write-once subject is not filled up around it.
func TestCopyRefusesADifference(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	fill(t, p.from, 0)
	publish(t, p.to, "completion.s0_20", "another outcome")
	if _, err := transfer.Copy(t.Context(), p.from, p.to, assets()[0], nil); !errors.Is(err,
		transfer.ErrDiffers) || !strings.Contains(err.Error(), "completion.s0_20") {
		t.Errorf("copy: %v", err)
	}
}

// A sealed stream accepts nothing any more, and cannot be unsealed.
func TestSealIsForGood(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	fill(t, p.from, 0)
	names := transfer.Sealable(assets())
	for range 2 { // a repeat is harmless
		if err := storestate.Seal(t.Context(), p.from, names...); err != nil {
			t.Fatal(err)
		}
	}
	for _, subject := range []string{
		"completion.late", "claim.s0_0.2", "result.s0_0.1", "session.sign_in.s0_0", "audit.acc_a.999",
		topology.BucketSubject(topology.BucketSessions, "acc_a.late"),
		topology.BucketSubject(topology.BucketAccounts, "acc_a"),
	} {
		if _, err := p.from.JS.Publish(t.Context(), subject, []byte("late")); err == nil {
			t.Errorf("%s takes a message", subject)
		}
	}
	if err := p.from.PublishBatch(t.Context(), topology.StreamCompletions,
		&nats.Msg{Subject: "completion.late"}, &nats.Msg{Subject: "claim.late.1"}); err == nil {
		t.Error("a sealed stream takes a batch")
	}
	s, err := p.from.JS.Stream(t.Context(), topology.StreamCompletions)
	if err != nil {
		t.Fatal(err)
	}
	config := s.CachedInfo().Config
	config.Sealed = false
	if _, err := p.from.JS.UpdateStream(t.Context(), config); err == nil {
		t.Error("a sealed stream was opened again")
	}
	p.copy(t)
	p.equal(t, 160)
}

// The expiry of a message follows from the store that it is read from, not from this command's settings: an
// operator's shell does not have the service's settings.
func TestLivesAreTheStores(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	o := natstest.Options(p.from)
	o.KeepResults = 30 * 24 * time.Hour
	long := provision.Ensurer{Conn: p.from, Topology: topology.New(o), Update: true}
	if err := long.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	publish(t, p.from, "completion.kept", "outcome")
	p.copy(t)
	m, err := p.to.Last(t.Context(), topology.StreamCompletions, "completion.kept")
	if err != nil {
		t.Fatal(err)
	}
	if origin, ok := natsconf.OriginOf(m.Header); !ok || origin.Until.Sub(origin.Stored) != 30*24*time.Hour {
		t.Errorf("an outcome that is kept for 30 days: %+v", origin)
	}
}

// Every stream of the topology is copied, except those that only hold hints.
func TestEverythingIsCarried(t *testing.T) {
	hints := map[string]bool{topology.StreamRetries: true}
	carried := map[string]bool{}
	for _, a := range assets() {
		carried[a.Stream] = true
	}
	for _, s := range topology.New(topology.Options{}).Streams {
		if carried[s.Name] == hints[s.Name] {
			t.Errorf("%s: carried %t; the order of carry names every stream that holds more than hints",
				s.Name, carried[s.Name])
		}
	}
}

// A message that a consumer of another stream made the server send into a stream keeps its own subject there.
// It is not copied: stored again it would land in the stream that it came from. It also does not keep
// anything else from being copied.
func TestWhatIsOnAnothersSubjectStays(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	publish(t, p.from, "$KV.keys.planted", "planted")
	consumer, err := p.from.JS.CreateConsumer(t.Context(), topology.BucketStream(topology.BucketKeys),
		jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	if err != nil {
		t.Fatal(err)
	}
	next := "$JS.API.CONSUMER.MSG.NEXT." + topology.BucketStream(topology.BucketKeys) + "." +
		consumer.CachedInfo().Name
	if err := p.from.NC.PublishRequest(next, "claim.s0_0.9", []byte("1")); err != nil {
		t.Fatal(err)
	}
	planted := func() bool {
		_, err := p.from.Last(t.Context(), topology.StreamCompletions, "$KV.keys.planted")
		if err != nil && !errors.Is(err, natsconf.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	for tick := time.Tick(time.Millisecond); !planted(); {
		select {
		case <-tick:
		case <-t.Context().Done():
			t.Fatal("the server has sent nothing there")
		}
	}
	fill(t, p.from, 0)
	p.copy(t)
	p.equal(t, 10)
	if _, err := p.to.Last(t.Context(), topology.StreamCompletions, "$KV.keys.planted"); !errors.Is(err,
		natsconf.ErrNotFound) {
		t.Errorf("it was brought: %v", err)
	}
}

// A message that is replaced in the store is destroyed in a copy of it too, with the next run, also if a run
// was interrupted after it; a restore of what was read in between does the same. So a destroyed key opens
// nothing there, either.
func TestWhatIsReplacedIsDestroyedInTheCopy(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	const stream, page = topology.StreamSessionKeys, "session-keys.a"
	only := func(when, want string) {
		t.Helper()
		var held []string
		_, last, err := p.to.Bounds(t.Context(), stream)
		if err == nil {
			err = p.to.Pages(t.Context(), stream, page, 1, last, func(msgs []jetstream.Msg) error {
				for _, m := range msgs {
					held = append(held, string(m.Data()))
				}
				return nil
			})
		}
		if err != nil || len(held) != 1 || held[0] != want {
			t.Errorf("%s the copy holds %q, %v", when, held, err)
		}
	}
	replace := func(data string) {
		t.Helper()
		m, err := p.from.Last(t.Context(), stream, page)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.from.Replace(t.Context(), stream, &nats.Msg{Subject: page, Data: []byte(data)},
			m.Sequence); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, p.from, page, "first")
	publish(t, p.from, "session-keys.b", "another page")
	p.copy(t)
	only("at first", "first")
	replace("second")
	publish(t, p.from, "session-keys.c", "a later page")
	p.copy(t)
	only("after a key was destroyed", "second")
	p.equal(t, 3)
	publish(t, p.from, page, "third, whose predecessor is not destroyed yet")
	p.copy(t)
	replace("fourth")
	p.copy(t)
	only("after one was cut off", "fourth")
	p.equal(t, 3)
}

// A command on a machine whose clock is days ahead brings what has not expired, with the life that is left.
func TestCopyOnAWrongClock(t *testing.T) {
	t.Parallel()
	wrong := func() *natsconf.Conn {
		dir := t.TempDir()
		natstest.StartIn(t, dir)
		c := natstest.ConnectTo(t, natstest.URL(t, dir), func(o *natsconf.ConnectOptions) {
			o.Now = func() time.Time { return time.Now().Add(8 * 24 * time.Hour) }
		})
		if err := c.Clock.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		return c
	}
	p := pair{wrong(), wrong()}
	subject := topology.BucketSubject(topology.BucketIdentities, "hash")
	publish(t, p.from, subject, "hold", jetstream.MsgTTLHeader, "1h0m0s")
	publish(t, p.from, "completion.s", "outcome")
	p.copy(t)
	p.equal(t, 2)
	m, err := p.to.Last(t.Context(), topology.BucketStream(topology.BucketIdentities), subject)
	if err != nil {
		t.Fatal(err)
	}
	left, err := time.ParseDuration(m.Header.Get(jetstream.MsgTTLHeader))
	if err != nil || left < 50*time.Minute {
		t.Errorf("it lives for %s, %v", left, err)
	}
}
