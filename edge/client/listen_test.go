package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"verifyd/edge/client"
)

// lines writes lines separately, and then does what the test says.
func lines(then func(w http.ResponseWriter), all ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for _, line := range all {
			_, _ = io.WriteString(w, line+"\n")
			_ = http.NewResponseController(w).Flush()
		}
		then(w)
	}
}

func done(http.ResponseWriter) {}

const (
	ready     = `{"type":"ready","beat":1}`
	callback1 = `{"type":"callback","id":"EXCHANGE","headers":{"webhook-id":"cb_1"},"body":"{\"verified\":true}"}`
)

func TestListenDeliversAndAnswers(t *testing.T) {
	t.Parallel()
	told := say(204, "", "")
	s, c := serve(t, lines(done, ready, `{"type":"beat"}`, `{"type":"of a later version"}`, callback1,
		`{"type":"bye"}`), say(503, "", ""), told)
	var readied, handled atomic.Int32
	err := c.Listen(t.Context(), func() { readied.Add(1) }, func(ctx context.Context, l client.Listened) {
		if l.Header.Get("Webhook-Id") != "cb_1" || string(l.Body) != `{"verified":true}` {
			t.Errorf("got %+v", l)
		}
		if err := l.Answer(ctx, client.Outcome{Sent: true, Status: 204}); err != nil {
			t.Error(err)
		}
		handled.Add(1)
	})
	if !errors.Is(err, client.ErrListenEnded) || readied.Load() != 1 || handled.Load() != 1 {
		t.Fatalf("%v, %d times ready, %d handled", err, readied.Load(), handled.Load())
	}
	got := s.requests()
	if len(got) != 3 || got[0].line != "POST /listen" {
		t.Fatalf("asked %+v", got)
	}
	for _, answer := range got[1:] { // once more after the 503
		if answer.line != "POST /listen/EXCHANGE" || !strings.Contains(answer.body, `"status":204`) ||
			answer.key != "Bearer "+apiKey {
			t.Errorf("asked %+v", answer)
		}
	}
}

func TestHowListeningEnds(t *testing.T) {
	t.Parallel()
	never := func(context.Context, client.Listened) { t.Error("something was handed over") }
	hang := make(chan struct{})
	defer close(hang) // before the servers are closed, which wait for it
	for name, answer := range map[string]func(http.ResponseWriter){
		"cut":            cut,
		"no more":        lines(done, ready),
		"garbage":        lines(done, ready, "<html>"),
		"silent":         lines(func(http.ResponseWriter) { <-hang }, ready),
		"an endless one": lines(done, ready, strings.Repeat("x", 1<<20)),
	} {
		_, c := serve(t, answer)
		err := c.Listen(t.Context(), func() {}, never)
		if _, ok := errors.AsType[*client.NoAnswer](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
		if name == "silent" && !strings.Contains(err.Error(), "nothing was heard") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, c := serve(t, say(403, "", `{"code":"live_key","detail":"Only test keys."}`))
	if e, ok := errors.AsType[*client.Error](c.Listen(t.Context(), func() {}, never)); !ok ||
		e.Code != client.CodeLiveKey {
		t.Errorf("a live key: %v", e)
	}
	_, c = serve(t, lines(func(http.ResponseWriter) { <-hang }, ready))
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.Listen(ctx, cancel, never); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// hung is a service that accepts a connection and never answers.
type hung struct{}

func (hung) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestListenGivesUpOnAServiceThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := client.New("https://verify.example.com", apiKey, client.WithHTTPClient(&http.Client{
			Transport: hung{},
		}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err = c.Listen(ctx, func() { t.Error("ready") }, func(context.Context, client.Listened) {})
		if _, ok := errors.AsType[*client.NoAnswer](err); !ok ||
			!strings.Contains(err.Error(), "nothing was heard") {
			t.Errorf("after an hour: %v", err)
		}
	})
}
