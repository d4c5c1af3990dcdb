package places

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// takes takes a place, or fails.
func (p *Places) takes(t *testing.T, r Request) (release func()) {
	t.Helper()
	release, err := p.Acquire(r)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	return release
}

// A place counts towards every share and the total, and is free again after its release.
func TestPlaces(t *testing.T) {
	p := New(Pool{Size: 3, Each: 2, Part: 1})
	key, other := Request{Of: "acct_1", Part: "key_1"}, Request{Of: "acct_1", Part: "key_2"}
	release := p.takes(t, key)
	full := func(want string, r Request) {
		t.Helper()
		release, err := p.Acquire(r)
		release() // nothing
		got := ""
		if share, ok := errors.AsType[*ShareError](err); ok {
			got = share.Of
		}
		if got != want || !errors.Is(err, ErrNoPlace) {
			t.Errorf("%q is full (%v), want %q", got, err, want)
		}
	}
	full("key_1", key)
	releaseOther := p.takes(t, other)
	full("acct_1", Request{Of: "acct_1", Part: "key_3"})
	full("acct_1", Request{Of: "acct_3", And: "acct_1"})
	releaseThird := p.takes(t, Request{})
	full("", Request{Of: "acct_2"})
	release()
	releaseOther()
	if len(p.of) != 0 || p.all != 1 {
		t.Errorf("after the releases %d places are taken, of %v", p.all, p.of)
	}
	releaseThird()
	for range 2 { // who acts in their own account counts once
		p.takes(t, Request{Of: "acct_1", And: "acct_1"})
	}
}

// Many who hold places leave the last quarter to those who hold none, and one who may have all gets all.
func TestLastPlacesAreForNewcomers(t *testing.T) {
	p := New(Pool{Size: 8, Each: 4, Part: 4, Last: 2})
	for i := range 6 {
		p.takes(t, Request{Of: []string{"acct_1", "acct_2"}[i%2]})
	}
	for _, who := range []string{"acct_1", "acct_2"} {
		if _, err := p.Acquire(Request{Of: who, Part: "key_of_" + who}); !errors.Is(err, ErrNoPlace) {
			t.Errorf("%s, which holds three of four, gets one of the last: %v", who, err)
		}
	}
	for _, who := range []string{"acct_3", "acct_4"} {
		p.takes(t, Request{Of: who})
	}
	if _, err := p.Acquire(Request{Of: "acct_5"}); !errors.Is(err, ErrNoPlace) {
		t.Errorf("when all are taken: %v", err)
	}
	whole := New(Pool{Size: 4, Each: 4, Last: 1})
	for range 4 {
		whole.takes(t, Request{Of: "operators"})
	}
}

// Whoever takes and releases, in each pool of the table: nobody has more than their share, one who is alone
// has at most half, and a newcomer finds a place while one is free that is not kept.
func TestPoolsKeepTheirBounds(t *testing.T) {
	table := reflect.ValueOf(Pools)
	for i := range table.NumField() {
		pool := table.Field(i).Interface().(Pool)
		t.Run(table.Type().Field(i).Name, func(t *testing.T) {
			if pool.Each*2 > pool.Size || pool.Part > pool.Each || pool.Last+pool.Kept >= pool.Size {
				t.Errorf("%+v", pool)
			}
			if pool.Size == math.MaxInt {
				return
			}
			pool.Aged = 0
			rapid.Check(t, func(t *rapid.T) { checkPool(t, pool) })
		})
	}
}

func checkPool(t *rapid.T, pool Pool) {
	p, held, releases, n := New(pool), map[string]int{}, map[string][]func(){}, 0
	owners := rapid.IntRange(1, 40).Draw(t, "owners")
	for range rapid.IntRange(1, 400).Draw(t, "steps") {
		who := strconv.Itoa(rapid.IntRange(1, owners).Draw(t, "owner"))
		must, free := rapid.Bool().Draw(t, "must"), pool.Size-n
		if !must {
			free -= pool.Kept
		}
		if rapid.IntRange(0, 9).Draw(t, "release") == 0 && held[who] > 0 {
			releases[who][0]()
			releases[who] = releases[who][1:]
			held[who], n = held[who]-1, n-1
			continue
		}
		r := Request{Of: who, Must: must}
		if pool.Each == 0 { // all may have all
			r.Of = ""
		}
		release, err := p.Acquire(r)
		switch own := held[who]; {
		case err == nil && (free <= 0 || pool.Each > 0 && own > 0 && (own >= min(pool.Each, free) ||
			free <= pool.Last)):
			t.Fatalf("one who holds %d gets another, of %d free", own, free)
		case err != nil && own == 0 && free > 0:
			t.Fatalf("a newcomer gets none of %d: %v", free, err)
		case err == nil:
			releases[who] = append(releases[who], release)
			held[who], n = own+1, n+1
		}
	}
	for _, all := range releases {
		for _, release := range all {
			release()
		}
	}
	if p.all != 0 || len(p.of) != 0 {
		t.Fatalf("%d are left, of %v", p.all, p.of)
	}
}

// Those who wait get a place in the order in which they came; who may have none yet keeps nobody behind
// waiting, and who leaves takes none.
func TestWhoWaitsIsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Pool{Size: 2, Each: 1})
		var got []string
		releases := map[string]func(){}
		wait := func(ctx context.Context, name, of string) {
			go func() {
				release, err := p.Wait(ctx, Request{Of: of})
				if err != nil {
					name, release = name+" left", func() {}
				}
				got, releases[name] = append(got, name), release
			}()
			synctest.Wait()
		}
		want := func(names ...string) {
			t.Helper()
			if synctest.Wait(); !slices.Equal(got, names) {
				t.Fatalf("%v, want %v", got, names)
			}
			got = nil
		}
		ctx, leave := context.WithCancel(t.Context())
		wait(t.Context(), "ada 1", "ada")
		wait(t.Context(), "ada 2", "ada")
		wait(ctx, "ada 3", "ada")
		wait(t.Context(), "ada 4", "ada")
		wait(t.Context(), "bob 1", "bob")
		wait(t.Context(), "eve 1", "eve")
		want("ada 1", "bob 1")
		releases["bob 1"]()
		want("eve 1")
		leave()
		want("ada 3 left")
		releases["ada 1"]()
		want("ada 2")
		releases["eve 1"]()
		want()
		releases["ada 2"]()
		want("ada 4")
		releases["ada 4"]()
		if p.all != 0 || len(p.of) != 0 || len(p.queue) != 0 {
			t.Errorf("%d are left, of %v; %d wait", p.all, p.of, len(p.queue))
		}
	})
}
