package service

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"verifyd/cmd/verifyd/config"
	"verifyd/edge/account"
	"verifyd/edge/web"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/virtual"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
)

func TestKeysState(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	for name, c := range map[string]struct {
		since   time.Time
		inDoubt bool
		state   string
		err     error
	}{
		"as stored":              {state: "as they are stored now"},
		"in doubt for a moment":  {inDoubt: true, state: "as they are stored now"},
		"in doubt for a while":   {since: ago(5 * time.Second), inDoubt: true, state: "as of 5s ago"},
		"in doubt for too long":  {since: ago(time.Minute), inDoubt: true, err: account.ErrNotReady},
		"no answer for a minute": {since: ago(time.Minute), state: "as of 1m0s ago"},
	} {
		if state, err := keysState(c.since, c.inDoubt, 12*time.Second); state != c.state ||
			!errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v", name, state, err)
		}
	}
}

// While the store answers nothing about its streams, /readyz answers at once, with what is known: the clock
// of the bubble stands still meanwhile. What is known counts for a while, and not before the first answer.
func TestReadinessDoesNotWaitForTheStore(t *testing.T) {
	t.Parallel()
	virtual.Bubble(t, func(t *testing.T) {
		var silent atomic.Bool
		asked := make(chan struct{}, 1)
		broker := virtual.NewBroker(t)
		natstest.Ensure(t, broker.Connect(t, nil))
		conn := broker.Connect(t, func() virtual.Pass {
			return func(toServer bool, data []byte) bool {
				if !toServer || !silent.Load() || !bytes.Contains(data, []byte("$JS.API.STREAM.INFO.")) {
					return true
				}
				select {
				case asked <- struct{}{}:
				default:
				}
				return false
			}
		})
		p := New(config.Config{Dispatcher: true})
		p.Config.Store.Topology = natstest.Options(conn)
		p.Observer = provision.NewObserver(conn, topology.New(p.Config.Store.Topology))
		admin := web.NewAdmin(append(assetChecks(p), web.Check{Name: "streams", Check: p.Observer.Check}),
			prometheus.NewRegistry(), nil)
		expect := func(when string, status int, says string) {
			t.Helper()
			before := time.Now()
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, "http://localhost/readyz", http.NoBody)
			admin.ServeHTTP(w, r)
			if w.Code != status || !strings.Contains(w.Body.String(), says) {
				t.Errorf("%s: %d %s", when, w.Code, w.Body)
			}
			if waited := time.Since(before); waited != 0 {
				t.Errorf("%s: it waited for %s", when, waited)
			}
		}
		expect("before the first answer", http.StatusServiceUnavailable,
			"no leader of a stream has answered yet")
		natstest.Serve(t, p.Observer)
		<-p.Observer.Answered()
		const known = `{"name":"stream COMPLETIONS","ok":true,"advisory":true,"state":"led by`
		expect("after it", http.StatusOK, known)

		silent.Store(true)
		<-asked // from now on answers are awaited that do not come
		expect("while an answer is awaited", http.StatusOK, known)
		lost := time.Now()
		natstest.Await(t, "the look at the streams has ended without an answer", func() bool {
			return p.Observer.Health().Streams[0].Err != nil
		})
		expect("once none came", http.StatusOK, "nobody answers for it")
		natstest.Await(t, "the last answer is too old", func() bool {
			_, err := p.Observer.Check()
			return err != nil
		})
		if after := time.Since(lost); after < 20*time.Second || after > 40*time.Second {
			t.Errorf("it was ready on old answers for %s", after)
		}
		expect("after a while without one", http.StatusServiceUnavailable,
			"no leader of a stream has answered for")

		silent.Store(false)
		natstest.Await(t, "the store answers again", func() bool {
			_, err := p.Observer.Check()
			return err == nil
		})
		expect("again", http.StatusOK, known)
	})
}

// An observer that no longer asks shows nothing as healthy.
func TestOldStateIsNotShown(t *testing.T) {
	t.Parallel()
	virtual.Bubble(t, func(t *testing.T) {
		conn := virtual.NewBroker(t).Connect(t, nil)
		natstest.Ensure(t, conn)
		p := New(config.Config{Dispatcher: true})
		p.Config.Store.Topology = natstest.Options(conn)
		p.Observer = provision.NewObserver(conn, topology.New(p.Config.Store.Topology))
		p.Observer.AskOnce(t.Context())
		failing := func() (names []string) {
			_, all := web.Judge(assetChecks(p))
			for _, f := range all {
				names = append(names, f.Name)
			}
			return names
		}
		if names := failing(); len(names) != 0 {
			t.Errorf("not well at first: %q", names)
		}
		time.Sleep(time.Minute) // of the bubble
		if names := failing(); len(names) != len(assetChecks(p)) {
			t.Errorf("not well after a minute in which nobody asked: %q", names)
		}
	})
}
