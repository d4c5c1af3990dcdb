package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
	"verifyd/natsconf/natstest"
	"verifyd/sessions"
)

// hidden is in the path and the query of every callback URL here; no command may show it.
const hidden = "planted-marker"

// receiver is an https server of the test, with an address for each kind of answer.
func (r *rig) receiver(t *testing.T) (base string) {
	t.Helper()
	i, err := demo.NewIntegrator(r.inbox.ca)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/"+hidden+"/ok", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("/"+hidden+"/no", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte("bad \x1b[2J\x07 \"day\"\r\nmore \u202e" + strings.Repeat("é", 4096)))
	})
	mux.HandleFunc("/"+hidden+"/hang", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server watches for the connection's end only from here on
		<-r.Context().Done()
	})
	i.Server.Handler = mux
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = i.Serve(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return "https://" + i.Listener.Addr().String() + "/" + hidden
}

// telling is a session of each kind, by name.
type telling struct {
	*rig
	host string
	s    map[string]demo.Started
}

// tell lets a session of each kind happen. The service starts anew for the one whose attempt ends with its
// time: a short time would also end the others' handshakes and answers.
func tell(t *testing.T) telling {
	t.Helper()
	r := boot(t, func(c *config.Config) { c.CallbackRetryFor = time.Second })
	base := r.receiver(t)
	all := telling{
		rig: r, host: strings.TrimSuffix(strings.TrimPrefix(base, "https://"), "/"+hidden),
		s: map[string]demo.Started{},
	}
	begin := func(name, callback string) demo.Started {
		s := all.api().init(t, map[string]any{
			"platform": "discord", "platform_user_id": "sailor\x1b[1m_42", "guild_id": "118",
			"callback_url": callback + "?token=" + hidden,
		})
		all.s[name] = s
		return s
	}
	press := func(s demo.Started, button string) {
		b := demo.NewBrowser()
		_ = must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), button))
	}
	r.offset.Store(int64(-sessions.Lifetime - time.Minute))
	begin("expired", base+"/ok")
	r.offset.Store(0)
	begin("pending", base+"/ok")
	canceled := begin("canceled", base+"/ok")
	if status, _, body := r.api().
		call(t, http.MethodPost, "/sessions/"+canceled.Session+"/cancel", ""); status != http.StatusOK {
		t.Fatalf("cancel: %d %s", status, body)
	}
	press(begin("delivered", base+"/ok"), "sign-in")
	press(begin("declined", base+"/ok"), "decline")
	press(begin("rejected", base+"/no"), "sign-in")
	press(begin("undeliverable", "https://"+natstest.Address(t)+"/"+hidden), "sign-in")
	for name, state := range map[string]string{
		"delivered": "delivered", "declined": "delivered", "rejected": "rejected",
		"undeliverable": "undeliverable",
	} {
		all.api().until(t, all.s[name].Session, state)
	}
	r.stop()
	all.rig = boot(t, func(c *config.Config) {
		c.Store, c.CallbackRoots, c.CallbackTimeout = r.Config.Store, r.Config.CallbackRoots, 2*time.Second
	})
	press(begin("unknown", base+"/hang"), "sign-in")
	all.api().until(t, all.s["unknown"].Session, "unknown")
	return all
}

// verifyd runs a command on the running service, and checks that it reveals nothing.
func (a telling) verifyd(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	code, out, errOut = verifyd(t, append(args, a.reach()...)...)
	for name, s := range a.s {
		if strings.Contains(out+errOut, s.Session) {
			t.Errorf("%v shows the token of the session %s", args[:2], name)
		}
	}
	if strings.Contains(out+errOut, hidden) || strings.Contains(out+errOut, a.secret) {
		t.Errorf("%v shows more of the callback URL than its host, or the signing secret:\n%s%s", args[:2],
			out, errOut)
	}
	if strings.ContainsFunc(out, func(r rune) bool { return r < ' ' && r != '\n' || r == '\u202e' }) {
		t.Errorf("%v lets control characters through: %q", args[:2], out)
	}
	return code, out, errOut
}

