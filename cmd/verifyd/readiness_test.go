package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
	"verifyd/cmd/verifyd/store"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/transfer"
)

// /readyz reports the state of everything that the service depends on. What is the same for every process is
// reported, and does not make the process unready.
func TestReadinessReportsEachDependency(t *testing.T) {
	t.Parallel()
	r := boot(t)
	type check struct {
		Name, State, Reason string
		OK, Advisory        bool
	}
	look := func() (status int, checks []check) {
		t.Helper()
		status, _, body := api{base: "http://" + r.Admin}.call(t, http.MethodGet, "/readyz", "")
		var doc struct{ Checks []check }
		if err := json.Unmarshal(body, &doc); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		return status, doc.Checks
	}
	copies := 1
	if natstest.OnCluster() {
		copies = natstest.Replicas
	}
	for name, state := range map[string]string{
		"jetstream": "NATS 2.", "keys": "as they are stored", "writers": "", "standing": "", "deliveries": "",
		"store": "MiB used", "public server": "127.0.0.1:",
		"clock": "off the store's", "topology": "as it should be",
		"stream COMPLETIONS": fmt.Sprintf("%d of %[1]d copies current", copies),
		"stream KV_sessions": "led by", "consumer dispatcher": "0 waiting", "network dev": "",
	} {
		natstest.Await(t, name+" is well and says "+state, func() bool { // one check may come at a bad moment
			status, checks := look()
			i := slices.IndexFunc(checks, func(c check) bool { return c.Name == name })
			return status == http.StatusOK && i >= 0 && checks[i].OK &&
				strings.Contains(checks[i].State, state)
		})
	}

	r = boot(t, func(c *config.Config) { c.Dispatcher = false })
	if err := r.Store.Conn.JS.DeleteStream(t.Context(), topology.StreamEvents); err != nil {
		t.Fatal(err)
	}
	r.awaitCheck(t, "stream EVENTS", false)
	status, checks := look()
	gone := slices.IndexFunc(checks, func(c check) bool { return c.Name == "stream EVENTS" })
	if status != http.StatusOK || checks[gone].OK || !checks[gone].Advisory || checks[gone].Reason == "" {
		t.Errorf("without the stream of events: %d %+v", status, checks[gone])
	}
	if slices.ContainsFunc(checks, func(c check) bool { return strings.HasPrefix(c.Name, "consumer") }) {
		t.Error("an edge alone tells of the dispatchers' consumers")
	}
}

// With an external server a process is ready as long as requests wait for it, and no longer.
func TestReadyWhileRequestsWait(t *testing.T) {
	natstest.NeedsEmbedded(t, "its server is stopped")
	t.Parallel()
	const within = 3 * time.Second
	dir, key := t.TempDir(), secretbox.NewKey()
	conn, stop := natstest.StartIn(t, dir)
	at, held := natstest.URL(t, dir), natstest.Options(conn)
	r := boot(t, func(c *config.Config) {
		c.Store.NATSURL, c.Store.Key, c.Store.Topology = at, &key, held
		c.Dispatcher, c.StoreWait = false, within
	})
	stop()
	natstest.Await(t, "the connection is gone", func() bool { return !r.Store.Conn.Connected() })
	lost := r.Store.Conn.LostSince()
	status, _, body := api{base: "http://" + r.Admin}.call(t, http.MethodGet, "/readyz", "")
	if status != http.StatusOK && time.Since(lost) < within {
		t.Errorf("while requests wait: %d %s", status, body)
	}
	r.awaitCheck(t, "jetstream", false)
	if gone := time.Since(lost); gone < within {
		t.Errorf("unready %s after the connection was lost, while requests wait for %s", gone, within)
	}
}

// awaitCheck asks /readyz until a check is as wanted, and returns the status and why the check fails.
func (r *rig) awaitCheck(t *testing.T, name string, ok bool) (status int, reason string) {
	t.Helper()
	soon(t, func() bool {
		var body []byte
		status, _, body = api{base: "http://" + r.Admin}.call(t, http.MethodGet, "/readyz", "")
		var doc struct {
			Checks []struct {
				Name, Reason string
				OK           bool
			}
		}
		if err := json.Unmarshal(body, &doc); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		for _, c := range doc.Checks {
			if c.Name == name && c.OK == ok {
				reason = c.Reason
				return true
			}
		}
		return false
	})
	return status, reason
}

// A load balancer keeps sending requests while the store is about to be moved: sessions are started and
// completed, and what is completed is delivered later. From the seal on it sends none.
func TestReadinessWhileTheStoreIsMoved(t *testing.T) {
	t.Parallel()
	r := boot(t)
	set := func(state storestate.State) {
		t.Helper()
		if _, err := storestate.Set(t.Context(), r.Store.Conn,
			must[storestate.Record](t)(storestate.Read(t.Context(), r.Store.Conn)), state, "other",
			"nats://n1:4222"); err != nil {
			t.Fatal(err)
		}
	}
	set(storestate.StateDraining)
	if status, reason := r.awaitCheck(t, "deliveries", false); status != http.StatusOK ||
		!strings.Contains(reason, "being moved to nats://n1:4222") {
		t.Errorf("about to be moved: %d, %s", status, reason)
	}
	s, b := r.begin(t), demo.NewBrowser()
	expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in")),
		http.StatusOK, "You are verified")
	if v := r.api().read(t, s.Session); v.State != "verified" || v.Delivery.State != "due" ||
		r.inbox.count(v.ID) != 0 {
		t.Errorf("completed meanwhile: %s, delivery %s, %d POSTs", v.State, v.Delivery.State,
			r.inbox.count(v.ID))
	}

	set(storestate.StateOpen) // the move is aborted
	if status, _ := r.awaitCheck(t, "deliveries", true); status != http.StatusOK {
		t.Errorf("taken back: %d", status)
	}
	if v := r.api().until(t, s.Session, "delivered"); r.inbox.count(v.ID) != 1 {
		t.Errorf("%d POSTs", r.inbox.count(v.ID))
	}

	set(storestate.StateSealing)
	if err := storestate.Seal(t.Context(), r.Store.Conn, transfer.Sealable(store.Assets())...); err != nil {
		t.Fatal(err)
	}
	if status, reason := r.awaitCheck(t, "standing", false); status != http.StatusServiceUnavailable ||
		!strings.Contains(reason, "being sealed") {
		t.Errorf("sealed: %d, %s", status, reason)
	}
	status, header, body := r.api().
		call(t, http.MethodPost, "/verify/init",
			`{"platform":"p","platform_user_id":"u","callback_url":"`+r.inbox.CallbackURL()+`"}`)
	if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("a start on a sealed store: %d %q %s", status, header.Get("Retry-After"), body)
	}
	if v := r.api().read(t, s.Session); v.State != "verified" { // existing data can still be read
		t.Errorf("read from a sealed store: %+v", v)
	}
}
