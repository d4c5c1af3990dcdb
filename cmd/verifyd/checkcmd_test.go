package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"verifyd/cmd/verifyd/check"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/permission"
	"verifyd/natsconf/topology"
)

// checked runs verifyd check and returns its findings by area.
func checked(t *testing.T, args ...string) (code int, byArea map[string][]check.Finding) {
	t.Helper()
	code, out, errOut := verifyd(t, append([]string{"check", "--json", "--dev-network"}, args...)...)
	var doc struct{ Findings []check.Finding }
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("%v in %s%s", err, out, errOut)
	}
	byArea = map[string][]check.Finding{}
	for _, f := range doc.Findings {
		byArea[f.Area] = append(byArea[f.Area], f)
		if (f.Level == check.LevelOK) != (f.Do == "") {
			t.Errorf("%+v: what to do stands where something is to be done, and nowhere else", f)
		}
	}
	if (code == exitFailed) != slices.ContainsFunc(doc.Findings, func(f check.Finding) bool {
		return f.Level == check.LevelError
	}) {
		t.Errorf("exit code %d for %+v", code, doc.Findings)
	}
	return code, byArea
}

// expectFound looks for a finding of a level in an area, with some words.
func expectFound(t *testing.T, byArea map[string][]check.Finding, area string, l check.Level, words string) {
	t.Helper()
	if !slices.ContainsFunc(byArea[area], func(f check.Finding) bool {
		return f.Level == l && strings.Contains(f.Detail, words)
	}) {
		t.Errorf("%s: want %s with %q, got %+v", area, l, words, byArea[area])
	}
}

func TestCheckOfASoundService(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "checks its data directory")
	dir := filepath.Join(t.TempDir(), "store")
	_, fresh := checked(t, "--data-dir", dir)
	expectFound(t, fresh, "data directory", check.LevelOK, "the first start creates one")
	if _, err := os.Stat(dir); err == nil {
		t.Error("a check has made the data directory")
	}
	r := boot(t)
	code, found := checked(t, "--data-dir", filepath.Join(r.dir, "store"))
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, area := range []string{
		"configuration", "data directory", "master key", "server", "clock", "store", "topology",
	} {
		expectFound(t, found, area, check.LevelOK, "")
	}
	expectFound(t, found, "networks", check.LevelWarning, "the dev network is on for live sessions")
	_, other := checked(t, "--data-dir", filepath.Join(r.dir, "store"), "--keep-results", "100h")
	expectFound(t, other, "topology", check.LevelWarning, "max_age")
}

func TestCheckReportsErrors(t *testing.T) {
	t.Parallel()
	_, found := checked(t, "--rate-limit", "x", "--sync", "never")
	expectFound(t, found, "configuration", check.LevelError, "VERIFYD_RATE_LIMIT")
	expectFound(t, found, "configuration", check.LevelError, "VERIFYD_SYNC")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, found = checked(t, "--data-dir", file)
	expectFound(t, found, "data directory", check.LevelError, "is not a folder")
	if err := serveFails(t, "--data-dir", file); !strings.Contains(err, "data directory: ") ||
		!strings.Contains(err, "is not a folder") {
		t.Errorf("serve starts with what check calls an error: %q", err)
	}
	_, found = checked(t, "--data-dir", t.TempDir(), "--sync", "interval")
	expectFound(t, found, "sync", check.LevelWarning, "two minutes")
}

