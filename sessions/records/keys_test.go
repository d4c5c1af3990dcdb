package records

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// Sessions have keys of their own, many on a page; no page is used for longer than natsconf keeps it, and
// none whose storage is uncertain.
func TestSessionsTakeKeysFromPages(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	now := time.Now()
	k := newSessionKeys(conn, secretbox.NewKey().Box(pageUse), func() time.Time { return now })
	taken := map[secretbox.Key]sessions.KeyRef{}
	pages := map[string]int{}
	take := func() {
		t.Helper()
		ref, key, err := k.take(t.Context())
		if err != nil || !isValid(ref) || key == (secretbox.Key{}) || taken[key] != (sessions.KeyRef{}) {
			t.Fatalf("key %v, taken before %v: %v", ref, taken[key], err)
		}
		taken[key] = ref
		pages[ref.Page]++
	}
	for range keysOfPage + 1 {
		take()
	}
	now = now.Add(pageFor)
	take()
	if len(pages) != 3 {
		t.Errorf("pages %v", pages)
	}
	other := newSessionKeys(conn, k.box, k.now)
	for key, ref := range taken {
		if got, err := other.key(t.Context(), ref); err != nil || got != key {
			t.Fatalf("another process reads key %v: %v", ref, err)
		}
	}
	if _, err := newSessionKeys(conn, secretbox.NewKey().Box(pageUse), k.now).
		key(t.Context(), sessions.KeyRef{Page: k.open.name, Slot: 0}); !errors.Is(err, facts.ErrUnreadable) {
		t.Errorf("another master key: %v", err)
	}
	for i := range maxPages + 10 {
		k.remember(fmt.Sprint(i), &keyPage{})
	}
	if len(k.pages) > maxPages || len(k.oldest) > maxPages || k.pages[k.open.name] == nil {
		t.Errorf("%d pages are remembered, %d names", len(k.pages), len(k.oldest))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k.making = &newPage{done: make(chan struct{})} // by a slow process
	k.open.next = keysOfPage
	if _, _, err := k.take(ctx); !errors.Is(err, natsconf.ErrUnavailable) {
		t.Errorf("while another makes a page: %v", err)
	}
}

// A page that was sent to a server that has vanished is given up for another one, long before the waiting
// callers' time is over: they need it for the next server.
func TestUnansweredPageIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	conn := natstest.ConnectTo(t, natstest.Bare(t, t.TempDir()))
	vanished := make(chan string, 1)
	silent, err := conn.NC.Subscribe(PageSubject(">"), func(m *nats.Msg) { vanished <- m.Subject })
	if err == nil {
		err = conn.NC.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	k := newSessionKeys(conn, secretbox.NewKey().Box(pageUse), time.Now)
	const takers = 3
	taken, fates := make(chan sessions.KeyRef, takers), make(chan error, takers)
	for range takers {
		go func() {
			ctx, cancel := wait.For(t.Context(), 60*natstest.TestTimeout) // a wait for its end is seen
			defer cancel()
			ref, _, err := k.take(ctx)
			taken <- ref
			fates <- err
		}()
	}
	lost := natstest.Receive(t, "a page is sent", vanished)
	if err := silent.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.JS.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: topology.StreamSessionKeys, Subjects: []string{PageSubject(">")},
	}); err != nil {
		t.Fatal(err)
	}
	for range takers {
		ref := natstest.Receive(t, "a caller has a key long before its time is over", taken)
		if err := <-fates; err != nil || PageSubject(ref.Page) == lost {
			t.Errorf("%v of a page that may not be stored: %v", ref, err)
		}
	}
}

// The time of the caller that makes a page may be over before that of others that wait for it: one of them
// makes the next page.
func TestPageOutlastsItsMaker(t *testing.T) {
	t.Parallel()
	conn := natstest.ConnectTo(t, natstest.Bare(t, t.TempDir()))
	k := newSessionKeys(conn, secretbox.NewKey().Box(pageUse), time.Now)
	take := func(within time.Duration) <-chan error {
		taken := make(chan error, 1)
		go func() {
			ctx, cancel := wait.For(t.Context(), within)
			defer cancel()
			_, _, err := k.take(ctx)
			taken <- err
		}()
		return taken
	}
	maker := take(time.Millisecond)
	natstest.Await(t, "it makes a page", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.making != nil
	})
	other := take(pageWithin + natstest.TestTimeout)
	if err := <-maker; !errors.Is(err, natsconf.ErrUnavailable) {
		t.Errorf("without a store: %v", err)
	}
	if _, err := conn.JS.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: topology.StreamSessionKeys, Subjects: []string{PageSubject(">")},
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-other; err != nil {
		t.Errorf("with time left: %v", err)
	}
}
