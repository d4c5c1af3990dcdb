package main

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
	_, found := check(t, "--rate-limit", "x", "--sync", "never")
	expectFinding(t, found, "configuration", levelError, "VERIFYD_RATE_LIMIT")
	expectFinding(t, found, "configuration", levelError, "VERIFYD_SYNC")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, found = check(t, "--data-dir", file)
	expectFinding(t, found, "data directory", levelError, "is not a folder")
	_, found = check(t, "--data-dir", t.TempDir(), "--sync", "interval")
	expectFinding(t, found, "sync", levelWarning, "two minutes")
}

func TestCheckOfAnExternalServer(t *testing.T) {
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

	began := time.Now()
	_, found = check(t, "--nats-url", "nats://127.0.0.1:1", key)
	expectFinding(t, found, "server", levelError, "127.0.0.1:1")
	if took := time.Since(began); took > 2*checkFor {
		t.Errorf("a server that is away takes %s", took)
	}
}
