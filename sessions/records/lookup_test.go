package records

import (
	"errors"
	"testing"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
)

// A process that remembers a session's record, but no longer the page of its key, does not take an outcome
// that it cannot open since its user was erased for a missing one.
func TestErasedSessionIsNotPending(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	st := &Writer{
		Reader:      NewReader(conn, secretbox.NewKey(), time.Now, nil, nil),
		Pending:     natsconf.NewWriter(conn, topology.BucketStream(topology.BucketSessions)),
		Completions: natsconf.NewWriter(conn, topology.StreamCompletions),
	}
	natstest.Serve(t, st.Pending)
	natstest.Serve(t, st.Completions)
	s, _, err := st.Create(t.Context(), sessions.Request{Account: "acc_a", PlatformUserID: "u"})
	if err == nil {
		s, err = st.ReadOpen(t.Context(), s.ID)
	}
	if err == nil {
		_, err = st.Complete(t.Context(), s, sessions.Outcome{State: sessions.Canceled})
	}
	if err == nil {
		err = st.DestroyKey(t.Context(), s.SealedUnder)
	}
	if err != nil {
		t.Fatal(err)
	}
	clear(st.keys.pages)
	if o, err := st.ReadOutcome(t.Context(), s.ID); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("it reads %+v, %v", o, err)
	}
	if v, err := st.View(t.Context(), s); !errors.Is(err, ErrErased) {
		t.Errorf("the view of its record is %+v, %v", v, err)
	}
}

// A panic of a read reaches its caller, as if it had read by itself.
func TestBegunReadPanicsWhereItIsAwaited(t *testing.T) {
	t.Parallel()
	wait := Begin(func() (int, error) { panic("a fault") })
	defer func() {
		if p := recover(); p != "a fault" {
			t.Errorf("recovered %v", p)
		}
	}()
	_, _ = wait()
	t.Error("it returned")
}
