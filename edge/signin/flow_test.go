package signin

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"verifyd/edge/network"
	"verifyd/natsconf/seal"
	"verifyd/sessions"
)

func newFlow() flow {
	return flow{
		Token:    sessions.Token(strings.Repeat("A", 43)),
		Network:  "example",
		Attempt:  network.NewAttempt(),
		IssuedAt: time.Now().UTC(),
	}
}

func mustSeal(tb testing.TB, box *seal.Box, f flow) string {
	tb.Helper()
	value, err := sealFlow(box, f)
	if err != nil {
		tb.Fatal(err)
	}
	return value
}

func TestFlowComesBackWhole(t *testing.T) {
	box := seal.NewKey().Box(flowUse)
	f := newFlow()
	got, err := openFlow(box, tagOf(f.Attempt.State), mustSeal(t, box, f))
	if err != nil || got != f {
		t.Errorf("flow = %+v, %v; want %+v", got, err, f)
	}
}

func TestFlowThatDoesNotOpen(t *testing.T) {
	key := seal.NewKey()
	box := key.Box(flowUse)
	f := newFlow()
	tag := tagOf(f.Attempt.State)
	sealed := func(plain string) string { return encode(box.Seal([]byte(plain), tag)) }
	badToken := f
	badToken.Token = "short"
	for name, tc := range map[string]struct{ tag, value string }{
		"another key":      {tag, mustSeal(t, seal.NewKey().Box(flowUse), f)},
		"another use":      {tag, mustSeal(t, key.Box("callback-url"), f)},
		"another tag":      {tagOf("other"), mustSeal(t, box, f)},
		"padded":           {tag, mustSeal(t, box, f) + "="},
		"another version":  {tag, sealed(`{"v":2,"session":"` + f.Token.Reveal() + `","attempt":{"state":"` + f.Attempt.State + `"}}`)},
		"another's state":  {tag, sealed(`{"v":1,"session":"` + f.Token.Reveal() + `","attempt":{"state":"x"}}`)},
		"not JSON":         {tag, sealed("x")},
		"no token":         {tag, sealed(`{"v":1,"attempt":{"state":"` + f.Attempt.State + `"}}`)},
		"malformed token":  {tag, mustSeal(t, box, badToken)},
		"empty":            {tag, ""},
		"longer than ever": {tag, strings.Repeat("A", flowMostBytes+1)},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := openFlow(box, tc.tag, tc.value); !errors.Is(err, errFlow) || got != (flow{}) {
				t.Errorf("opened: %+v, %v", got, err)
			}
		})
	}
}

// Whatever a browser sends, it opens only as what was sealed for that very name.
func FuzzOpenFlow(f *testing.F) {
	box := seal.NewKey().Box(flowUse)
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
		case err != nil && (gotTag == tag && gotValue == value || got != flow{}):
			t.Errorf("err = %v with %+v", err, got)
		}
	})
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
