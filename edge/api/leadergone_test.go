package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/edge/limit"
	"verifyd/edge/places"
	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions/lists"
)

// sends is service.do for a client that may break off. It waits longer than the service, which gives up by
// its own clock and says so.
func (s *service) sends(ctx context.Context, method, path, body string, header ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, natstest.TestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.server.Addr()+path,
		strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+acmeKey)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}, err
}

func bodyOf(user string) string {
	return fmt.Sprintf(`{"platform":"chat","platform_user_id":%q,"callback_url":%q}`, user, callback)
}

// The server that leads the sessions and that this edge is connected to vanishes silently, or is killed,
// while sessions are started and read: each request waits and is answered, none starts two sessions, and a
// client that disconnects and repeats its key gets the one session.
func TestRequestsOutlastTheirLeader(t *testing.T) {
	for what, vanish := range map[string]func(*testing.T, *natstest.Trio, string){
		"without a word": func(t *testing.T, trio *natstest.Trio, name string) { trio.Freeze(t, name) },
		"killed":         func(_ *testing.T, trio *natstest.Trio, name string) { trio.Kill(name) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			outlast(t, vanish)
		})
	}
}

func outlast(t *testing.T, vanish func(*testing.T, *natstest.Trio, string)) {
	t.Helper()
	const starts, every, before = 240, 25 * time.Millisecond, 40
	trio := natstest.StartTrio(t)
	first := trio.Connect(t)
	natstest.Ensure(t, first)
	records := topology.BucketStream(topology.BucketSessions)
	conn := trio.Connect(t, natstest.Leader(t, first, records))
	quota := limit.NewQuota(natstest.Writer(t, conn, topology.StreamUsage), standardQuota)
	natstest.Serve(t, quota)
	s := newServiceOn(t, conn, func(c *Config) { c.Quota = quota })
	s.clock.run() // a reservation whose owner broke off ends after 5 s
	read := s.start(t).Session

	var mu sync.Mutex
	took := []time.Duration{}
	note := func(began time.Time, a answer, err error) {
		if err != nil || a.status != http.StatusOK {
			t.Errorf("after %s: %d %s %v", time.Since(began), a.status, a.body, err)
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(began))
	}
	var crowd sync.WaitGroup
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := range starts {
		if i == before {
			vanish(t, trio, natstest.Leader(t, first, records)) // another one may lead on a busy machine
			crowd.Go(func() { s.breaksOff(t) })
		}
		crowd.Go(func() {
			began := time.Now()
			a, err := s.sends(t.Context(), http.MethodPost, pathInit, bodyOf(fmt.Sprint("u", i)))
			note(began, a, err)
		})
		if i%8 == 0 {
			crowd.Go(func() {
				began := time.Now()
				a, err := s.sends(t.Context(), http.MethodGet, "/sessions/"+read, "")
				note(began, a, err)
			})
		}
		<-tick.C
	}
	crowd.Wait()
	slices.Sort(took)
	t.Logf("of %d requests one in a hundred took more than %.1f s, the slowest %.1f s", len(took),
		took[len(took)*99/100].Seconds(), took[len(took)-1].Seconds())
	if slowest := took[len(took)-1]; slowest < time.Second {
		t.Errorf("the slowest took %s: nothing was waited for", slowest)
	}
	const all = starts + 2 // the one that is read, and the one whose client broke off
	natstest.Await(t, "each session is counted once, and what was counted ahead is given back", func() bool {
		return parse[usageDoc](t, s.usage(t, acmeKey, ""), http.StatusOK).Used == all
	})
	page, err := s.store.List(t.Context(), lists.Query{Account: acme.ID, Limit: all + 1})
	if err != nil || len(page.Sessions) != all {
		t.Errorf("%d sessions exist, want %d: %v", len(page.Sessions), all, err)
	}
}

// breaksOff starts a session under a key, disconnects while that waits, and repeats until it is answered.
func (s *service) breaksOff(t *testing.T) {
	ctx, leave := context.WithTimeout(t.Context(), time.Second)
	defer leave()
	send := func(ctx context.Context) (answer, error) {
		return s.sends(ctx, http.MethodPost, pathInit, bodyOf("impatient"), "Idempotency-Key", "order-1")
	}
	if a, err := send(ctx); err == nil {
		t.Errorf("the first was answered: %d %s", a.status, a.body)
	}
	const tries = 15 // three times as many as fit into the reservation's 5 s
	for range tries {
		switch a, err := send(t.Context()); {
		case err == nil && a.status == http.StatusOK:
			return
		case err != nil || a.status != http.StatusConflict:
			t.Errorf("the repeat: %d %s %v", a.status, a.body, err)
			return
		}
		<-time.After(time.Second) // its Retry-After
	}
	t.Error("the repeat was told for too long that the first goes on")
}

// As many requests of one owner as may wait for a store that is down. The next one is refused at once, that
// of another waits, requests that need no store are answered, a client that disconnects frees its slot, and
// the waiting ones take bounded memory.
func TestPlacesOfThoseWhoWait(t *testing.T) {
	_, conn, stop := natstest.StartServer(t, embedded.Options{DataDir: t.TempDir()})
	const most = places.DefaultWaiting / 2
	// they wait until they leave
	s := newServiceOn(t, conn,
		func(c *Config) { c.Store = places.NewWaiting(2*natstest.TestTimeout, 2*most) },
		func(c *web.ServerConfig) { c.WriteTimeout = 2 * natstest.TestTimeout })
	stop()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	before := inUse()
	var crowd sync.WaitGroup
	for i := range most {
		crowd.Go(func() {
			if a, err := s.sends(ctx, http.MethodPost, pathInit, bodyOf(fmt.Sprint("u", i))); err == nil {
				t.Errorf("one that waits was answered: %d %s", a.status, a.body)
			}
		})
	}
	natstest.Await(t, "all places are taken", func() bool { return s.waiting(t) == most })
	each := (inUse() - before) / most
	t.Logf("one that waits takes %d KiB, its client and both ends of its connection included", each>>10)
	if each > 128<<10 {
		t.Errorf("one that waits takes %d KiB", each>>10)
	}
	for _, a := range []answer{s.init(t, goodBody), s.get(t, strings.Repeat("a", 43), acmeKey)} {
		wantProblem(t, a, problem.CodeUnavailable)
		wantRetryAfter(t, a, 2, 2)
	}
	if n := s.waiting(t); n != most {
		t.Errorf("%d of %d still wait after one more was to be refused at once", n, most)
	}
	crowd.Go(func() {
		a, err := s.sends(ctx, http.MethodPost, pathInit, goodBody, "Authorization", "Bearer "+otherKey)
		if err == nil {
			t.Errorf("the start of another account: %d %s", a.status, a.body)
		}
	})
	natstest.Await(t, "another's start waits, too", func() bool { return s.waiting(t) == most+1 })
	for path, want := range map[string]int{pathOpenAPI: http.StatusOK, pathIcon: http.StatusOK} {
		if a := s.do(t, http.MethodGet, path, ""); a.status != want {
			t.Errorf("%s: %d while others wait", path, a.status)
		}
	}
	leave()
	crowd.Wait()
	natstest.Await(t, "the places are free again", func() bool { return s.waiting(t) == 0 })
}

// waiting reads the number of waiting requests from the metrics.
func (s *service) waiting(t *testing.T) int {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "verifyd_store_waiting_requests" {
			return int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	t.Fatal("it is not measured")
	return 0
}

// inUse is how much memory is in use, stacks included.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
