package natsconf_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
)

// put stores messages whose data is their subject.
func put(t *testing.T, c *natsconf.Conn, subjects ...string) {
	t.Helper()
	for _, s := range subjects {
		if _, err := c.JS.Publish(t.Context(), s, []byte(s)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNextWalksOneSubject(t *testing.T) {
	c := natstest.Start(t)
	put(t, c, "session.a.1", "session.a.2", "session.b.1", "session.b.2", "session.c.1")
	var got []string
	for seq := uint64(1); ; {
		m, err := c.Next(t.Context(), natsconf.StreamEvents, "session.*.1", seq)
		if errors.Is(err, natsconf.ErrNotFound) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got, seq = append(got, m.Subject), m.Sequence+1
	}
	if want := []string{"session.a.1", "session.b.1", "session.c.1"}; !reflect.DeepEqual(got, want) {
		t.Errorf("walked %v, want %v", got, want)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Next(canceled, natsconf.StreamEvents, "session.*.1", 1); !errors.Is(err, natsconf.ErrUnavailable) {
		t.Errorf("out of time: %v", err)
	}
}

func TestRangeGivesWhatIsThereAndLeavesNothingBehind(t *testing.T) {
	c := natstest.Start(t)
	if first, last, err := c.Bounds(t.Context(), natsconf.StreamEvents); err != nil || last >= first && last != 0 {
		t.Errorf("an empty stream reaches from %d to %d, %v", first, last, err)
	}
	put(t, c, "session.a.1", "session.b.1", "session.c.1", "session.d.1", "session.e.1")
	first, last, err := c.Bounds(t.Context(), natsconf.StreamEvents)
	if err != nil || first != 1 || last != 5 {
		t.Fatalf("bounds are %d and %d, %v", first, last, err)
	}
	s, err := c.JS.Stream(t.Context(), natsconf.StreamEvents)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteMsg(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		first, last uint64
		want        []string
	}{
		{1, 5, []string{"session.a.1", "session.b.1", "session.d.1", "session.e.1"}},
		{2, 4, []string{"session.b.1", "session.d.1"}},
		{2, 3, []string{"session.b.1"}},
		{3, 3, nil},
		{5, 9, []string{"session.e.1"}},
	} {
		msgs, err := c.Range(t.Context(), natsconf.StreamEvents, ">", r.first, r.last)
		if err != nil || !reflect.DeepEqual(subjects(msgs), r.want) {
			t.Errorf("%d to %d: %v, %v, want %v", r.first, r.last, subjects(msgs), err, r.want)
		}
	}
	for most, want := range map[int]error{3: natsconf.ErrTooMany, 4: nil} {
		if msgs, err := c.RangeOf(t.Context(), natsconf.StreamEvents, ">", 1, 5, most); !errors.Is(err, want) || (err != nil) != (len(msgs) == 0) {
			t.Errorf("at most %d: %v, %v", most, subjects(msgs), err)
		}
	}
	info, err := s.Info(t.Context())
	if err != nil || info.State.Consumers != 0 {
		t.Errorf("%d consumers are left, %v", info.State.Consumers, err)
	}
}

func subjects(msgs []jetstream.Msg) (all []string) {
	for _, m := range msgs {
		all = append(all, m.Subject())
	}
	return all
}