func (a telling) sid(t *testing.T, name string) string {
	t.Helper()
	return string(must[sessions.ID](t)(sessions.ParseID(a.s[name].Session)))
}

// It compares the output word by word, so it runs alone: while others keep the processors busy, a handshake
// may need a second try.
func TestExplainAndDeliveries(t *testing.T) {
	a := tell(t)
	t.Run("explain", a.explain)
	t.Run("explain as JSON", a.explainJSON)
	t.Run("golden", a.golden)
	t.Run("list", a.list)
	t.Run("show", a.show)
	t.Run("bad", a.bad)
}

// Each kind of session is described with what happened and what to do.
func (a telling) explain(t *testing.T) {
	for name, want := range map[string][]string{
		"delivered": {
			": verified, delivered\n", "Verified (dev)", "Attempt 1: claimed by worker", "Delivered: 204 in ",
			a.host + " has the result. Nothing to do.",
		},
		"declined": {": failed, delivered\n", "Not verified: the user declined", "Delivered: 204"},
		"rejected": {
			": verified, rejected\n", "Rejected: the receiver answered 500 Internal Server Error in ",
			"Fix the receiver; then send it again with: verifyd deliveries resend",
		},
		"unknown": {": verified, unknown\n", "Unknown: ", "webhook-id cb_" + a.sid(t, "unknown")},
		"undeliverable": {
			": verified, undeliverable\n", "given up by worker",
			"Undeliverable: 127.0.0.1 refused the connection", "Nothing was ever sent to 127.0.0.1:",
		},
		"expired": {
			": expired\n", "Expired: nobody finished in time", "Harbor Guild can start a new session",
		},
		"pending":  {": pending\n", "Session started by Harbor Guild, expires ", "has until "},
		"canceled": {": canceled\n", "Canceled by the integrator", "Harbor Guild canceled the session"},
	} {
		code, out, errOut := a.verifyd(t, "explain", a.sid(t, name))
		if code != 0 {
			t.Errorf("%s: exit %d: %s", name, code, errOut)
		}
		for _, w := range append(want, "Session "+a.sid(t, name),
			`User "sailor\x1b[1m_42" on discord, group 118`) {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in:\n%s", name, w, out)
			}
		}
	}
	if _, byID, _ := a.verifyd(t, "explain", a.sid(t, "delivered")); byID != "" {
		code, byToken, errOut := verifyd(t,
			append(append([]string{"explain"}, a.reach()...), a.s["delivered"].Session)...)
		if byToken != byID {
			t.Errorf("by token: exit %d, %q %q", code, byToken, errOut)
		}
		if _, out, errOut := a.verifyd(t, "explain", "cb_"+a.sid(t, "delivered")); out != byID {
			t.Errorf("by webhook-id: %q %q", out, errOut)
		}
	}
}

// explainJSON compares what programs get with what people read.
func (a telling) explainJSON(t *testing.T) {
	_, text, _ := a.verifyd(t, "explain", a.sid(t, "undeliverable"))
	code, out, errOut := a.verifyd(t, "explain", "--json", a.sid(t, "undeliverable"))
	var doc struct {
		Session  struct{ ID, State, Delivery, Advice string }
		Timeline []struct{ At, Kind, Text string }
	}
	if err := json.Unmarshal([]byte(out), &doc); code != 0 || err != nil {
		t.Fatalf("exit %d, %v: %s%s", code, err, out, errOut)
	}
	if s := doc.Session; s.ID != a.sid(t, "undeliverable") || s.State != "verified" ||
		s.Delivery != "undeliverable" || !strings.HasSuffix(text, "\n"+s.Advice+"\n") {
		t.Errorf("%+v", s)
	}
	if len(doc.Timeline) < 3 || doc.Timeline[0].Kind != "created" {
		t.Errorf("%+v", doc.Timeline)
	}
	for _, e := range doc.Timeline {
		at, err := time.Parse(time.RFC3339Nano, e.At)
		line := at.Format("15:04:05.000") + "  " + e.Text + "\n"
		if err != nil || !strings.Contains(text, line) {
			t.Errorf("%v: people do not read %q", err, line)
		}
	}
}

