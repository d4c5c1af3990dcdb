package provision_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
)

// The retention is shortened only after a check of what is stored; lengthening it needs no check.
func TestShorteningNeedsACheck(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	kept := func() time.Duration {
		t.Helper()
		d, err := conn.KeptFor(t.Context(), topology.StreamCompletions)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	before := kept()
	no := errors.New("something waits")
	ensure := func(keep time.Duration, answer error) (asked []string, err error) {
		o := natstest.Options(conn)
		o.KeepResults = keep
		e := provision.Ensurer{Conn: conn, Update: true, Topology: topology.New(o)}
		e.Shorten = func(_ context.Context, stream string, to time.Duration) error {
			asked = append(asked, stream)
			want := keep
			if stream == topology.StreamSessionKeys {
				want += 2 * time.Hour // a page is filled before the sessions whose keys it has
			}
			if to != want {
				t.Errorf("%s: asked for %s, want %s", stream, to, want)
			}
			return answer
		}
		return asked, e.EnsureAtBoot(t.Context())
	}
	asked, err := ensure(2*time.Hour, no)
	if short, ok := errors.AsType[*provision.ShortenError](err); !ok || !errors.Is(err, no) ||
		short.Asset == "" || len(asked) != 1 {
		t.Errorf("asked of %q, %v", asked, err)
	}
	if kept() != before {
		t.Errorf("kept for %s, it was %s", kept(), before)
	}
	if _, err := ensure(2*time.Hour, nil); err != nil || kept() != 2*time.Hour {
		t.Errorf("kept for %s, %v", kept(), err)
	}
	if asked, err := ensure(before, no); err != nil || len(asked) != 0 || kept() != before {
		t.Errorf("longer: asked of %q, kept for %s, %v", asked, kept(), err)
	}
}
