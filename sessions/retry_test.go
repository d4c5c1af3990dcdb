package sessions_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/seal"
	"verifyd/sessions"
)

// A schedule whose time comes while the store is full is forgotten by JetStream, which goes on without it when there is room again. It
// is found to be overdue, and stored anew it comes.
func TestOverdueScheduleComesWhenStoredAnew(t *testing.T) {
	e, err := natsconf.OpenEmbedded(natsconf.EmbeddedOptions{DataDir: t.TempDir(), StoreBytes: 8 << 20, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	stop := natstest.Serve(t, e)
	t.Cleanup(func() { stop(); _ = e.Close() })
	<-e.Ready()
	conn, err := natsconf.Connect(t.Context(), natsconf.ConnectOptions{Embedded: e, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	natstest.Ensure(t, conn)
	st := sessions.NewStore(sessions.Config{Conn: conn, Key: seal.NewKey(), Retries: natstest.Writer(t, conn, natsconf.StreamRetries)})
	r := sessions.Retry{Session: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", Tries: 3, Since: time.Now().UTC(), At: time.Now().Add(2 * time.Second)}
	if err := st.Schedule(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{32 << 10, 10} {
		for i := 0; err == nil; i++ {
			_, err = conn.JS.Publish(t.Context(), fmt.Sprintf("session.s%d.%d", size, i), make([]byte, size))
		}
		err = nil
	}
	late := func() []sessions.Retry {
		overdue, err := st.Overdue(t.Context(), 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return overdue
	}
	for deadline := time.Now().Add(20 * time.Second); len(late()) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the schedule is not overdue")
		}
	}
	events, err := conn.JS.Stream(t.Context(), natsconf.StreamEvents)
	if err == nil {
		err = events.Purge(t.Context())
	}
	if err != nil {
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
	for deadline := time.Now().Add(20 * time.Second); ; {
		_, err := conn.Last(t.Context(), natsconf.StreamRetries, "retry."+string(r.Session))
		if err == nil {
			break
		}
		if !errors.Is(err, natsconf.ErrNotFound) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if overdue := late(); len(overdue) != 0 {
		t.Errorf("still overdue: %+v", overdue)
	}
}