// golden is the complete output for a delivered session.
func (a telling) golden(t *testing.T) {
	_, out, _ := a.verifyd(t, "explain", a.sid(t, "delivered"))
	for _, r := range []struct{ pattern, with string }{
		{`\d\d:\d\d:\d\d\.\d{3}`, "12:03:11.204"},
		{`expires \d\d:\d\d:\d\d`, "expires 12:13:11"},
		{`\d+ \w+ 20\d\d, UTC`, "21 November 2026, UTC"},
		{`([\d.]+|under 1) m?s\b`, "9 ms"},
		{`DNS 9 ms, `, ""}, // an address needs no name server; the step may still take a measurable moment
		{`worker \S+`, "worker harbor.1.ABCDEF"},
		{`127\.0\.0\.1:\d+`, "127.0.0.1:4433"},
		{a.sid(t, "delivered"), "k3v7q2m5zt4yd6n2xw7p2c4hf2jb5ral"},
	} {
		out = regexp.MustCompile(r.pattern).ReplaceAllString(out, r.with)
	}
	const want = `Session k3v7q2m5zt4yd6n2xw7p2c4hf2jb5ral: verified, delivered
User "sailor\x1b[1m_42" on discord, group 118

21 November 2026, UTC
12:03:11.204  Session started by Harbor Guild, expires 12:13:11
12:03:11.204  Signing in with dev
12:03:11.204  The user came back from dev
12:03:11.204  Verified (dev)
12:03:11.204  The user was shown the outcome
12:03:11.204  Attempt 1: claimed by worker harbor.1.ABCDEF
12:03:11.204  Delivered: 204 in 9 ms (connect 9 ms, TLS 9 ms)

127.0.0.1:4433 has the result. Nothing to do.
`
	// The dispatcher does not wait until the user has the page: its claim may be stored before that.
	const shown = "12:03:11.204  The user was shown the outcome\n"
	if at := strings.Index(out, shown); at < strings.Index(out, "Verified (dev)") ||
		strings.Replace(out, shown, "", 1) != strings.Replace(want, shown, "", 1) {
		t.Errorf("it reads\n%s\nwant\n%s", out, want)
	}
}

// rows returns a table by the session in its first column.
func rows(out string) map[string][]string {
	all := map[string][]string{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 0 {
			all[f[0]] = f
		}
	}
	return all
}

func (a telling) list(t *testing.T) {
	_, out, errOut := a.verifyd(t, "deliveries", "list")
	table := rows(out)
	if len(table) != 6 || table["SESSION"] == nil || errOut != "" {
		t.Fatalf("%d rows: %s%s", len(table), out, errOut)
	}
	for name, want := range map[string]string{
		"delivered": "verified delivered 1 -", "declined": "failed delivered 1 -",
		"rejected": "verified rejected 1 status",
		"unknown":  "verified unknown 1 timeout", "undeliverable": "verified undeliverable 1 connect",
	} {
		f := table[a.sid(t, name)]
		if len(f) != 7 || strings.Join([]string{f[1], f[2], f[3], f[6]}, " ") != want ||
			name != "undeliverable" && f[4] != a.host {
			t.Errorf("%s is listed as %v, want %s", name, f, want)
		}
	}
	if _, out, _ := a.verifyd(t, "deliveries", "list", "--state", "unknown"); len(rows(out)) != 2 ||
		rows(out)[a.sid(t, "unknown")] == nil {
		t.Errorf("unknown ones:\n%s", out)
	}
	if _, out, errOut := a.verifyd(t, "deliveries", "list", "--limit", "2"); len(rows(out)) != 3 ||
		!strings.Contains(errOut, "--limit") {
		t.Errorf("two of them:\n%s%s", out, errOut)
	}
	if _, out, errOut := a.verifyd(t, "deliveries", "list", "--state", "claimed"); len(rows(out)) != 1 ||
		!strings.Contains(errOut, "No such delivery") {
		t.Errorf("none of them:\n%s%s", out, errOut)
	}
}

