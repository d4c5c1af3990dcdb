package main

import (
	"errors"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"verifyd/natsconf/natstest"
)

// A log that nobody reads stops nothing, nor does its reader's end; what is dropped is counted. SIGHUP ends
// the process in order.
func TestALogThatNobodyReads(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	c := newChild(t)
	c.stderr = writer
	c.start(t)
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	edge, admin := api{base: c.base()}, api{base: "http://" + c.admin}
	requests := func() {
		for range 500 {
			if status, _, _ := edge.call(t, http.MethodGet, "/nowhere", ""); status != http.StatusNotFound {
				t.Fatalf("a request is answered %d", status)
			}
		}
	}
	natstest.Await(t, "lines are dropped", func() bool {
		requests()
		_, _, metrics := admin.call(t, http.MethodGet, "/metrics", "")
		return strings.Contains(string(metrics), "\nverifyd_log_dropped_lines_total ") &&
			!strings.Contains(string(metrics), "\nverifyd_log_dropped_lines_total 0\n")
	})
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	requests()
	end := syscall.SIGHUP
	if signal.Ignored(end) { // the process inherits that, as under nohup
		end = syscall.SIGTERM
	}
	for range 2 { // a terminal that closes sends two
		if err := c.cmd.Process.Signal(end); err != nil {
			t.Fatal(err)
		}
		if end == syscall.SIGTERM {
			break
		}
	}
	if err := natstest.Receive(t, "the process ends", c.exited); err != nil {
		t.Errorf("SIGHUP: %v", err)
	}
}

// unread is a pipe that is full until it is closed.
type unread chan struct{}

func (u unread) Write(b []byte) (int, error) {
	<-u
	return len(b), nil
}

// The last error of a process does not wait for a reader of it either.
func TestAnErrorThatNobodyReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pipe := make(unread)
		if code := fail(pipe, errors.New("the end")); code != exitFailed {
			t.Errorf("exit code %d", code)
		}
		close(pipe)
	})
}
