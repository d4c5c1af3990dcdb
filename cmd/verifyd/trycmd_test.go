package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/edge/client"
	"verifyd/natsconf/natstest"
)

// late is a receiver that gets its secret while it runs.
type late struct {
	desk atomic.Pointer[client.Receiver]
}

func (l *late) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if desk := l.desk.Load(); desk != nil {
		desk.ServeHTTP(w, r)
		return
	}
	w.WriteHeader(http.StatusUnauthorized)
}

func (l *late) give(t *testing.T, secret string) {
	t.Helper()
	l.desk.Store(must[*client.Receiver](t)(client.NewReceiver([]string{secret},
		func(context.Context, client.Result) error { return nil }, client.WithTests())))
}

func TestTryCommand(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	receiver := &late{}
	receiver.give(t, secret)
	s := httptest.NewServer(receiver)
	t.Cleanup(s.Close)

	t.Setenv("VERIFYD_TRY_SECRET", secret)
	code, out, errOut := verifyd(t, "try", s.URL, "--allow-private")
	if code != 0 || errOut != "" || !strings.Contains(out, "No check of 16 failed.") {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
	t.Setenv("VERIFYD_TRY_SECRET", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	code, out, _ = verifyd(t, "try", s.URL, "--allow-private", "--json")
	var doc struct{ Failed int }
	if err := json.Unmarshal([]byte(out), &doc); code != exitFailed || err != nil || doc.Failed == 0 {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	for _, args := range [][]string{
		{s.URL}, {"nothing", "--allow-private"}, {s.URL, "--allow-private", "--secret", "whsec_%"},
		{s.URL, "--allow-private", "--timeout", "1h"}, {s.URL, "--ca-file", "nowhere"},
	} {
		if code, out, errOut := verifyd(t, append([]string{"try"}, args...)...); code != exitUsage ||
			out != "" || errOut == "" {
			t.Errorf("%v: exit %d\n%s%s", args, code, out, errOut)
		}
	}
}

// Without a secret one is generated and printed, and the checks begin once the receiver has it.
func TestTryWaitsForItsSecret(t *testing.T) {
	t.Parallel()
	receiver := &late{}
	s := httptest.NewServer(receiver)
	t.Cleanup(s.Close)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errOut buffer
	seen := make(chan string, 1)
	go func() {
		defer close(seen)
		if _, rest, ok := strings.Cut(awaitText(ctx, &errOut, "Not yet"), "\n    whsec_"); ok {
			made, _, _ := strings.Cut(rest, "\n")
			seen <- "whsec_" + made
		}
	}()
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"try", s.URL, "--allow-private"}, &out, &errOut) }()
	receiver.give(t, <-seen)
	if code := <-ended; code != 0 || !strings.Contains(out.String(), "No check of 16 failed.") {
		t.Errorf("exit %d\n%s%s", code, out.String(), errOut.String())
	}
}

// awaitText waits until the output contains a text, and returns the output.
func awaitText(ctx context.Context, b *buffer, text string) string {
	ctx, cancel := context.WithTimeout(ctx, natstest.TestTimeout)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(b.String(), text) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return b.String()
		}
	}
	return b.String()
}