// Every attempt is shown with all that was recorded, and the receiver's text cannot reach the terminal as it
// is.
func (a telling) show(t *testing.T) {
	_, out, _ := a.verifyd(t, "deliveries", "show", a.sid(t, "rejected"))
	for _, want := range []string{
		"Attempt 1", "Claimed", " by ", "Verdict     rejected", "Class       status", "Status      500",
		"Address     " + a.host, "First byte",
		"Total", `Answer      "bad \x1b[2J\a \"day\"\r\nmore \u202eé`, "Host         " + a.host,
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "),
			strings.Join(strings.Fields(want), " ")) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if n := strings.Count(out, "é"); n < 450 || n > 512 || strings.Contains(out, `\xef`) {
		t.Errorf("%d characters of the answer are shown, want 1 KiB cut between two:\n%s", n, out)
	}
	_, out, _ = a.verifyd(t, "deliveries", "show", a.sid(t, "delivered"))
	for _, want := range []string{"Status", "204", "Connect", "TLS", "First byte", "Total", " ms"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if _, out, _ := a.verifyd(t, "deliveries", "show", a.sid(t, "pending")); !strings.Contains(out, "none") {
		t.Errorf("a pending session:\n%s", out)
	}
}

// Wrong usage gets exit code 2 and a hint at valid usage.
func (a telling) bad(t *testing.T) {
	nobody := strings.Repeat("a", 32)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"explain", nobody}, "no such session"},
		{[]string{"deliveries", "show", nobody}, "verifyd deliveries list"},
		{[]string{"explain", "sailor_42"}, "verifyd deliveries list"},
		{[]string{"deliveries", "show", "x"}, "32 characters"},
		{[]string{"deliveries", "list", "--state", "lost"}, "undeliverable"},
		{[]string{"deliveries", "list", "--limit", "0"}, "--limit"},
	} {
		if code, _, errOut := a.verifyd(t, c.args...); code != exitUsage ||
			!strings.Contains(errOut, c.want) {
			t.Errorf("%v: exit %d: %s", c.args, code, errOut)
		}
	}
	dash := "-" + strings.Repeat("A", 42)
	code, _, errOut := verifyd(t, append(append([]string{"explain"}, a.reach()...), dash)...)
	if code != exitUsage || !strings.Contains(errOut, "no such session") || strings.Contains(errOut, dash) {
		t.Errorf("a token that begins with a dash: exit %d: %s", code, errOut)
	}
}

// The commands read a stopped service's store as they read a running one's.
func TestExplainOnAStoppedService(t *testing.T) {
	t.Parallel()
	c := newChild(t)
	c.start(t)
	key := c.makeKey(t, "Harbor Guild")
	w := &walk{c: c, api: api{base: c.base(), key: key}, browser: demo.NewBrowser()}
	w.api.knownSoon(t)
	for _, s := range steps {
		s.do(t, w)
	}
	v := w.api.until(t, w.session.Session, "delivered")
	const shown = "The user was shown the outcome" // described a moment later
	running := c.toldOf(t, w, shown)
	c.kill()
	stopped := must[string](t)(c.command(t, "explain", v.ID))
	if stopped != running || !strings.Contains(stopped, "Delivered: 204") {
		t.Errorf("running:\n%s\nstopped:\n%s", running, stopped)
	}
	if list := must[string](t)(c.command(t, "deliveries", "list")); !strings.Contains(list, v.ID) {
		t.Errorf("list:\n%s", list)
	}
}

// A token that begins with a dash is no flag, wherever it stands.
func TestTokensOnTheCommandLine(t *testing.T) {
	t.Parallel()
	token := base64.RawURLEncoding.EncodeToString(append([]byte{0xfb, 0xef}, make([]byte, 30)...))
	if !strings.HasPrefix(token, "--") {
		t.Fatal(token)
	}
	id := string(must[sessions.ID](t)(sessions.ParseID(token)))
	given := []string{"explain", token, "--json", "-", "--data-dir=x"}
	if got := dashed(given); !slices.Equal(got, []string{"explain", id, "--json", "-", "--data-dir=x"}) {
		t.Errorf("read as %q", got)
	}
	if given[1] != token {
		t.Error("the caller's arguments were changed")
	}
}
