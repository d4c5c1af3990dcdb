package secretbox_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
)

// changed is a ring under a change of its key, as processes with the one or the other key have it.
type changed struct {
	oldKey, newKey secretbox.Key
	old, fresh     *secretbox.Ring
	during, after  []byte // as it is stored while both keys open it, and then
}

func newChanged(t *testing.T) changed {
	t.Helper()
	c := changed{oldKey: secretbox.NewKey(), newKey: secretbox.NewKey()}
	c.old = c.oldKey.Ring()
	c.during = must[[]byte](t)(c.old.Admit(c.newKey, time.Now()))
	c.fresh = must[*secretbox.Ring](t)(c.newKey.OpenRing(c.during))
	c.after = must[[]byte](t)(c.fresh.Alone(time.Now()))
	return c
}

func opens(t *testing.T, what string, r secretbox.Master, box []byte) {
	t.Helper()
	plain, err := r.Box("use").Open(box, "owner")
	if err != nil || string(plain) != "value" {
		t.Errorf("%s: %q, %v", what, plain, err)
	}
}

func sealed(r secretbox.Master) []byte { return r.Box("use").Seal([]byte("value"), "owner") }

// While a key is changed, processes with the old and the new one open each other's boxes; afterwards the new
// one opens everything, and the old one nothing that is sealed from then on.
func TestProcessesWithEitherKeyWorkTogether(t *testing.T) {
	c := newChanged(t)
	before := sealed(c.oldKey)
	opens(t, "an earlier box, by the ring of an unchanged store", c.oldKey.Ring(), before)
	opens(t, "an earlier box, by the new key", c.fresh, before)
	old := must[*secretbox.Ring](t)(c.oldKey.OpenRing(c.during))
	opens(t, "a box of the new key's process, by the old key", old, sealed(c.fresh))
	opens(t, "the same, by a process that began before", c.old, sealed(c.fresh))
	opens(t, "the same, by an earlier build", c.oldKey, sealed(c.fresh))
	if !c.fresh.Waits() || old.Waits() || old.Newest() || !c.fresh.Newest() || !c.fresh.Changed() {
		t.Error("the ring does not know which key it ends with")
	}

	box := c.fresh.Box("use") // a process derives its boxes once
	c.fresh.See(c.after)
	later := box.Seal([]byte("value"), "owner")
	if c.fresh.Waits() || c.fresh.Seals() != 2 {
		t.Errorf("key %d seals", c.fresh.Seals())
	}
	opens(t, "a later box", must[*secretbox.Ring](t)(c.newKey.OpenRing(c.after)), later)
	opens(t, "an earlier box, afterwards", c.fresh, before)
	if _, err := old.Box("use").Open(later, "owner"); !errors.Is(err, natsconf.ErrNewer) {
		t.Errorf("a later box, by the old key: %v", err)
	}
	if _, err := c.oldKey.Box("use").Open(later, "owner"); !errors.Is(err, secretbox.ErrOpen) {
		t.Errorf("a later box, by an earlier build: %v", err)
	}
	var other *secretbox.OtherKeyError
	if _, err := c.oldKey.OpenRing(c.after); !errors.As(err, &other) ||
		time.Since(other.Changed) > time.Hour {
		t.Errorf("the ring, by the old key: %v", err)
	}
	c.fresh.See(c.during) // shown again, by somebody or by a late message
	if c.fresh.Seals() != 2 {
		t.Error("an earlier key seals again")
	}
}

// Whoever has an earlier key finds no later one in what is stored, at no time.
func TestNoKeyLeadsToALaterOne(t *testing.T) {
	c := newChanged(t)
	for _, stored := range [][]byte{c.during, c.after} {
		for _, k := range []secretbox.Key{c.oldKey, c.newKey} {
			if bytes.Contains(stored, []byte(base64.StdEncoding.EncodeToString(k[:15]))) {
				t.Error("a key is stored in the clear")
			}
		}
	}
	old := must[*secretbox.Ring](t)(c.oldKey.OpenRing(c.during))
	if old.Changed() || fmt.Sprintf("%v %+v %#v", old, old, old) !=
		"seal.Ring(hidden) seal.Ring(hidden) seal.Ring(hidden)" {
		t.Errorf("the old key finds another one, or a ring shows its keys: %v", old)
	}
}

