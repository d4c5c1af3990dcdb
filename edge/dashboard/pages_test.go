package dashboard_test

import (
	"bufio"
	"context"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/dashboard"
	"verifyd/sessions"
)

func TestSessionsAreListedFilteredAndPaged(t *testing.T) {
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("vera")
	b.get("/dashboard/sessions").want(t, http.StatusOK, "No session yet", "curl "+r.base+"/verify/init")
	for i := range 30 {
		s := r.session(a, func(q *sessions.Request) {
			q.PlatformUserID = "user" + string(rune('a'+i%26)) + "." + string(rune('a'+i/26))
		})
		if i == 29 {
			r.ended(s, sessions.Outcome{State: sessions.Failed, Reason: sessions.Refused}, sessions.Result{Verdict: sessions.VerdictRejected, Status: 500, Class: sessions.ClassStatus})
		}
	}
	first := b.get("/dashboard/sessions")
	first.want(t, http.StatusOK, "userd.b", "failed", "rejected", "Older")
	first.lacks(t, "usera.a")
	older := between(t, first.body, `href="/dashboard/sessions?cursor=`, `"`)
	second := b.get("/dashboard/sessions?cursor=" + older)
	second.want(t, http.StatusOK, "usera.a", "Newest")
	second.lacks(t, "userd.b", `rel="next"`)
	for path, want := range map[string]string{"?state=failed": "userd.b", "?delivery=rejected": "userd.b", "?user=userd.b": "userd.b", "?since=1h&state=pending": "userc.b"} {
		page := b.get("/dashboard/sessions" + path)
		page.want(t, http.StatusOK, want)
		page.lacks(t, map[bool]string{true: "userd.b", false: "userc.b"}[want == "userc.b"])
	}
	b.get("/dashboard/sessions?user=nobody").want(t, http.StatusOK, "Nothing found", "Show all")
	b.get("/dashboard/sessions?cursor=nonsense").want(t, http.StatusSeeOther)
	b.get("/dashboard/sessions?state=%3Cb%3E&since=x").want(t, http.StatusOK, "userd.b")
}

