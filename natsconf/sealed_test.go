package natsconf_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
)

// What is refused since a store was moved elsewhere is not there later: it is told from a store that is away.
func TestSealedStoreIsDistinguished(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	stream := topology.BucketStream(topology.BucketSessions)
	w := natstest.Writer(t, conn, stream)
	message := func(name string) *nats.Msg {
		return &nats.Msg{Subject: topology.BucketSubject(topology.BucketSessions, name)}
	}
	if _, err := w.Publish(t.Context(), message("a")); err != nil {
		t.Fatal(err)
	}
	if err := storestate.Seal(t.Context(), conn, stream); err != nil {
		t.Fatal(err)
	}
	_, one := w.Publish(t.Context(), message("b"))
	for how, err := range map[string]error{
		"a writer": one, "one message": conn.PublishOne(t.Context(), stream, message("c")),
		"a batch": conn.PublishBatch(t.Context(), stream, message("d"), message("e")),
	} {
		if !storestate.Sealed(err) || !errors.Is(err, natsconf.ErrUnavailable) ||
			errors.Is(err, natsconf.ErrUncertain) {
			t.Errorf("%s: %v", how, err)
		}
	}
	for state, want := range map[storestate.State]bool{
		storestate.StateOpen: false, storestate.StateDraining: false, storestate.StateFilling: false,
		storestate.StateSealing: true, storestate.StateRetired: true,
	} {
		err := error(&storestate.Error{Record: storestate.Record{State: state}})
		if is := storestate.Sealed(err); is != want {
			t.Errorf("a store that is %s is sealed: %t", state, is)
		}
	}
}
