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
