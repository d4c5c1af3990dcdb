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

// Whatever a browser sends, it opens only as what was sealed for that very name.
func FuzzOpenFlow(f *testing.F) {
	box := secretbox.NewKey().Box("flow")
	own := newFlow()
	tag := tagOf(own.Attempt.State)
	value := mustSeal(f, box, own)
	f.Add(tag, value)
	f.Add(tag, value[:len(value)-1])
	f.Add(tag, encode(box.Seal([]byte(`{"v":1}`), tag)))
	f.Add("", "")
	f.Add("aaaaaaaaaaaaaaaa", "AQID")
	f.Fuzz(func(t *testing.T, gotTag, gotValue string) {
		got, err := openFlow(box, gotTag, gotValue)
		switch {
		case err == nil && (gotTag != tag || gotValue != value || got != own):
			t.Errorf("opened %q under %q", gotValue, gotTag)
		case err != nil && (gotTag == tag && gotValue == value || got != Flow{}):
			t.Errorf("err = %v with %+v", err, got)
		}
	})
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
