package flow

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"verifyd/edge/network"
	"verifyd/natsconf/secretbox"
)

func newFlow() Flow {
	return Flow{
		About:    strings.Repeat("A", 43),
		Network:  "example",
		Attempt:  network.NewAttempt(),
		IssuedAt: time.Now().UTC(),
	}
}

func mustSeal(tb testing.TB, box *secretbox.Box, f Flow) string {
	tb.Helper()
	value, err := sealFlow(box, f)
	if err != nil {
		tb.Fatal(err)
	}
	return value
}

func TestFlowComesBackWhole(t *testing.T) {
	box := secretbox.NewKey().Box("flow")
	f := newFlow()
	got, err := openFlow(box, tagOf(f.Attempt.State), mustSeal(t, box, f))
	if err != nil || got != f {
		t.Errorf("flow = %+v, %v; want %+v", got, err, f)
	}
}

func TestFlowThatDoesNotOpen(t *testing.T) {
	key := secretbox.NewKey()
	box := key.Box("flow")
	f := newFlow()
	tag := tagOf(f.Attempt.State)
	sealed := func(plain string) string { return encode(box.Seal([]byte(plain), tag)) }
	for name, tc := range map[string]struct{ tag, value string }{
		"another key": {tag, mustSeal(t, secretbox.NewKey().Box("flow"), f)},
		"another use": {tag, mustSeal(t, key.Box("callback-url"), f)},
		"another tag": {tagOf("other"), mustSeal(t, box, f)},
		"padded":      {tag, mustSeal(t, box, f) + "="},
		"another version": {
			tag, sealed(`{"v":2,"session":"` + f.About + `","attempt":{"state":"` + f.Attempt.State + `"}}`),
		},
		"another's state":  {tag, sealed(`{"v":1,"session":"` + f.About + `","attempt":{"state":"x"}}`)},
		"not JSON":         {tag, sealed("x")},
		"empty":            {tag, ""},
		"longer than ever": {tag, strings.Repeat("A", maxFlowBytes+1)},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := openFlow(box, tc.tag, tc.value); !errors.Is(err, errFlow) || got != (Flow{}) {
				t.Errorf("opened: %+v, %v", got, err)
			}
		})
	}
}

// fuzzKey is the master key under which the seeds are sealed that a service wrote.
var fuzzKey = secretbox.Key([]byte("verifyd fuzz seeds, not a secret"))

// A cookie opens only as what was sealed for that very name: one that was changed in any part, or has another
// spelling, is invalid. Those in the testdata were set by a service.
func FuzzOpenFlow(f *testing.F) {
	box := fuzzKey.Box("flow")
	own := newFlow()
	tag := tagOf(own.Attempt.State)
	value := mustSeal(f, box, own)
	f.Add(tag, value, 0, byte(0))
	f.Add(tag, value, 5, byte('\n'))
	f.Add(tag, value[:len(value)-1], 0, byte(1))
	f.Add(tag, encode(box.Seal([]byte(`{"v":1}`), tag)), 3, byte(4))
	f.Add("", "", 0, byte(0))
	f.Add("aaaaaaaaaaaaaaaa", "AQID", 0, byte(0))
	f.Fuzz(func(t *testing.T, tag, value string, at int, by byte) {
		got, err := openFlow(box, tag, value)
		switch {
		case err != nil && (!errors.Is(err, errFlow) || got != Flow{}):
			t.Errorf("err = %v with %+v", err, got)
		case err == nil && (tagOf(got.Attempt.State) != tag || len(value) > maxFlowBytes):
			t.Errorf("opened %q under %q: %+v", value, tag, got)
		case err != nil || by == 0:
			return
		}
		changed := []byte(value)
		changed[uint(at)%uint(len(changed))] ^= by
		other := []byte(tag)
		other[uint(at)%uint(len(other))] ^= by
		longer := value[:uint(at)%uint(len(value))] + string(by) + value[uint(at)%uint(len(value)):]
		for _, c := range [][2]string{{tag, string(changed)}, {string(other), value}, {tag, longer}} {
			if got, err := openFlow(box, c[0], c[1]); err == nil {
				t.Errorf("%q, changed from %q, opens under %q: %+v", c[1], value, c[0], got)
			}
		}
	})
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
