package devtunnel_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"verifyd/natsconf/devtunnel"
	"verifyd/natsconf/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

const key = "key_abc"

var callback = devtunnel.Callback{Headers: map[string]string{"webhook-id": "cb_1"}, Body: `{"verified":true}`}

func start(t *testing.T) *devtunnel.Relay {
	t.Helper()
	return devtunnel.New(natstest.Start(t))
}

func open(t *testing.T, r *devtunnel.Relay, key string) *devtunnel.Post {
	t.Helper()
	p, err := r.Open(key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func find(t *testing.T, r *devtunnel.Relay) string {
	t.Helper()
	name, err := r.Find(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func TestNoListener(t *testing.T) {
	r := start(t)
	open(t, r, "key_other")
	if _, err := r.Find(t.Context(), key); !errors.Is(err, devtunnel.ErrNoListener) {
		t.Errorf("Find = %v", err)
	}
	p := open(t, r, key)
	name := find(t, r)
	p.Close()
	if _, err := r.Hand(t.Context(), key, name, callback); !errors.Is(err, devtunnel.ErrNoListener) {
		t.Errorf("Hand = %v", err)
	}
	if _, err := r.Find(t.Context(), key); !errors.Is(err, devtunnel.ErrNoListener) {
		t.Errorf("Find = %v", err)
	}
}

func TestHandedOverAndAnswered(t *testing.T) {
	r := start(t)
	p := open(t, r, key)
	other := open(t, r, "key_other")
	want := devtunnel.Answer{Sent: true, Status: 204, Body: "thanks"}
	exchange := make(chan string, 1)
	go func() {
		c, err := p.Read(<-p.Callbacks())
		if err != nil || c.Body != callback.Body || c.Headers["webhook-id"] != "cb_1" {
			t.Errorf("got %+v, %v", c, err)
		}
		exchange <- c.Exchange
		if err := r.Answer(t.Context(), "key_other", c.Exchange,
			devtunnel.Answer{Status: 500}); !errors.Is(err, devtunnel.ErrOver) {
			t.Errorf("another key's answer: %v", err)
		}
		if err := r.Answer(t.Context(), key, c.Exchange, want); err != nil {
			t.Error(err)
		}
	}()
	got, err := r.Hand(t.Context(), key, find(t, r), callback)
	if err != nil || got != want {
		t.Errorf("Hand = %+v, %v", got, err)
	}
	taken := natstest.Receive(t, "a listener takes the callback", exchange)
	if err := r.Answer(t.Context(), key, taken, want); !errors.Is(err, devtunnel.ErrOver) {
		t.Errorf("a second answer: %v", err)
	}
	if len(other.Callbacks()) != 0 {
		t.Error("another key's listener got it")
	}
}

// What an edge has not read when its listener leaves was not sent.
func TestUnreadWasNotSent(t *testing.T) {
	r := start(t)
	p := open(t, r, key)
	name := find(t, r)
	ended := make(chan devtunnel.Answer, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
		defer cancel()
		a, err := r.Hand(ctx, key, name, callback)
		if err != nil {
			t.Error(err)
		}
		ended <- a
	}()
	natstest.Await(t, "the callback is handed over", func() bool { return len(p.Callbacks()) > 0 })
	p.Close()
	if a := natstest.Receive(t, "the callback ends", ended); a.Sent || a.Status != 0 || a.Detail == "" {
		t.Errorf("%+v", a)
	}
}

// Silence proves nothing: it is not ErrNoListener.
func TestSilenceIsNotErrNoListener(t *testing.T) {
	r := start(t)
	open(t, r, key)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := r.Hand(ctx, key, find(t, r), callback)
	if err == nil || errors.Is(err, devtunnel.ErrNoListener) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Hand = %v", err)
	}
}

// A name from a client is never another's subject.
func TestExchangesAreNamesAlone(t *testing.T) {
	r := start(t)
	for _, name := range []string{
		"", "*", ">", "a.b", "ABCDEFGHIJKLMNOPQRSTUVWX.*", "abcdefghijklmnopqrstuvwxyz", "A B",
		"A\r\nPUB x 0\r\n",
	} {
		if err := r.Answer(t.Context(), key, name, devtunnel.Answer{}); !errors.Is(err, devtunnel.ErrOver) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
