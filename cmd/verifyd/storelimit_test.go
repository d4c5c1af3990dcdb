package main

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/demo"
	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
	"verifyd/natsconf/topology"
)

// The store reaches its own limit: new sessions get a clear 503 and /readyz says why, while open ones are
// completed and delivered. When space returns the service continues by itself, with all that was
// acknowledged.
func TestStoreAtItsLimit(t *testing.T) {
	natstest.NeedsEmbedded(t, "the limit of its store")
	prove.Only(t, "disk", "it fills a store of 256 MiB")
	t.Parallel()
	c := newChild(t)
	c.env = append(c.env, "VERIFYD_STORE_LIMIT=256MiB", "VERIFYD_LOG_LEVEL=warn")
	c.start(t)
	key := c.makeKey(t, "Harbor Guild", "--rate-limit", "100000/s")
	w := &walk{c: c, api: api{base: c.base(), key: key}, browser: demo.NewBrowser()}
	w.api.knownSoon(t)
	steps[0].do(t, w) // one is open from before
	long := strings.Repeat("u", 1024)
	body := `{"platform":"` + long + `","platform_user_id":"` + long + `","guild_id":"` + long +
		`","callback_url":"` + w.c.inbox.CallbackURL() + `"}`
	init := func() (status int, answer string) {
		status, _, b := w.api.call(t, http.MethodPost, "/verify/init", body)
		return status, string(b)
	}

	end := must[embedded.Endpoint](t)(embedded.ReadEndpoint(c.dir + "/store"))
	conn := must[*natsconf.Conn](t)(natsconf.Connect(t.Context(), natsconf.ConnectOptions{
		URL: end.URL, User: end.User, Password: end.Password, Log: zerolog.Nop(),
	}))
	defer conn.Close()
	// what is left until new sessions are refused, nine tenths, is filled with sessions
	fillWithEvents(t, conn, 220<<20)

	var acknowledged atomic.Int64
	deadline := time.Now().Add(natstest.TestTimeout)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for {
				status, answer := init()
				if status == http.StatusServiceUnavailable && strings.Contains(answer, "store_full") {
					return
				}
				if status == http.StatusServiceUnavailable && strings.Contains(answer, `"unavailable"`) &&
					time.Now().Before(deadline) {
					// the disk is slower than the service waits; clients that start sessions are asked to
					// retry
					continue
				}
				if status != http.StatusOK || time.Now().After(deadline) {
					t.Errorf("after %d sessions: %d %s", acknowledged.Load(), status, answer)
					return
				}
				acknowledged.Add(1)
			}
		})
	}
	wg.Wait()
	// those that are being verified still arrive here
	natstest.Await(t, "the process is ready at the limit, and says why it takes no sessions", func() bool {
		status, _, why := api{base: "http://" + c.admin}.call(t, http.MethodGet, "/readyz", "")
		return status == http.StatusOK && strings.Contains(string(why), "no new sessions are accepted")
	})
	for _, s := range steps[1:] {
		s.do(t, w)
	}
	if v := w.api.settled(t, w.session.Session); v.Delivery.State != "delivered" || c.inbox.count(v.ID) != 1 {
		t.Errorf("an open session at the limit: %s, delivery %s, %d POSTs", v.State, v.Delivery.State,
			c.inbox.count(v.ID))
	}

	// As when the oldest messages have aged out.
	events, err := conn.JS.Stream(t.Context(), topology.StreamEvents)
	if err == nil {
		err = events.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(natstest.TestTimeout); ; {
		status, answer := init()
		if status == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no recovery after space came back: %d %s", status, answer)
		}
	}
	if v := w.api.read(t, w.session.Session); v.State != "verified" {
		t.Errorf("the session from before is %s", v.State)
	}
	t.Logf("%d sessions fitted", acknowledged.Load())
}

// fillWithEvents stores so many bytes of old events.
func fillWithEvents(t *testing.T, conn *natsconf.Conn, size int) {
	t.Helper()
	event := make([]byte, 256<<10)
	for i := range size / len(event) {
		natstest.Publish(t, conn, "session.filler."+strconv.Itoa(i), event)
	}
}
