package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/config"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/scrub"
	"verifyd/natsconf/topology"
)

// harmFirstRecord changes the length of the first record in a stream's files, while the service runs. What
// the server has of it in memory goes with the garbage.
func (r *rig) harmFirstRecord(t *testing.T, stream string) {
	t.Helper()
	path := filepath.Join(embedded.StreamFolder(r.Config.Store.DataDir, stream), "msgs", "1.blk")
	b := must[[]byte](t)(os.ReadFile(path))
	b[3] ^= 1 << 6
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
}

// The file of the accounts is damaged under a running service. Until the server meets the damage, the key is
// accepted. From then on the store has failed, everywhere says so, and the key is never called unknown.
func TestDamageUnderARunningService(t *testing.T) {
	natstest.NeedsEmbedded(t, "what its files hold")
	t.Parallel()
	before := boot(t)
	// The last block of a bucket stays in memory, since it is asked for its end all the time.
	for i := range 50 {
		natstest.Publish(t, before.Store.Conn,
			topology.BucketSubject(topology.BucketAccounts, fmt.Sprint("other", i)), make([]byte, 200<<10))
	}
	before.stop()
	r := boot(t, func(c *config.Config) { c.Store.DataDir = before.Config.Store.DataDir })
	start := func() int {
		status, _, _ := r.api().call(t, http.MethodPost, "/verify/init",
			`{"platform":"p","platform_user_id":"u","callback_url":"https://example.com/"}`)
		if status != http.StatusOK && status != http.StatusServiceUnavailable {
			t.Fatalf("a start is answered %d", status)
		}
		return status
	}
	r.harmFirstRecord(t, topology.BucketStream(topology.BucketAccounts))
	natstest.Await(t, "the server meets the damage", func() bool {
		runtime.GC()
		_, _ = r.Store.Conn.Newest(t.Context(), topology.BucketStream(topology.BucketAccounts),
			topology.BucketSubject(topology.BucketAccounts, ">"))
		start()
		return r.Store.Embedded.Failure() != nil
	})
	r.Kill("key mirror") // it reads everything again
	for range 20 {
		if status := start(); status != http.StatusServiceUnavailable {
			t.Errorf("a start on a store that has failed: %d", status)
		}
	}
	const says = "the store has lost what it held"
	natstest.Await(t, "the log says it", func() bool { return strings.Contains(r.log.String(), says) })
	status, _, why := api{base: "http://" + r.Admin}.call(t, http.MethodGet, "/readyz", "")
	if status != http.StatusServiceUnavailable || !strings.Contains(string(why), says) {
		t.Errorf("/readyz: %d %s", status, why)
	}
}

// A reading of the store's records finds damage in a stream that no session needs: /readyz, the metrics, the
// status and an operator event report it, and the service goes on.
func TestScrubIsReported(t *testing.T) {
	natstest.NeedsEmbedded(t, "what its files hold")
	t.Parallel()
	r := boot(t, func(c *config.Config) { c.StoreScrub = time.Hour })
	// A stream's last record may be in the middle of a write, until the witness knows it. So there are two.
	natstest.Publish(t, r.Store.Conn, "notice.a.b", []byte("a notice"))
	natstest.Publish(t, r.Store.Conn, "notice.a.c", []byte("a notice"))
	admin := api{base: "http://" + r.Admin}
	says := func(path, what string) bool {
		_, _, body := admin.call(t, http.MethodGet, path, "")
		return strings.Contains(string(body), what)
	}
	if _, out, _ := r.run(t, "status"); !says("/readyz", "every record intact") ||
		!strings.Contains(out, "every record intact") {
		t.Errorf("before, status: %s", out)
	}
	r.harmFirstRecord(t, topology.StreamNotices)
	s := scrub.New(r.Store.Embedded, time.Hour, zerolog.Nop()) // the service's own begins in an hour
	if err := s.PassOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	for path, what := range map[string]string{
		"/readyz":  "a part of the store that no session needs is damaged",
		"/metrics": "verifyd_store_damaged_records",
	} {
		if !says(path, what) {
			t.Errorf("%s does not have %q", path, what)
		}
	}
	err := r.Alarms.CheckOnce(t.Context())
	if err != nil || !strings.Contains(r.log.String(), "store.damaged") {
		t.Errorf("no operator event, %v", err)
	}
	if _, out, _ := r.run(t, "status"); !strings.Contains(out, "no session needs is damaged") {
		t.Errorf("status: %s", out)
	}
	r.begin(t) // sessions start as before
}
