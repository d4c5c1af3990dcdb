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
	"time"

	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
)

// check runs the command and gives its findings by area.
func check(t *testing.T, args ...string) (code int, byArea map[string][]finding) {
	t.Helper()
	code, out, errOut := verifyd(t, append([]string{"check", "--json", "--dev-network"}, args...)...)
	var doc struct{ Findings []finding }
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("%v in %s%s", err, out, errOut)
	}
	byArea = map[string][]finding{}
	for _, f := range doc.Findings {
		byArea[f.Area] = append(byArea[f.Area], f)
		if (f.Level == levelOK) != (f.Do == "") {
			t.Errorf("%+v: what to do stands where something is to be done, and nowhere else", f)
		}
	}
	if (code == exitFailed) != slices.ContainsFunc(doc.Findings, func(f finding) bool { return f.Level == levelError }) {
		t.Errorf("exit code %d for %+v", code, doc.Findings)
	}
	return code, byArea
}

// expectFinding looks for a finding of a level in an area, with some words.
func expectFinding(t *testing.T, byArea map[string][]finding, area string, l level, words string) {
	t.Helper()
	if !slices.ContainsFunc(byArea[area], func(f finding) bool { return f.Level == l && strings.Contains(f.Detail, words) }) {
		t.Errorf("%s: want %s with %q, got %+v", area, l, words, byArea[area])
	}
}

func TestCheckOfASoundService(t *testing.T) {
	beside(t)
	natstest.NeedsEmbedded(t, "checks its data directory")
	dir := filepath.Join(t.TempDir(), "store")
	_, fresh := check(t, "--data-dir", dir)
	expectFinding(t, fresh, "data directory", levelOK, "the first start makes one")
	if _, err := os.Stat(dir); err == nil {
		t.Error("a check has made the data directory")
	}
	r := boot(t)
	code, found := check(t, "--data-dir", filepath.Join(r.dir, "store"))
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, area := range []string{"configuration", "data directory", "master key", "server", "clock", "store", "topology"} {
		expectFinding(t, found, area, levelOK, "")
	}
	expectFinding(t, found, "networks", levelWarning, "the dev network is on")
	_, other := check(t, "--data-dir", filepath.Join(r.dir, "store"), "--keep-results", "100h")
	expectFinding(t, other, "topology", levelWarning, "max_age")
}

func TestCheckTellsWhatIsWrong(t *testing.T) {
	beside(t)
	_, found := check(t, "--rate-limit", "x", "--sync", "never")
	expectFinding(t, found, "configuration", levelError, "VERIFYD_RATE_LIMIT")
	expectFinding(t, found, "configuration", levelError, "VERIFYD_SYNC")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, found = check(t, "--data-dir", file)
	expectFinding(t, found, "data directory", levelError, "is not a folder")
	if err := serveFails(t, "--data-dir", file); !strings.Contains(err, "data directory: ") || !strings.Contains(err, "is not a folder") {
		t.Errorf("serve starts with what check calls an error: %q", err)
	}
	_, found = check(t, "--data-dir", t.TempDir(), "--sync", "interval")
	expectFinding(t, found, "sync", levelWarning, "two minutes")
}

