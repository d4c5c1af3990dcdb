package embedded_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
)

// open opens a data directory until the test ends; nothing runs on it yet.
func open(t *testing.T, dir string) *embedded.Server {
	t.Helper()
	e, err := embedded.Open(embedded.Options{DataDir: dir, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// A failure of the server before it is none of the one that starts: silence that was seen while the old one
// went away does not stop the new one.
func TestFailureOfTheServerBeforeStopsNothing(t *testing.T) {
	t.Parallel()
	e := open(t, t.TempDir())
	e.Fail(errors.New("of the server before"))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Serve(ctx) }()
	select {
	case <-e.Ready():
	case err := <-ended:
		t.Fatalf("it ended with %v", err)
	case <-time.After(natstest.TestTimeout):
		t.Fatal("it is not ready")
	}
	stop()
	if err := natstest.Receive(t, "it ends", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}
