package natsconf_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/virtual"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
)

// muteGate is a gate that can stop carrying data on its connections without closing them, like a server that
// was stopped or cut off. It carries new ones.
type muteGate struct {
	mu   sync.Mutex
	mute chan struct{} // closed: the connections made by then are mute
}

func (g *muteGate) begin() virtual.Pass {
	g.mu.Lock()
	defer g.mu.Unlock()
	mute := g.mute
	return func(bool, []byte) bool {
		select {
		case <-mute:
			return false
		default:
			return true
		}
	}
}

func (g *muteGate) fallSilent() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.mute)
	g.mute = make(chan struct{})
}

// A server that stops answering without closing connections is left within seconds, and a start outlasts
// that, as a waiting read does.
func TestSilentServerIsLeft(t *testing.T) {
	t.Parallel()
	virtual.Bubble(t, silentServerIsLeft)
}

func silentServerIsLeft(t *testing.T) {
	store, g := virtual.NewBroker(t), &muteGate{mute: make(chan struct{})}
	natstest.Ensure(t, store.Connect(t, nil))
	conn := store.Connect(t, g.begin)
	back := conn.Back()
	g.fallSilent()
	opened, asked := make(chan error, 1), make(chan error, 1)
	go func() {
		ctx, cancel := wait.For(t.Context(), natstest.TestTimeout)
		defer cancel()
		_, err := conn.Last(ctx, topology.StreamCompletions, "completion.nobody")
		asked <- err
	}()
	go func() { opened <- storestate.OpenAtBoot(t.Context(), conn) }()
	select {
	case <-back:
	case <-time.After(natstest.TestTimeout):
		t.Fatal("it still waits for a server that says nothing")
	}
	if _, err := conn.Last(t.Context(), topology.StreamCompletions, "completion.nobody"); !errors.Is(err,
		natsconf.ErrNotFound) {
		t.Errorf("over the new connection: %v", err)
	}
	if err := natstest.Receive(t, "a start meanwhile ends", opened); err != nil {
		t.Errorf("a start meanwhile: %v", err)
	}
	if err := natstest.Receive(t, "a read that waits ends", asked); !errors.Is(err,
		natsconf.ErrNotFound) {
		t.Errorf("a read that waits: %v", err)
	}
}

// A temporary error is retried, a permanent one is reported at once.
func TestAtBootTriesAgain(t *testing.T) {
	t.Parallel()
	passing, final := errors.New("no leader yet"), errors.New("another key")
	tries, told := 0, []error(nil)
	err := natsconf.AtBoot(t.Context(), func(context.Context) error {
		tries++
		if tries == 3 {
			return final
		}
		return passing
	}, func(err error) bool { return errors.Is(err, final) }, func(err error) { told = append(told, err) })
	if !errors.Is(err, final) || tries != 3 || len(told) != 1 || !errors.Is(told[0], passing) {
		t.Errorf("after %d tries, of which %v was told: %v", tries, told, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = natsconf.AtBoot(ctx, func(context.Context) error { cancel(); return passing }, func(error) bool {
		return false
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, passing) {
		t.Errorf("at its cancellation: %v, want both that and the last error", err)
	}
	ctx, cancel = context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	err = natsconf.AtBoot(ctx, func(context.Context) error { return passing }, func(error) bool {
		return false
	})
	if !errors.Is(err, natsconf.ErrUnavailable) || !errors.Is(err, passing) {
		t.Errorf("at its deadline: %v, want both that the store is not available and the last error", err)
	}
}
