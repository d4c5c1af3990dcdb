package records

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions/once"
)

// newWriter returns a writer that writes completions through another.
func newWriter(conn *natsconf.Conn, completions *natsconf.Writer) *Writer {
	return &Writer{Reader: NewReader(conn, secretbox.NewKey(), time.Now, nil, nil), Completions: completions}
}

// The answer to a write was lost, and the write is repeated: the repeat looks like a conflict, and is
// recognized as one's own by its nonce.
func TestRepeatOfOnesOwnWriteIsAWin(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	writer := natstest.Writer(t, conn, topology.StreamCompletions)
	st := newWriter(conn, writer)
	w := Write{
		Writer: writer, Stream: topology.StreamCompletions, Subject: "completion.mine", Data: []byte("mine"),
	}
	if _, err := st.onceAs(t.Context(), w, "nonce-a"); err != nil {
		t.Fatal(err)
	}
	if _, err := st.onceAs(t.Context(), w, "nonce-a"); err != nil {
		t.Errorf("repeat: %v", err)
	}
	if existing, err := st.onceAs(t.Context(), w, "nonce-b"); !errors.Is(err, once.ErrTaken) ||
		string(existing.Data) != "mine" {
		t.Errorf("another's write: %+v, %v", existing, err)
	}
}

// A writer that does not run never answers: the outcome is uncertain, whatever the caller does, until the
// leader was read.
func TestUnansweredWriteIsUncertain(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	idle := natsconf.NewWriter(conn, topology.StreamCompletions)
	st := newWriter(conn, idle)
	w := Write{
		Writer: idle, Stream: topology.StreamCompletions, Subject: "completion.late", Data: []byte("late"),
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := st.onceAs(ctx, w, "nonce"); !errors.Is(err, natsconf.ErrUncertain) {
		t.Errorf("err = %v, want ErrUncertain", err)
	}
	// What was in the mailbox is stored later, as can happen; the repeat finds it.
	natstest.Serve(t, idle)
	if _, err := idle.Publish(t.Context(), &nats.Msg{Subject: "completion.after"}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.onceAs(t.Context(), w, "nonce"); err != nil {
		t.Errorf("repeat after the late write landed: %v", err)
	}
}