func TestSessionTellsItsStoryAndIsSentAgain(t *testing.T) {
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	s := r.session(a, func(q *sessions.Request) { q.PlatformUserID = "o'brien <b>\u202e" })
	path := "/dashboard/sessions/" + string(s.ID)
	b := r.as("dev")
	b.post(path+"/resend", "account", a.ID).want(t, http.StatusSeeOther)
	b.get(path).want(t, http.StatusOK, "This session has no outcome that is sent", "has until", "pending")
	r.ended(s, sessions.Outcome{State: sessions.Verified, Network: "example"}, sessions.Result{
		Verdict: sessions.VerdictRejected, Class: sessions.ClassStatus, Status: 503, Detail: "the receiver answered 503 Service Unavailable", Answer: "<script>alert(1)</script>",
	})
	page := b.get(path)
	page.want(t, http.StatusOK, "Verified (example)", "Rejected: the receiver answered 503", "<script>alert(1)</script>", "Mend the receiver, then send it again", "hooks.example.com:443", "U+202E", "1 sent")
	if strings.Contains(page.body, "<script>alert") || strings.Contains(page.body, "<b>\u202e") {
		t.Error("what somebody typed stands unescaped")
	}
	curl := between(t, page.text(), "Show the curl line\n", "}'") + "}'"
	if !strings.HasPrefix(curl, "curl -i 'https://hooks.example.com/verified?token=planted-secret'") || !strings.Contains(curl, "webhook-id: cb_"+string(s.ID)) {
		t.Errorf("curl: %s", curl)
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", "curl() { printf '%s\\n' \"$@\"; }; "+curl).CombinedOutput(); err != nil || !strings.Contains(string(out), `"platform_user_id":"o'brien`) {
		t.Errorf("a shell reads %s, %v", out, err)
	}
	b.follow(b.post(path+"/resend", "account", a.ID)).want(t, http.StatusOK, "on its way again", "Attempt 2: asked for by dev", "due")
	b.follow(b.post(path+"/resend", "account", a.ID)).want(t, http.StatusOK, "waiting or being sent already")
	r.as("olga").get("/dashboard/audit").want(t, http.StatusOK, "Callback sent again", string(s.ID))
}

// A page that is open hears of every change, and of the last.
func TestSessionIsLive(t *testing.T) {
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	s := r.session(a)
	path := "/dashboard/sessions/" + string(s.ID)
	b := r.as("vera")
	live := between(t, b.get(path).body, `data-live="`, `"`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp, err := b.client.Do(b.request(http.MethodGet, live, "").WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	lines := bufio.NewScanner(resp.Body)
	next := func() string {
		for lines.Scan() {
			if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				return event
			}
		}
		return "the end"
	}
	if !lines.Scan() || lines.Text() != "retry: 3000" {
		t.Fatalf("begins with %q", lines.Text())
	}
	r.ended(s, sessions.Outcome{State: sessions.Verified})
	if got := next(); got != "changed" {
		t.Fatalf("event %q", got)
	}
	now := r.clock.Now()
	if err := r.store.Claim(t.Context(), sessions.Claim{Session: s.ID, Number: 1, At: now, Deadline: now.Add(time.Second), SettleAfter: now.Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.Settle(t.Context(), sessions.Result{Session: s.ID, Number: 1, Verdict: sessions.VerdictDelivered, Status: 200, At: now}); err != nil {
		t.Fatal(err)
	}
	got := next()
	if got == "changed" {
		for got == "changed" {
			got = next()
		}
	}
	if got != "settled" {
		t.Fatalf("event %q", got)
	}
	if page := b.get(path); strings.Contains(page.body, "data-live") {
		t.Error("a settled session is still followed")
	}
}

func TestSigningSecretIsShownOnDemandAndRotated(t *testing.T) {
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	secret := a.Secrets[0].Value
	b := r.as("dev")
	page := b.get("/dashboard/signing")
	page.want(t, http.StatusOK, "Show secret", "Rotate secret", "Go", "verify.go")
	page.lacks(t, secret)
	shown := b.post("/dashboard/signing/reveal", "account", a.ID)
	address := b.to(shown)
	b.get(address).want(t, http.StatusOK, secret)
	b.follow(b.get(address)).lacks(t, secret)
	b.post("/dashboard/signing/rotate", "account", a.ID, "overlap", "9y").want(t, http.StatusUnprocessableEntity, "Choose one of these")
	b.follow(b.post("/dashboard/signing/rotate", "account", a.ID, "overlap", "24h")).want(t, http.StatusOK, "The signing secret is a new one", "Callbacks carry both signatures until", "Show secrets")
	b.follow(b.post("/dashboard/signing/rotate", "account", a.ID, "overlap", "24h")).want(t, http.StatusOK, "A rotation is under way already")
	both := b.follow(b.post("/dashboard/signing/reveal", "account", a.ID))
	both.want(t, http.StatusOK, "The current one", "The old one", secret)
	b.follow(b.post("/dashboard/signing/end", "account", a.ID)).want(t, http.StatusOK, "The old secret signs no more", "Show secret")
	b.follow(b.post("/dashboard/signing/end", "account", a.ID)).want(t, http.StatusOK, "No rotation is under way")
	b.follow(b.post("/dashboard/signing/reveal", "account", a.ID)).lacks(t, secret)
	r.as("olga").get("/dashboard/audit").want(t, http.StatusOK, "Signing secret shown", "Signing secret rotated", "Rotation of the signing secret ended")
}

func TestTestCallback(t *testing.T) {
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("dev")
	for to, want := range map[string]string{"": "Write the address", "http://bot.example.com/": "https", "https://127.0.0.1/": "127.0.0.1", "https://localhost/": "name"} {
		page := b.post("/dashboard/signing/test", "account", a.ID, "url", to)
		page.want(t, http.StatusUnprocessableEntity, want)
		if to != "" && !strings.Contains(page.body, `value="`+to+`"`) {
			t.Errorf("%s is not there any more", to)
		}
	}
	if len(r.callbacks.sent) != 0 {
		t.Fatal("something was sent")
	}
	r.clock.advance(time.Minute)
	r.callbacks.answer = dashboard.Exchange{Verdict: sessions.VerdictRejected, Class: sessions.ClassStatus, Status: 401, Detail: "the receiver answered 401 Unauthorized", Answer: "<i>no</i>", Address: "203.0.113.7:443"}
	page := b.follow(b.post("/dashboard/signing/test", "account", a.ID, "url", " https://bot.example.com/verified?k=1 ", "verified", "false"))
	page.want(t, http.StatusOK, "Rejected: the receiver answered 401 Unauthorized.", "webhook-id: cbtest_", "203.0.113.7:443", "<i>no</i>", `"verified":false`)
	sent := r.callbacks.sent[0]
	if sent.URL != "https://bot.example.com/verified?k=1" || sent.Secrets[0] != a.Secrets[0].Value || sent.Verified || !sent.Test {
		t.Errorf("sent %+v", sent)
	}
	page.lacks(t, a.Secrets[0].Value)
	refused := 0
	for range 8 {
		if b.post("/dashboard/signing/test", "account", a.ID, "url", "https://bot.example.com/verified").status == http.StatusUnprocessableEntity {
			refused++
		}
	}
	if refused < 2 {
		t.Errorf("%d of 8 at once were refused", refused)
	}
	audit := r.as("olga").get("/dashboard/audit")
	audit.want(t, http.StatusOK, "Test callback sent", "host: bot.example.com:443")
	audit.lacks(t, "k=1")
}

// Who may change nothing may leave.
func TestViewersMayLeave(t *testing.T) {
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("vera")
	b.get("/dashboard/members").want(t, http.StatusOK, "Leave")
	b.get("/dashboard/members/remove?network=example&subject=olga").want(t, http.StatusForbidden)
	b.get("/dashboard/members/remove?network=example&subject=vera").want(t, http.StatusOK, "Leave this account?")
	b.post("/dashboard/members/remove", "account", a.ID, "network", "example", "subject", "vera").want(t, http.StatusSeeOther)
	after, err := r.accounts.Account(t.Context(), a.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, still := after.Member("example", "vera"); still {
		t.Error("she is still a member")
	}
}

func TestMembersAreManaged(t *testing.T) {
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("olga")
	b.get("/dashboard/members").want(t, http.StatusOK, "Olga Owner", "you", "vera", "Invite somebody")
	role := func(subject, role string) answer {
		return b.follow(b.post("/dashboard/members/role", "account", a.ID, "network", "example", "subject", subject, "role", role))
	}
	vera := r.as("vera")
	vera.get("/dashboard/new-key").want(t, http.StatusForbidden)
	role("vera", "developer").want(t, http.StatusOK, "The role is changed")
	vera.get("/dashboard/new-key").want(t, http.StatusOK) // at the next click
	role("olga", "viewer").want(t, http.StatusOK, "An account needs an owner")
	b.post("/dashboard/members/role", "account", a.ID, "network", "example", "subject", "vera", "role", "king").want(t, http.StatusBadRequest)
	b.post("/dashboard/members/invite", "account", a.ID, "role", "king", "for", "Nils").want(t, http.StatusUnprocessableEntity, "is not a role")
	b.get("/dashboard/members/remove?network=example&subject=vera").want(t, http.StatusOK, "Remove vera?")
	b.follow(b.post("/dashboard/members/remove", "account", a.ID, "network", "example", "subject", "vera")).want(t, http.StatusOK, "The member is removed")
	vera.follow(vera.get("/dashboard/keys")).want(t, http.StatusOK, "Name of the account") // she may make one of her own here
	b.follow(b.post("/dashboard/members/remove", "account", a.ID, "network", "example", "subject", "olga")).want(t, http.StatusOK, "An account needs an owner")
	b.get("/dashboard/audit").want(t, http.StatusOK, "Role changed", "Member removed", "from: viewer", "to: developer")
	b.get("/dashboard/audit?cursor=nonsense").want(t, http.StatusSeeOther)
}

func TestUsageQuickstartAndSettings(t *testing.T) {
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("vera")
	b.get("/dashboard/usage").want(t, http.StatusOK, "2,140 of 5,000 (42 %)", "rate limit", "verified", "Sessions by day")
	b.get("/dashboard/usage?keys=test").want(t, http.StatusOK, "Sessions of test keys by day")
	b.get("/dashboard/usage?month=2999-01").want(t, http.StatusOK, r.clock.Now().UTC().Format("January 2006"))
	if err := r.accounts.SetQuota(t.Context(), account.Operator(""), a.ID, 2140); err != nil {
		t.Fatal(err)
	}
	b.get("/dashboard/usage").want(t, http.StatusOK, "The quota is used up")
	b.get("/dashboard/settings").want(t, http.StatusOK, a.ID, "2,140 sessions", "Log out everywhere", "viewer")
	b.get("/dashboard/quickstart").want(t, http.StatusOK, "You have none yet", "$VERIFYD_API_KEY")
	for _, root := range []string{"/dashboard", "/dashboard/"} {
		if to := b.to(b.get(root)); to != r.base+"/dashboard/sessions" {
			t.Errorf("%s leads to %s", root, to)
		}
	}
}

// No page has a script or a style of its own, and none may be framed or kept.
func TestPolicyOfEveryPage(t *testing.T) {
	r := newRig(t, setup{tls: true})
	r.account("Harbor Guild")
	b := r.as("olga")
	for _, path := range []string{
		"/dashboard/login", "/dashboard/link?token=x", "/dashboard/new-account", "/dashboard/sessions", "/dashboard/keys", "/dashboard/new-key", "/dashboard/signing",
		"/dashboard/usage", "/dashboard/quickstart", "/dashboard/members", "/dashboard/audit", "/dashboard/settings", "/dashboard/sessions/x",
	} {
		a := b.get(path)
		csp := a.header.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") ||
			a.header.Get("Cache-Control") != "no-store" || a.header.Get("Strict-Transport-Security") == "" {
			t.Errorf("%s: %v", path, a.header)
		}
		if strings.Contains(a.body, " style=") || strings.Contains(a.body, "<style") || strings.Contains(a.body, "onclick") || strings.Count(a.body, "<script") > 1 {
			t.Errorf("%s: a style or a script stands in the page", path)
		}
	}
}