// serveFails runs serve, which must refuse, and returns its error.
func serveFails(t *testing.T, args ...string) string {
	t.Helper()
	code, _, errOut := verifyd(t,
		append([]string{"serve", "--dev-network", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"},
			args...)...)
	if code == 0 {
		t.Error("serve ended well")
	}
	return errOut
}

func TestCheckOfTheWayOut(t *testing.T) {
	t.Parallel()
	in := newInbox(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, in.ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	networks := filepath.Join(t.TempDir(), "networks.yaml")
	if err := os.WriteFile(networks,
		[]byte("- {kind: steam}\n- {id: gone, name: Gone, kind: oidc, issuer: 'http://127.0.0.1:1', "+
			"client_id: c, client_secret: s}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := "--data-dir=" + filepath.Join(t.TempDir(), "store")
	_, found := checked(t, dir, "--networks-file", networks, "--probe", in.CallbackURL())
	expectFound(t, found, "networks", check.LevelWarning, "gone does not answer")
	expectFound(t, found, "networks", check.LevelOK, "steam is known by its settings")
	expectFound(t, found, "egress", check.LevelOK, "only public addresses")
	expectFound(t, found, "probe", check.LevelError, "refused")
	code, found := checked(t, dir, "--callback-allow-cidrs", "127.0.0.0/8", "--callback-ca-file", ca,
		"--probe", in.CallbackURL())
	expectFound(t, found, "egress", check.LevelWarning, "127.0.0.1")
	expectFound(t, found, "probe", check.LevelOK, "nothing was sent")
	if code != 0 || len(in.got) != 0 {
		t.Errorf("exit code %d, %d POSTs", code, len(in.got))
	}
	code, found = checked(t, dir, "--callback-allow-cidrs", "0.0.0.0/0", "--probe", in.CallbackURL(),
		"--callback-proxy", "http://127.0.0.1:1", "--callback-allow-ports", "8443")
	expectFound(t, found, "egress", check.LevelWarning, "169.254.169.254")
	expectFound(t, found, "egress", check.LevelWarning, "the egress proxy cannot be reached")
	expectFound(t, found, "egress", check.LevelWarning, "443")
	expectFound(t, found, "probe", check.LevelError, "refused")
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
}

// Silent networks do not delay the checks after them.
func TestCheckOfSilentNetworks(t *testing.T) {
	t.Parallel()
	silent := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	var text strings.Builder
	ids := []string{"a", "b", "c", "d", "e", "f", "g"}
	together := heldAtOnce(t, silent)
	for _, id := range ids {
		fmt.Fprintf(&text, "- {id: %s, name: N, kind: oidc, issuer: 'http://%s', client_id: c, "+
			"client_secret: s}\n", id, silent.Addr())
	}
	networks := filepath.Join(t.TempDir(), "networks.yaml")
	if err := os.WriteFile(networks, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	spans := collect(t)
	_, found := checked(t, "--data-dir", filepath.Join(t.TempDir(), "store"), "--networks-file", networks,
		"--trace-endpoint", spans.server.URL, "--trace-headers", "authorization=Bearer%20of%20spans")
	expectFound(t, found, "traces", check.LevelOK, "accepts spans")
	var said []string
	for _, f := range found["networks"] {
		if id, _, ok := strings.Cut(f.Detail, " does not answer"); ok {
			said = append(said, id)
		}
	}
	if !slices.Equal(said, ids) {
		t.Errorf("in the order of the file: %q in %+v", said, found["networks"])
	}
	if most := together(); most != len(ids) {
		t.Errorf("%d networks of %d were asked at once", most, len(ids))
	}
}

// heldAtOnce accepts connections and stays silent. The function that it returns ends that, and returns the
// maximum number of connections.
func heldAtOnce(t *testing.T, silent net.Listener) (together func() int) {
	t.Helper()
	var held, most int
	var mu sync.Mutex
	count := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		held += by
		most = max(most, held)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := silent.Accept()
			if err != nil {
				return
			}
			count(1)
			all.Go(func() {
				_, _ = io.Copy(io.Discard, c) // until the client has given up
				count(-1)
				_ = c.Close()
			})
		}
	})
	end := func() { _ = silent.Close(); all.Wait() }
	t.Cleanup(end)
	return func() int { end(); return most }
}

func TestCheckOfAnExternalServer(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "stands for one server that is not a cluster")
	dir := t.TempDir()
	conn, _ := natstest.StartIn(t, dir)
	// a server without verifyd's streams
	for _, s := range topology.New(topology.Options{}).Streams {
		if err := conn.JS.DeleteStream(t.Context(), s.Name); err != nil {
			t.Fatal(err)
		}
	}
	end := must[embedded.Endpoint](t)(embedded.ReadEndpoint(dir))
	at := must[*url.URL](t)(url.Parse(end.URL))
	at.User = url.UserPassword(end.User, end.Password)
	key := "--secret-key=" + strings.Repeat("A", 43) + "="
	_, found := checked(t, "--nats-url", at.String(), key, "--replicas", "1")
	expectFound(t, found, "topology", check.LevelOK, "the next start creates")
	expectFound(t, found, "replicas", check.LevelWarning, "")
	expectFound(t, found, "server", check.LevelWarning, "not encrypted")
	expectFound(t, found, "store", check.LevelWarning, "no limit in the account")
	if s, err := conn.JS.Stream(t.Context(), topology.StreamCompletions); err == nil {
		t.Errorf("a check has made %s", s.CachedInfo().Config.Name)
	}
	drifted := topology.New(topology.Options{}).Streams[0]
	drifted.DenyDelete = false // the claim's fence could be opened
	if _, err := conn.JS.CreateStream(t.Context(), drifted); err != nil {
		t.Fatal(err)
	}
	code, found := checked(t, "--nats-url", at.String(), key, "--replicas", "1")
	expectFound(t, found, "topology", check.LevelError, "deny_delete")
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	expectFound(t, found, "clock", check.LevelOK, "")
	expectFound(t, found, "limits", check.LevelOK, "")
	if err := serveFails(t, "--nats-url", at.String(), key, "--replicas", "1"); !strings.Contains(err,
		"deny_delete") {
		t.Errorf("serve starts with a store whose fence is open: %q", err)
	}

	// a server that is away is given up
	_, found = checked(t, "--nats-url", "nats://127.0.0.1:1", key)
	expectFound(t, found, "server", check.LevelError, "127.0.0.1:1")
}

func TestCheckOfPermissions(t *testing.T) {
	t.Parallel()
	e := natstest.StartExternal(t)
	natstest.Ensure(t, e.Connect(t, permission.RoleOperator))
	with := func(role permission.Role, roles string) (int, map[string][]check.Finding) {
		return checked(t, "--nats-url", e.URL, "--nats-creds", e.Credential(role), "--roles", roles,
			"--secret-key="+strings.Repeat("A", 43)+"=", "--replicas", "1")
	}
	for role, roles := range map[permission.Role]string{
		permission.RoleEdge: "edge", permission.RoleDispatcher: "dispatcher",
		permission.RoleOperator: "edge,dispatcher",
	} {
		_, found := with(role, roles)
		expectFound(t, found, "permissions", check.LevelOK, "")
		expectFound(t, found, "store", check.LevelOK, "of 1024 MiB")
	}
	_, found := with(permission.RoleOperator, "dispatcher")
	expectFound(t, found, "permissions", check.LevelWarning, "may also write")
	code, found := with(permission.RoleDispatcher, "edge")
	expectFound(t, found, "permissions", check.LevelError, "publish $KV.sessions.>")
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	_, found = checked(t, "--nats-url", e.URL, "--nats-creds", filepath.Join(t.TempDir(), "none"))
	expectFound(t, found, "configuration", check.LevelError, "VERIFYD_NATS_CREDS")
}

// What only older builds need is reported, and removed when none of them runs any more.
func TestApplyFinishesAnUpgrade(t *testing.T) {
	t.Parallel()
	e := natstest.StartExternal(t)
	owner := e.Connect(t, permission.RoleOperator)
	natstest.Ensure(t, owner)
	natstest.Outdate(t, owner)
	with := []string{"--nats-url", e.URL, "--nats-creds", e.Credential(permission.RoleOperator),
		"--secret-key=" + strings.Repeat("A", 43) + "=", "--replicas", "1"}
	code, found := checked(t, with...)
	expectFound(t, found, "topology", check.LevelWarning, "KV_sessions, KV_accounts, KV_keys")
	expectFound(t, found, "topology", check.LevelWarning, "COMPLETIONS")
	if code != 0 {
		t.Errorf("check: exit code %d: %+v", code, found)
	}
	apply := append([]string{"apply"}, with...)
	if code, _, errOut := verifyd(t, apply...); code != 0 {
		t.Fatalf("apply: exit %d: %s", code, errOut)
	}
	if _, found = checked(t, with...); len(found["topology"]) != 3 {
		t.Errorf("after apply: %+v", found["topology"])
	}
	older, err := owner.NC.Subscribe(topology.SubjectFleet, func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"id":"a","host":"edge-1","pid":7,"version":"0.9.0","roles":["edge"]}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	finish := slices.Concat(apply, []string{"--finish"})
	if code, _, errOut := verifyd(t, finish...); code != exitFailed ||
		!strings.Contains(errOut, "a process of verifyd 0.9.0 runs") {
		t.Errorf("beside an older build: exit %d: %s", code, errOut)
	}
	if err := older.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := verifyd(t, finish...); code != 0 {
		t.Fatalf("apply --finish: exit %d: %s", code, errOut)
	}
	_, found = checked(t, with...)
	if len(found["topology"]) != 2 {
		t.Errorf("after apply --finish: %+v", found["topology"])
	}
	expectFound(t, found, "topology", check.LevelWarning, "COMPLETIONS")
}

// The destinations of spans and operator events are checked if they are set. If they are down, the service
// starts anyway.
func TestCheckOfTheCollectorAndTheAlarmAddress(t *testing.T) {
	t.Parallel()
	inbox := newInbox(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, inbox.ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := []string{"--data-dir", filepath.Join(t.TempDir(), "store"), "--callback-ca-file", ca}
	code, found := checked(t, dir...)
	if code != 0 || len(found["traces"])+len(found["alarms"]) != 0 {
		t.Errorf("where neither is set: %d %+v", code, found)
	}
	spans := collect(t)
	alarms := []string{"--alarm-secret", alarmSecret, "--callback-allow-cidrs", "127.0.0.0/8", "--alarm-url"}
	_, found = checked(t, slices.Concat(dir, alarms,
		[]string{inbox.CallbackURL(), "--trace-endpoint", spans.server.URL, "--trace-headers",
			"authorization=Bearer%20of%20spans"})...)
	expectFound(t, found, "traces", check.LevelOK, "accepts spans")
	expectFound(t, found, "alarms", check.LevelOK, "nothing was sent")
	if len(inbox.got) != 0 {
		t.Error("something was posted to the operators' address")
	}
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	code, found = checked(t,
		slices.Concat(dir, alarms,
			[]string{"https://" + natstest.Address(t) + "/", "--trace-endpoint", refusing.URL})...)
	expectFound(t, found, "traces", check.LevelWarning, "404")
	expectFound(t, found, "alarms", check.LevelWarning, "cannot be reached")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	_, found = checked(t, slices.Concat(dir,
		[]string{"--trace-endpoint", "http://" + natstest.Address(t) + "/", "--trace-headers",
			"authorization=hunter2"})...)
	expectFound(t, found, "traces", check.LevelWarning, "refused")
	for _, f := range found["traces"] {
		if strings.Contains(f.Detail+f.Do, "hunter2") {
			t.Errorf("a secret is told: %+v", f)
		}
	}
}