// serveFails runs serve, which is to refuse, and gives what it says.
func serveFails(t *testing.T, args ...string) string {
	t.Helper()
	code, _, errOut := verifyd(t, append([]string{"serve", "--dev-network", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)...)
	if code == 0 {
		t.Error("serve ended well")
	}
	return errOut
}

// What check calls an error of a server that answers, serve refuses as well: it is one table.
func TestServeRefusesWhatCheckCallsAnError(t *testing.T) {
	beside(t)
	well := natsconf.Inspection{MaxPayload: 1 << 20, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1, Limit: 1 << 30, SkewKnown: true}
	for name, row := range map[string]struct {
		change func(*natsconf.Inspection)
		area   string
		level  level
	}{
		"well":              {func(*natsconf.Inspection) {}, "limits", levelOK},
		"small messages":    {func(in *natsconf.Inspection) { in.MaxPayload = 4096 }, "limits", levelError},
		"few streams":       {func(in *natsconf.Inspection) { in.MaxStreams = 3 }, "limits", levelError},
		"few consumers":     {func(in *natsconf.Inspection) { in.MaxConsumers = 3 }, "limits", levelError},
		"bytes required":    {func(in *natsconf.Inspection) { in.StreamsNeedLimits = true }, "limits", levelError},
		"bounded ack wait":  {func(in *natsconf.Inspection) { in.MaxAckPending = 1000 }, "limits", levelWarning},
		"bounded streams":   {func(in *natsconf.Inspection) { in.MaxStreamBytes = 1 << 30 }, "limits", levelWarning},
		"clock far off":     {func(in *natsconf.Inspection) { in.Skew = -6 * time.Second }, "clock", levelError},
		"clock a bit off":   {func(in *natsconf.Inspection) { in.Skew = time.Second }, "clock", levelWarning},
		"nearly full store": {func(in *natsconf.Inspection) { in.Used, in.Limit = 85, 100 }, "store", levelWarning},
		"bounded store":     {func(*natsconf.Inspection) {}, "store", levelOK},
		"unbounded store":   {func(in *natsconf.Inspection) { in.Limit = -1 }, "store", levelWarning},
	} {
		in := well
		row.change(&in)
		var s survey
		for _, look := range there {
			look(&s, in, config{store: storeConfig{natsURL: "tls://nats.example:4222"}})
		}
		if !slices.ContainsFunc(s.findings, func(f finding) bool { return f.Area == row.area && f.Level == row.level }) {
			t.Errorf("%s: want %s of %s in %+v", name, row.level, row.area, s.findings)
		}
		if err := s.refusal(); (err != nil) != (row.level == levelError) {
			t.Errorf("%s: serve says %v", name, err)
		}
	}
}

// A server that does not answer at the moment of the look keeps no service from its start, which waits for it as the service does.
func TestServeDoesNotRefuseForASilentServer(t *testing.T) {
	beside(t)
	e := natstest.StartExternal(t)
	conn := e.Connect(t, natsconf.RoleOperator)
	natstest.Ensure(t, conn)
	c := config{edge: true, log: zerolog.Nop(), store: storeConfig{natsURL: e.URL, topology: natsconf.TopologyOptions{Embedded: true}}}
	if err := refuseThere(t.Context(), conn, c); err != nil {
		t.Fatal(err)
	}
	conn.NC.Close()
	if err := refuseThere(t.Context(), conn, c); err != nil {
		t.Error(err)
	}
}

func TestCheckOfTheWayOut(t *testing.T) {
	beside(t)
	in := newInbox(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, in.ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	networks := filepath.Join(t.TempDir(), "networks.yaml")
	if err := os.WriteFile(networks, []byte("- {kind: steam}\n- {id: gone, name: Gone, kind: oidc, issuer: 'http://127.0.0.1:1', client_id: c, client_secret: s}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := "--data-dir=" + filepath.Join(t.TempDir(), "store")
	_, found := check(t, dir, "--networks-file", networks, "--probe", in.callbackURL())
	expectFinding(t, found, "networks", levelWarning, "gone does not answer")
	expectFinding(t, found, "networks", levelOK, "steam is known by its settings")
	expectFinding(t, found, "egress", levelOK, "public addresses only")
	expectFinding(t, found, "probe", levelError, "refused")
	code, found := check(t, dir, "--callback-allow-cidrs", "127.0.0.0/8", "--callback-ca-file", ca, "--probe", in.callbackURL())
	expectFinding(t, found, "egress", levelWarning, "127.0.0.1")
	expectFinding(t, found, "probe", levelOK, "nothing was sent")
	if code != 0 || len(in.got) != 0 {
		t.Errorf("exit code %d, %d POSTs", code, len(in.got))
	}
	code, found = check(t, dir, "--callback-allow-cidrs", "0.0.0.0/0", "--probe", in.callbackURL(), "--callback-proxy", "http://127.0.0.1:1", "--callback-allow-ports", "8443")
	expectFinding(t, found, "egress", levelWarning, "169.254.169.254")
	expectFinding(t, found, "egress", levelWarning, "the egress proxy cannot be reached")
	expectFinding(t, found, "egress", levelWarning, "443")
	expectFinding(t, found, "probe", levelError, "refused")
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
}

// Networks that are silent take nothing from what is asked after them.
func TestCheckOfSilentNetworks(t *testing.T) {
	beside(t)
	silent := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	var text strings.Builder
	ids := []string{"a", "b", "c", "d", "e", "f", "g"}
	together := heldAtOnce(t, silent)
	for _, id := range ids {
		fmt.Fprintf(&text, "- {id: %s, name: N, kind: oidc, issuer: 'http://%s', client_id: c, client_secret: s}\n", id, silent.Addr())
	}
	networks := filepath.Join(t.TempDir(), "networks.yaml")
	if err := os.WriteFile(networks, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	spans := collect(t)
	_, found := check(t, "--data-dir", filepath.Join(t.TempDir(), "store"), "--networks-file", networks,
		"--trace-endpoint", spans.server.URL, "--trace-headers", "authorization=Bearer%20of%20spans")
	expectFinding(t, found, "traces", levelOK, "takes spans")
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

// heldAtOnce takes connections and says nothing. The function that it gives ends that, and tells how many there were at a time.
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
				_, _ = io.Copy(io.Discard, c) // until who asks has given up
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
	beside(t)
	natstest.NeedsEmbedded(t, "stands for one server that is not a cluster")
	dir := t.TempDir()
	conn, _ := natstest.StartIn(t, dir)
	for _, s := range natsconf.NewTopology(natsconf.TopologyOptions{}).Streams { // a server that knows nothing of verifyd
		if err := conn.JS.DeleteStream(t.Context(), s.Name); err != nil {
			t.Fatal(err)
		}
	}
	end := must[natsconf.Endpoint](t)(natsconf.ReadEndpoint(dir))
	at := must[*url.URL](t)(url.Parse(end.URL))
	at.User = url.UserPassword(end.User, end.Password)
	key := "--secret-key=" + strings.Repeat("A", 43) + "="
	_, found := check(t, "--nats-url", at.String(), key, "--replicas", "1")
	expectFinding(t, found, "topology", levelOK, "the next start makes")
	expectFinding(t, found, "replicas", levelWarning, "")
	expectFinding(t, found, "server", levelWarning, "not encrypted")
	expectFinding(t, found, "store", levelWarning, "no limit in the account")
	if s, err := conn.JS.Stream(t.Context(), natsconf.StreamCompletions); err == nil {
		t.Errorf("a check has made %s", s.CachedInfo().Config.Name)
	}
	drifted := natsconf.NewTopology(natsconf.TopologyOptions{}).Streams[0]
	drifted.DenyDelete = false // the claim's fence could be opened
	if _, err := conn.JS.CreateStream(t.Context(), drifted); err != nil {
		t.Fatal(err)
	}
	code, found := check(t, "--nats-url", at.String(), key, "--replicas", "1")
	expectFinding(t, found, "topology", levelError, "deny_delete")
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	expectFinding(t, found, "clock", levelOK, "")
	expectFinding(t, found, "limits", levelOK, "")
	if err := serveFails(t, "--nats-url", at.String(), key, "--replicas", "1"); !strings.Contains(err, "deny_delete") {
		t.Errorf("serve starts with a store whose fence is open: %q", err)
	}

	began := time.Now()
	_, found = check(t, "--nats-url", "nats://127.0.0.1:1", key)
	expectFinding(t, found, "server", levelError, "127.0.0.1:1")
	if took := time.Since(began); took > 2*checkFor {
		t.Errorf("a server that is away takes %s", took)
	}
}

func TestCheckOfPermissions(t *testing.T) {
	beside(t)
	e := natstest.StartExternal(t)
	natstest.Ensure(t, e.Connect(t, natsconf.RoleOperator))
	with := func(role natsconf.Role, roles string) (int, map[string][]finding) {
		return check(t, "--nats-url", e.URL, "--nats-creds", e.Credential(role), "--roles", roles, "--secret-key="+strings.Repeat("A", 43)+"=", "--replicas", "1")
	}
	for role, roles := range map[natsconf.Role]string{natsconf.RoleEdge: "edge", natsconf.RoleDispatcher: "dispatcher", natsconf.RoleOperator: "edge,dispatcher"} {
		_, found := with(role, roles)
		expectFinding(t, found, "permissions", levelOK, "")
		expectFinding(t, found, "store", levelOK, "of 1024 MiB")
	}
	_, found := with(natsconf.RoleOperator, "dispatcher")
	expectFinding(t, found, "permissions", levelWarning, "may also write")
	code, found := with(natsconf.RoleDispatcher, "edge")
	expectFinding(t, found, "permissions", levelError, "publish $KV.sessions.>")
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	_, found = check(t, "--nats-url", e.URL, "--nats-creds", filepath.Join(t.TempDir(), "none"))
	expectFinding(t, found, "configuration", levelError, "VERIFYD_NATS_CREDS")
}

// Where spans and operator events go is looked at where it is set. That it is away keeps no service from starting.
func TestCheckOfTheCollectorAndTheAlarmAddress(t *testing.T) {
	beside(t)
	inbox := newInbox(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, inbox.ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := []string{"--data-dir", filepath.Join(t.TempDir(), "store"), "--callback-ca-file", ca}
	code, found := check(t, dir...)
	if code != 0 || len(found["traces"])+len(found["alarms"]) != 0 {
		t.Errorf("where neither is set: %d %+v", code, found)
	}
	spans := collect(t)
	alarms := []string{"--alarm-secret", alarmSecret, "--callback-allow-cidrs", "127.0.0.0/8", "--alarm-url"}
	_, found = check(t, slices.Concat(dir, alarms, []string{inbox.callbackURL(), "--trace-endpoint", spans.server.URL, "--trace-headers", "authorization=Bearer%20of%20spans"})...)
	expectFinding(t, found, "traces", levelOK, "takes spans")
	expectFinding(t, found, "alarms", levelOK, "nothing was sent")
	if len(inbox.got) != 0 {
		t.Error("something was posted to the operators' address")
	}
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	code, found = check(t, slices.Concat(dir, alarms, []string{"https://" + natstest.Address(t) + "/", "--trace-endpoint", refusing.URL})...)
	expectFinding(t, found, "traces", levelWarning, "404")
	expectFinding(t, found, "alarms", levelWarning, "cannot be reached")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	_, found = check(t, slices.Concat(dir, []string{"--trace-endpoint", "http://" + natstest.Address(t) + "/", "--trace-headers", "authorization=hunter2"})...)
	expectFinding(t, found, "traces", levelWarning, "refused")
	for _, f := range found["traces"] {
		if strings.Contains(f.Detail+f.Do, "hunter2") {
			t.Errorf("a secret is told: %+v", f)
		}
	}
}
