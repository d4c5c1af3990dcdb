package records

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// Sessions have keys of their own, many on a page; no page goes on for longer than natsconf keeps it, and
// none is used of which nobody knows whether it is stored.
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
	k.making = &newPage{done: make(chan struct{})} // by somebody who is slow
	k.open.next = keysOfPage
	if _, _, err := k.take(ctx); !errors.Is(err, natsconf.ErrUnavailable) {
		t.Errorf("while another makes a page: %v", err)
	}
}