// Names do not change with the key.
func TestHashesAreOfTheFirstKey(t *testing.T) {
	c := newChanged(t)
	c.fresh.See(c.after)
	if c.fresh.Hash("identity").Sum("sailor") != c.oldKey.Hash("identity").Sum("sailor") {
		t.Error("an identity has another name under the new key")
	}
}

// A key is changed again and again: the last one opens all that was ever sealed. A key that was lost before
// anything was sealed under it is replaced.
func TestRingOfManyKeys(t *testing.T) {
	ring := secretbox.NewKey().Ring()
	boxes := [][]byte{sealed(ring)}
	for range 5 {
		lost, next := secretbox.NewKey(), secretbox.NewKey()
		must[[]byte](t)(ring.Admit(lost, time.Now()))
		both := must[[]byte](t)(ring.Admit(next, time.Now()))
		if _, err := lost.OpenRing(both); err == nil {
			t.Fatal("a key that was given up opens the ring")
		}
		alone := must[[]byte](t)(must[*secretbox.Ring](t)(next.OpenRing(both)).Alone(time.Now()))
		ring = must[*secretbox.Ring](t)(next.OpenRing(alone))
		boxes = append(boxes, sealed(ring))
	}
	for i, box := range boxes {
		opens(t, fmt.Sprintf("box %d", i), ring, box)
	}
	for range 300 {
		next := secretbox.NewKey()
		both, err := ring.Admit(next, time.Now())
		if err != nil {
			return
		}
		ring = must[*secretbox.Ring](t)(next.OpenRing(both))
	}
	t.Error("a ring grows beyond what a byte counts")
}

// What is no ring is refused.
func TestDamagedRingIsRefused(t *testing.T) {
	c := newChanged(t)
	for name, stored := range map[string][]byte{
		"empty": nil, "a check": c.oldKey.NewCheck(), "no version": []byte(`{}`),
		"no keys":      []byte(`{"v":1,"opens":[]}`),
		"another key":  bytes.Replace(c.after, []byte(`"seals":1`), []byte(`"seals":2`), 1),
		"a key before": bytes.Replace(c.after, []byte(`"seals":1`), []byte(`"seals":-1`), 1),
	} {
		if _, err := c.newKey.OpenRing(stored); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	if _, err := c.newKey.OpenRing([]byte(`{"v":2}`)); !errors.Is(err, natsconf.ErrNewer) {
		t.Errorf("of a newer build: %v", err)
	}
}

func TestReplaceKeepsBothKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.key")
	old := must[secretbox.Key](t)(secretbox.LoadOrCreate(path))
	next := must[secretbox.Key](t)(secretbox.LoadOrCreate(path + ".new"))
	kept := must[string](t)(secretbox.Replace(path, old, path+".new"))
	if now := must[secretbox.Key](t)(secretbox.Load(path)); now != next {
		t.Error("the old key is still there")
	}
	if now := must[secretbox.Key](t)(secretbox.Load(kept)); now != old {
		t.Error("the old key is not kept")
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Whatever is stored as a ring, it opens for its own key, or not at all; what opens is stored and opened
// again with the same keys.
func FuzzRing(f *testing.F) {
	key := secretbox.Key([]byte("verifyd fuzz seeds, not a secret"))
	for _, r := range []*secretbox.Ring{key.Ring(), secretbox.Key{1}.Ring()} {
		both, err := r.Admit(key, time.Unix(0, 0))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(both)
	}
	f.Add([]byte(`{"v":1,"at":"2026-11-21T12:00:00Z","seals":0,"opens":[""]}`))
	f.Add([]byte(`{"v":2}`))
	f.Fuzz(func(t *testing.T, stored []byte) {
		r, err := key.OpenRing(stored)
		if err != nil {
			return
		}
		box := sealed(r)
		again, err := key.OpenRing(must[[]byte](t)(r.Alone(time.Unix(0, 0))))
		if err != nil || again.Waits() || !again.Newest() {
			t.Fatalf("%s is stored as what does not open: %v", stored, err)
		}
		opens(t, "its box", again, box)
	})
}
