package limit

import (
	"errors"
	"testing"
)

// A slot counts towards every share and the total, and is free again after its release.
func TestPlaces(t *testing.T) {
	p := NewPlaces(3)
	key, other, tenant := Share{"key_1", 1}, Share{"key_2", 5}, Share{"acct_1", 2}
	release, err := p.Acquire(key, tenant)
	if err != nil {
		t.Fatal(err)
	}
	full := func(want string, shares ...Share) {
		t.Helper()
		_, err := p.Acquire(shares...)
		got := ""
		if share, ok := errors.AsType[*ShareError](err); ok {
			got = share.Of
		} else if !errors.Is(err, ErrNoPlace) {
			t.Fatalf("error %v", err)
		}
		if got != want {
			t.Errorf("%q is full, want %q", got, want)
		}
	}
	full("key_1", key, tenant)
	releaseOther, err := p.Acquire(other, tenant)
	if err != nil {
		t.Fatal(err)
	}
	full("acct_1", other, tenant)
	if _, err := p.Acquire(); err != nil {
		t.Fatal(err)
	}
	full("", Share{"acct_2", 1})
	release()
	releaseOther()
	if len(p.taken) != 0 || p.all != 1 {
		t.Errorf("after the releases %d places are taken, of %v", p.all, p.taken)
	}
	if _, err := p.Acquire(key, tenant); err != nil {
		t.Error(err)
	}
}

// Many who hold places leave the last quarter to those who hold none, and one who may have all gets all.
func TestLastPlacesAreForNewcomers(t *testing.T) {
	p := NewPlaces(8)
	for i := range 6 {
		if _, err := p.Acquire(Share{[]string{"acct_1", "acct_2"}[i%2], 4}); err != nil {
			t.Fatalf("place %d: %v", i, err)
		}
	}
	for _, who := range []string{"acct_1", "acct_2"} {
		if _, err := p.Acquire(Share{who, 4}, Share{"key_of_" + who, 4}); !errors.Is(err, ErrNoPlace) {
			t.Errorf("%s, which holds three of four, gets one of the last: %v", who, err)
		}
	}
	for _, who := range []string{"acct_3", "acct_4"} {
		if _, err := p.Acquire(Share{who, 4}); err != nil {
			t.Errorf("%s, which holds none: %v", who, err)
		}
	}
	if _, err := p.Acquire(Share{"acct_5", 4}); !errors.Is(err, ErrNoPlace) {
		t.Errorf("when all are taken: %v", err)
	}
	whole := NewPlaces(4)
	for i := range 4 {
		if _, err := whole.Acquire(Share{"operators", 4}); err != nil {
			t.Errorf("place %d of one who may have all: %v", i, err)
		}
	}
}
