package main

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/cmd/verifyd/command/process"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/pauses"
)

func statusOf(t *testing.T, args ...string) (code int, doc process.StatusDoc) {
	t.Helper()
	code, out, errOut := verifyd(t, append([]string{"status", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("%v in %s%s", err, out, errOut)
	}
	if (code == 0) != doc.OK || doc.OK != (len(doc.Problems) == 0) {
		t.Errorf("exit code %d, ok %v, trouble %q", code, doc.OK, doc.Problems)
	}
	return code, doc
}

// reachOf returns the flags with which a command reaches the store of natstest in a directory, as an external
// one.
func reachOf(t *testing.T, dir string) []string {
	t.Helper()
	return []string{
		"--nats-url", natstest.URL(t, dir), "--secret-key=" + strings.Repeat("A", 43) + "=", "--replicas",
		"1",
	}
}

// expectTrouble checks for a line that reports a problem.
func expectTrouble(t *testing.T, doc process.StatusDoc, words string) {
	t.Helper()
	if !slices.ContainsFunc(doc.Problems, func(s string) bool { return strings.Contains(s, words) }) {
		t.Errorf("want %q in %q", words, doc.Problems)
	}
}

// It runs alone: the command gives processes a moment to answer, which is long enough unless many other tests
// run.
func TestStatusOfAService(t *testing.T) {
	r := boot(t)
	reach := r.reach()
	natstest.Await(t, "the process to say that it is there", func() bool {
		code, doc := statusOf(t, reach...)
		return code == 0 && len(doc.Processes) == 1
	})
	dead := natstest.Address(t) // where nobody answers
	verify := r.finisher(t)
	for range 6 {
		s := r.api().init(t, map[string]any{
			"platform": "p", "platform_user_id": "u", "callback_url": "https://" + dead + "/secret-path",
		})
		verify(s.Session)
	}
	done := r.begin(t)
	verify(done.Session)
	r.api().until(t, done.Session, "delivered")
	operator := pauses.NewStore(r.Store.Conn, nil)
	if _, err := operator.Begin(t.Context(), "bot.example.com", "olga", "moving", time.Hour); err != nil {
		t.Fatal(err)
	}
	var doc process.StatusDoc
	natstest.Await(t, "a breaker opens", func() bool {
		_, doc = statusOf(t, reach...)
		return len(doc.Hosts) > 0
	})
	if !doc.OK || doc.Backlog.Waiting+doc.Backlog.Given+doc.Backlog.Scheduled < 6 ||
		doc.Backlog.Oldest == nil || doc.Verdicts.By[facts.VerdictDelivered] != 1 {
		t.Errorf("%+v", doc)
	}
	if len(doc.Processes) != 1 || !slices.Equal(doc.Processes[0].Roles, []string{"dispatcher", "edge"}) ||
		(doc.Store.Limit == 0) != natstest.OnCluster() || doc.Store.Used == 0 {
		t.Errorf("processes %+v, store %+v", doc.Processes, doc.Store)
	}
	if h := doc.Hosts[0]; h.Host != dead || h.Class != string(failure.Connect) || h.Since.IsZero() {
		t.Errorf("host %+v", h)
	}
	if len(doc.Paused) != 1 || doc.Paused[0].Host != "bot.example.com:443" {
		t.Errorf("paused %+v", doc.Paused)
	}
	var code int
	var text, errOut string
	natstest.Await(t, "the process answers within the moment that the command gives it", func() bool {
		code, text, errOut = r.run(t, "status")
		return strings.Contains(text, "All is well")
	})
	for _, want := range []string{
		"delivered", "dispatcher,edge", "COMPLETIONS", dead, "breaker ", "paused until", "by olga: moving",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s%s", want, text, errOut)
		}
	}
	if code != 0 || strings.Contains(text, "secret-path") {
		t.Errorf("exit code %d\n%s", code, text)
	}
}

func TestStatusReportsErrors(t *testing.T) {
	t.Parallel()
	code, out, errOut := verifyd(t, "status", "--data-dir", t.TempDir())
	if code != exitFailed || !strings.Contains(errOut, "no service runs on the data directory") {
		t.Errorf("without a service: %d %s%s", code, out, errOut)
	}
	if code, _, errOut := verifyd(t, "status", "--watch", "--every", "10ms", "--data-dir",
		t.TempDir()); code != exitUsage || !strings.Contains(errOut, "--every") {
		t.Errorf("--every 10ms: %d %s", code, errOut)
	}
	dir := t.TempDir()
	conn, _ := natstest.StartIn(t, dir) // a server, and no process of ours
	if err := conn.JS.DeleteStream(t.Context(), topology.StreamRetries); err != nil {
		t.Fatal(err)
	}
	code, doc := statusOf(t, reachOf(t, dir)...)
	for _, want := range []string{
		"no edge answers", "no dispatcher answers", "stream RETRIES", "consumer retries",
	} {
		expectTrouble(t, doc, want)
	}
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
}

func TestStatusWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	natstest.StartIn(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &lines{cancel: cancel, after: 2}
	if code := run(ctx, append([]string{"status", "--watch", "--every", "1s"}, reachOf(t, dir)...), out,
		&bytes.Buffer{}); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(out.b.String()), "\n") {
		if !strings.Contains(line, " trouble processes=0 waiting=0 ") ||
			!strings.Contains(line, "(no edge answers)") || strings.Contains(line, "\x1b") {
			t.Errorf("line %q", line)
		}
	}
}

// lines ends a command when it has written so many.
type lines struct {
	b      bytes.Buffer
	cancel func()
	after  int
}

func (l *lines) Write(p []byte) (int, error) {
	if l.after -= bytes.Count(p, []byte("\n")); l.after <= 0 {
		l.cancel()
	}
	return l.b.Write(p)
}
