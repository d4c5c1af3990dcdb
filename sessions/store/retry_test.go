package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions/facts"
	"verifyd/sessions/store"
)

// A schedule that is due while the store is full is forgotten by JetStream, which continues without it when
// there is space again. It is found to be overdue, stored again, and then delivered.
func TestOverdueScheduleFiresWhenStoredAgain(t *testing.T) {
	t.Parallel()
	_, conn, _ := natstest.StartServer(t, embedded.Options{DataDir: t.TempDir(), StoreBytes: 8 << 20})
	st := store.New(store.Config{
		Conn: conn, Key: secretbox.NewKey(), Retries: natstest.Writer(t, conn, topology.StreamRetries),
	})
	empty := func() {
		t.Helper()
		for _, stream := range []string{topology.StreamEvents, topology.StreamRetries} {
			if err := conn.Purge(t.Context(), stream, ">"); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := facts.Retry{Session: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", Tries: 3, Since: time.Now().UTC()}
	// a machine that is too busy to fill the store before that time gets more time
	for ahead := 2 * time.Second; !time.Now().Before(r.At); ahead *= 2 {
		empty()
		r.At = time.Now().Add(ahead)
		if err := st.Schedule(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		fill(t, conn)
	}
	late := func() []facts.Retry {
		overdue, err := st.Overdue(t.Context(), 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return overdue
	}
	natstest.Await(t, "the schedule is overdue", func() bool { return len(late()) > 0 })
	if err := conn.Purge(t.Context(), topology.StreamEvents, ">"); err != nil {
		t.Fatal(err)
	}
	again := late()
	if len(again) != 1 || again[0].Session != r.Session || again[0].Tries != 3 {
		t.Fatalf("overdue: %+v", again)
	}
	again[0].At = time.Now()
	if err := st.Schedule(t.Context(), again[0]); err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "the retry comes", func() bool {
		_, err := conn.Last(t.Context(), topology.StreamRetries, "retry."+string(r.Session))
		if err != nil && !errors.Is(err, natsconf.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	})
	if overdue := late(); len(overdue) != 0 {
		t.Errorf("still overdue: %+v", overdue)
	}
}

// fill stores events until no space is left, not even for ten bytes.
func fill(t *testing.T, conn *natsconf.Conn) {
	t.Helper()
	for _, size := range []int{32 << 10, 10} {
		var err error
		for i := 0; err == nil; i++ {
			_, err = conn.JS.Publish(t.Context(), fmt.Sprintf("session.s%d.%d", size, i), make([]byte, size))
		}
		if _, refused := errors.AsType[*jetstream.APIError](err); !refused {
			t.Fatal(err)
		}
	}
}
