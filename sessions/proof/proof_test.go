package proof_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"verifyd/sessions/proof"
)

func TestLevels(t *testing.T) {
	t.Parallel()
	for i, l := range proof.Levels {
		for j, least := range proof.Levels {
			if l.AtLeast(least) != (i >= j) {
				t.Errorf("%s is at least %s: %t", l, least, l.AtLeast(least))
			}
		}
		if !l.Known() || l.Or("x") != l {
			t.Errorf("%s is not known", l)
		}
	}
	if none := proof.Level(""); !none.AtLeast(proof.Link) || none.AtLeast(proof.Code) || none.Known() {
		t.Error("no level is not that of a link")
	}
	if proof.Level("stronger").AtLeast(proof.Link) {
		t.Error("a level that nobody knows proves something")
	}
}

// Whatever is tried, in any order, the result is a function of the stored state: the right code among the
// first five confirms, and nothing else does.
func TestTries(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	right := []byte("right")
	begun, err := proof.Progress{}.WithIdentity("browser", "example", right, at)
	if err != nil || begun.Step() != proof.StepConfirm || begun.Reached() != proof.Link || begun.Confirmed() {
		t.Fatalf("%+v, %v", begun, err)
	}
	for place := range proof.MaxTries + 2 {
		p := begun
		for n := range proof.MaxTries + 2 {
			digest := []byte{byte(n)}
			if n == place {
				digest = right
			}
			tried := len(p.Tried)
			next, err := p.Try(digest, at)
			if full := tried == proof.MaxTries; errors.Is(err, proof.ErrNoTriesLeft) != full ||
				full && len(next.Tried) != tried {
				t.Fatalf("try %d of a right one at %d: %+v, %v", n, place, next, err)
			}
			again, err := next.Try(digest, at)
			if tried < proof.MaxTries && (err != nil || len(again.Tried) != len(next.Tried)) {
				t.Fatalf("the same again costs a try: %+v, %v", again, err)
			}
			p = next
		}
		if p.Confirmed() != (place < proof.MaxTries) || p.TriesLeft() != 0 {
			t.Errorf("the right one at %d: %+v", place, p)
		}
	}
	if len(begun.Tried) != 0 {
		t.Error("a try changes the progress that it began with")
	}
	if _, err := (proof.Progress{Browser: "b", Platform: "p"}).Try(right, at); !errors.Is(err,
		proof.ErrNothingToConfirm) {
		t.Errorf("before the sign-in: %v", err)
	}
	if (proof.Progress{Tried: [][]byte{nil}}).Confirmed() {
		t.Error("nothing confirms nothing")
	}
}

// The first identity counts, and a platform account only in the browser that proved it.
func TestProgressBelongsToABrowser(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	p := proof.Progress{}.WithPlatform("theirs", "discord", at)
	if p.Step() != proof.StepIdentity || p.Reached() != "" || !p.PlatformIn("theirs") ||
		p.PlatformIn("ours") ||
		p.PlatformIn("") || (proof.Progress{Platform: "discord"}).PlatformIn("") {
		t.Errorf("%+v", p)
	}
	if p = p.WithPlatform("ours", "discord", at); p.PlatformIn("theirs") || !p.PlatformIn("ours") {
		t.Errorf("%+v", p)
	}
	first, err := p.WithIdentity("ours", "example", []byte("x"), at)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := first.WithIdentity("theirs", "other", []byte("y"), at); !errors.Is(err,
		proof.ErrSignedIn) || second.Network != "example" || !bytes.Equal(second.Code, []byte("x")) {
		t.Errorf("%+v, %v", second, err)
	}
}

func TestCodes(t *testing.T) {
	t.Parallel()
	code := proof.NewCode([]byte{31, 32 + 1, 0, 255, 10, 18, 99})
	if code != "Z10ZAJ" {
		t.Errorf("code %q", code)
	}
	for _, s := range []string{"Z10ZAJ", "z10-zaj", " z 1 0 z a j ", "ZIOZAJ", "zlozaj", "z1O-zAj"} {
		if got, ok := proof.ParseCode(s); !ok || got != code {
			t.Errorf("%q is %q, %t", s, got, ok)
		}
	}
	for _, s := range []string{"", "Z10ZA", "Z10ZAJ1", "Z10ZAU", "Z10ZA.", "Z10ZÄJ", "Z10\x00AJ"} {
		if got, ok := proof.ParseCode(s); ok {
			t.Errorf("%q is taken as %q", s, got)
		}
	}
}
