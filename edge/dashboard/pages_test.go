package dashboard_test

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/signing"
	sent "verifyd/edge/dashboard/callbacks"
	"verifyd/edge/dashboard/logins"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/lists"
	"verifyd/sessions/proof"
)

func TestSessionsAreListedFilteredAndPaged(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("vera")
	b.Get("/dashboard/sessions").Want(t, http.StatusOK, "No session yet", "curl "+r.base+"/verify/init")
	for i := range 30 {
		s := r.session(a, func(q *sessions.Request) {
			q.PlatformUserID = "user" + string(rune('a'+i%26)) + "." + string(rune('a'+i/26))
		})
		if i == 29 {
			r.ended(s, sessions.Outcome{State: sessions.Failed, Reason: sessions.Refused}, facts.Result{
				Verdict: facts.VerdictRejected, Status: 500, Class: failure.Status,
			})
		}
	}
	first := b.Get("/dashboard/sessions")
	first.Want(t, http.StatusOK, "userd.b", "failed", "rejected", "Older")
	first.Lacks(t, "usera.a")
	older := between(t, first.Body, `href="/dashboard/sessions?cursor=`, `"`)
	second := b.Get("/dashboard/sessions?cursor=" + older)
	second.Want(t, http.StatusOK, "usera.a", "Newest")
	second.Lacks(t, "userd.b", `rel="next"`)
	for path, want := range map[string]string{
		"?state=failed": "userd.b", "?delivery=rejected": "userd.b", "?user=userd.b": "userd.b",
		"?since=1h&state=pending": "userc.b",
	} {
		page := b.Get("/dashboard/sessions" + path)
		page.Want(t, http.StatusOK, want)
		page.Lacks(t, map[bool]string{true: "userd.b", false: "userc.b"}[want == "userc.b"])
	}
	b.Get("/dashboard/sessions?user=nobody").Want(t, http.StatusOK, "Nothing found", "Show all")
	b.Get("/dashboard/sessions?cursor=nonsense").Want(t, http.StatusSeeOther)
	b.Get("/dashboard/sessions?state=%3Cb%3E&since=x").Want(t, http.StatusOK, "userd.b")
}

func TestSessionShowsItsTimelineAndIsSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	s := r.session(a, func(q *sessions.Request) {
		q.PlatformUserID, q.Reference, q.Locale = "o'brien <b>\u202e", "order <i>", "pt-BR"
		q.DisplayName, q.GroupName = "Brian <u>", "Harbor <s>"
	})
	path := "/dashboard/sessions/" + string(s.ID)
	b := r.as("dev")
	b.post(path+"/resend", "account", a.ID).Want(t, http.StatusSeeOther)
	b.Get(path).Want(t, http.StatusOK, "This session has no outcome to send", "has until", "pending")
	r.ended(s, sessions.Outcome{State: sessions.Verified, Network: "example"}, facts.Result{
		Verdict: facts.VerdictRejected, Class: failure.Status, Status: 503,
		Detail: "the receiver answered 503 Service Unavailable",
		Answer: "<script>alert(1)</script>\n\u202e\x1b",
	})
	page := b.Get(path)
	page.Want(t, http.StatusOK, "Verified (Example Network)", "Rejected: the receiver answered 503",
		"<script>alert(1)</script>\nU+202E U+001B", "Fix the receiver, then send it again",
		"hooks.example.com:443",
		"U+202E", "1 sent", "reference order <i>", "locale pt-BR", "Brian <u>",
		"o'brien <b>", "group Harbor <s>")
	b.Get("/dashboard/sessions").Want(t, http.StatusOK, "order <i>", "Brian <u>", "Harbor <s>")
	if strings.Contains(page.Body, "<script>alert") || strings.Contains(page.Body, "<b>\u202e") {
		t.Error("what somebody typed stands unescaped")
	}
	curl := between(t, page.Text(), "Copy it as a curl command\n", "}'") + "}'"
	if !strings.HasPrefix(curl, "curl -ig 'https://hooks.example.com/verified?token=planted-secret'") ||
		!strings.Contains(curl, "webhook-id: cb_"+string(s.ID)) {
		t.Errorf("curl: %s", curl)
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", "curl() { printf '%s\\n' \"$@\"; }; "+curl).
		CombinedOutput(); err != nil || !strings.Contains(string(out), `"platform_user_id":"o'brien`) {
		t.Errorf("a shell reads %s, %v", out, err)
	}
	sent := b.post(path+"/resend", "account", a.ID)
	behind := b.Request(http.MethodGet, path, "")
	behind.Header.Set("Sec-Fetch-Dest", "empty")
	if fetched := b.Do(behind); fetched.Status != http.StatusOK ||
		strings.Contains(fetched.Body, "on its way again") {
		t.Errorf("a script is told what is for the page that comes: %d", fetched.Status)
	}
	b.Follow(sent).Want(t, http.StatusOK, "on its way again", "Attempt 2: requested by dev", "due")
	b.Follow(b.post(path+"/resend", "account", a.ID)).Want(t, http.StatusOK, "already waiting or being sent")
	r.as("olga").Get("/dashboard/audit").Want(t, http.StatusOK, "Callback sent again", string(s.ID))
}

// The page of a session shows the level that it requires, and the level that was reached.
func TestSessionShowsItsBinding(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	s := r.session(a, func(q *sessions.Request) { q.Level = proof.Code })
	b := r.as("dev")
	path := "/dashboard/sessions/" + string(s.ID)
	b.Get(path).Want(t, http.StatusOK, "· binding code", "pending")
	r.ended(s, sessions.Outcome{State: sessions.Failed, Reason: sessions.Unconfirmed, Reached: proof.Link},
		facts.Result{Verdict: facts.VerdictDelivered, Status: 204})
	b.Get(path).Want(t, http.StatusOK, "· binding code, reached link", "the binding reached is link")
}

// slowList blocks every list until it is released.
type slowList struct{ begun, end chan struct{} }

func (l slowList) List(ctx context.Context, _ lists.Query) (lists.Page, error) {
	l.begun <- struct{}{}
	select {
	case <-l.end:
	case <-ctx.Done():
	}
	return lists.Page{}, nil
}

// Lists that search the store are limited, and those of one account do not take all slots.
func TestListsAtOnceAreBounded(t *testing.T) {
	t.Parallel()
	list := slowList{make(chan struct{}), make(chan struct{})}
	r := newRig(t, setup{list: list})
	r.account("Harbor Guild")
	b := r.as("vera")
	const each = 8
	ended := make(chan int, each)
	for range each {
		go func() { ended <- b.Get("/dashboard/sessions").Status }()
		<-list.begun
	}
	over := b.Get("/dashboard/sessions")
	over.Want(t, http.StatusTooManyRequests, "Too many lists at once")
	if over.Header.Get("Retry-After") == "" {
		t.Error("nobody says when to come back")
	}
	close(list.end)
	for range each {
		if status := <-ended; status != http.StatusOK {
			t.Errorf("a list that was under way: %d", status)
		}
	}
	go func() { <-list.begun }()
	b.Get("/dashboard/sessions").Want(t, http.StatusOK)
}

// A delivered outcome is sent again only after a question, whichever form asks; others by one press. A test
// callback's form keeps its values.
func TestFormsAskAndRemember(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	verified := sessions.Outcome{State: sessions.Verified}
	done, refused := r.session(a), r.session(a)
	r.ended(done, verified, facts.Result{Verdict: facts.VerdictDelivered, Status: 200})
	r.ended(refused, verified, facts.Result{
		Verdict: facts.VerdictRejected, Status: 500, Class: failure.Status,
	})
	b := r.as("dev")
	path := "/dashboard/sessions/" + string(done.ID)
	page := b.Get(path)
	page.Lacks(t, `action="`+path+`/resend"`)
	page.Want(t, http.StatusOK, "Send again…")
	b.Follow(b.post(path+"/resend", "account", a.ID)).
		Want(t, http.StatusOK, "Send it again?", "hooks.example.com:443 has this result")
	if v, err := r.store.Read(t.Context(), done.ID); err != nil ||
		v.Delivery.State != facts.DeliveryDelivered {
		t.Fatalf("the question has sent it: %s, %v", v.Delivery.State, err)
	}
	b.Follow(b.post(path+"/resend", "account", a.ID, "delivered", "yes")).
		Want(t, http.StatusOK, "on its way again")
	b.Follow(b.Get(path+"/resend")).Want(t, http.StatusOK, "due")
	b.Get("/dashboard/sessions/"+string(refused.ID)).
		Want(t, http.StatusOK, "One more attempt, with the same webhook-id")

	r.callbacks.answer = sent.Exchange{Verdict: facts.VerdictDelivered, Status: 204}
	shown := b.Follow(b.post("/dashboard/callbacks/test", "account", a.ID, "url",
		"https://bot.example.com/hook", "verified", "false"))
	shown.Want(t, http.StatusOK, "your receiver accepted it")
	if !strings.Contains(shown.Body, `value="https://bot.example.com/hook"`) ||
		!strings.Contains(shown.Body, `value="false" selected`) {
		t.Errorf("the form forgets what it was sent with:\n%s", shown.Body)
	}
}

// An open page is notified of every change, and of the last.
func TestSessionIsLive(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	s := r.session(a)
	path := "/dashboard/sessions/" + string(s.ID)
	b := r.as("vera")
	live := between(t, b.Get(path).Body, `data-live="`, `"`)
	ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
	defer cancel()
	resp, err := b.Client.Do(b.Request(http.MethodGet, live, "").WithContext(ctx))
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
	if err := r.store.Claim(t.Context(), facts.Claim{
		Session: s.ID, Number: 1, At: now, Deadline: now.Add(time.Second), SettleAfter: now.Add(time.Minute),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.StoreResult(t.Context(), facts.Result{
		Session: s.ID, Number: 1, Verdict: facts.VerdictDelivered, Status: 200, At: now,
	}); err != nil {
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
	if page := b.Get(path); strings.Contains(page.Body, "data-live") {
		t.Error("a settled session is still followed")
	}
}

func TestSigningSecretIsShownOnDemandAndRotated(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	secret := a.Secrets[0].Value
	b := r.as("dev")
	page := b.Get("/dashboard/signing")
	page.Want(t, http.StatusOK, "Show secret", "Rotate secret", "Go", "verify.go")
	page.Lacks(t, secret)
	public := r.accounts.PublicKeys(a)[0].Value
	r.as("vera").Get("/dashboard/signing").Want(t, http.StatusOK, public) // no secret: a viewer reads it too
	shown := b.post("/dashboard/signing/reveal", "account", a.ID)
	address := b.To(shown)
	b.Get(address).Want(t, http.StatusOK, secret)
	b.Follow(b.Get(address)).Lacks(t, secret)
	b.post("/dashboard/signing/rotate", "account", a.ID, "overlap", "9y").
		Want(t, http.StatusUnprocessableEntity, "Choose one of these")
	b.Follow(b.post("/dashboard/signing/rotate", "account", a.ID, "overlap", "24h")).
		Want(t, http.StatusOK, "The signing secret is replaced", "Callbacks carry both signatures until",
			"Show secrets", "Public keys", public)
	b.Follow(b.post("/dashboard/signing/rotate", "account", a.ID, "overlap", "24h")).
		Want(t, http.StatusOK, "A rotation is already in progress")
	both := b.Follow(b.post("/dashboard/signing/reveal", "account", a.ID))
	both.Want(t, http.StatusOK, "The current one", "The old one", secret)
	b.Follow(b.post("/dashboard/signing/end", "account", a.ID)).
		Want(t, http.StatusOK, "The old secret no longer signs", "Show secret")
	b.Follow(b.post("/dashboard/signing/end", "account", a.ID)).
		Want(t, http.StatusOK, "No rotation is in progress")
	b.Follow(b.post("/dashboard/signing/reveal", "account", a.ID)).Lacks(t, secret, public)
	r.as("olga").Get("/dashboard/audit").
		Want(t, http.StatusOK, "Signing secret shown", "Signing secret rotated",
			"Rotation of the signing secret ended")
}

func TestTestCallback(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("dev")
	for to, want := range map[string]string{
		"": "Enter the address", "http://bot.example.com/": "https", "https://127.0.0.1/": "127.0.0.1",
		"https://localhost/": "name",
	} {
		page := b.post("/dashboard/callbacks/test", "account", a.ID, "url", to)
		page.Want(t, http.StatusUnprocessableEntity, want)
		if to != "" && !strings.Contains(page.Body, `value="`+to+`"`) {
			t.Errorf("%s is not there any more", to)
		}
	}
	if len(r.callbacks.sent) != 0 {
		t.Fatal("something was sent")
	}
	r.clock.stop()
	r.clock.advance(time.Minute)
	r.callbacks.answer = sent.Exchange{
		Verdict: facts.VerdictRejected, Class: failure.Status, Status: 401,
		Detail: "the receiver answered 401 Unauthorized", Answer: "<i>no</i>\n\u2066",
		Address: "203.0.113.7:443",
	}
	page := b.Follow(b.post("/dashboard/callbacks/test", "account", a.ID, "url",
		" https://bot.example.com/verified?k=1 ", "verified", "false"))
	page.Want(t, http.StatusOK, "Rejected: the receiver answered 401 Unauthorized.", "webhook-id: cbtest_",
		"203.0.113.7:443", "<i>no</i>\nU+2066", `"verified":false`)
	sent := r.callbacks.sent[0]
	if sent.URL != "https://bot.example.com/verified?k=1" || sent.Secrets[0] != a.Secrets[0].Value ||
		len(sent.Secrets) != 2 || !strings.HasPrefix(sent.Secrets[1], signing.PrivatePrefix) ||
		sent.Verified || !sent.Test {
		t.Errorf("sent %+v", sent)
	}
	page.Lacks(t, a.Secrets[0].Value, sent.Secrets[1])
	refused := 0
	for range 8 {
		if b.post("/dashboard/callbacks/test", "account", a.ID, "url", "https://bot.example.com/verified").
			Status == http.StatusUnprocessableEntity {
			refused++
		}
	}
	if refused < 2 {
		t.Errorf("%d of 8 at once were refused", refused)
	}
	audit := r.as("olga").Get("/dashboard/audit")
	audit.Want(t, http.StatusOK, "Test callback sent", "host: bot.example.com:443")
	audit.Lacks(t, "k=1")
}

// A member who may change nothing may leave.
func TestViewersMayLeave(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("vera")
	b.Get("/dashboard/members").Want(t, http.StatusOK, "Leave")
	b.Get("/dashboard/members/remove?member="+address("olga")).Want(t, http.StatusForbidden)
	b.Get("/dashboard/members/remove?member="+address("vera")).
		Want(t, http.StatusOK, "Leave this account?")
	b.post("/dashboard/members/remove", "account", a.ID, "member", address("vera")).
		Want(t, http.StatusSeeOther)
	after, err := r.accounts.Account(t.Context(), a.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, still := after.Member("example", "vera"); still {
		t.Error("she is still a member")
	}
}

// Pages name a member by their address: what a browser sends of a hidden field with a line end is another
// text. So members whom an older build has admitted can be changed and removed, too.
func TestMembersWithALineEndAreManaged(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	const subject = "eve\nx"
	entry := topology.BucketSubject(topology.BucketAccounts, a.ID)
	m, err := r.conn.Last(t.Context(), topology.BucketStream(topology.BucketAccounts), entry)
	if err != nil {
		t.Fatal(err)
	}
	old := bytes.ReplaceAll(m.Data, []byte(`"subject":"vera"`), []byte(`"subject":"eve\nx"`))
	natstest.Publish(t, r.conn, entry, old)
	b := r.as("olga")
	list := b.Get("/dashboard/members")
	list.Lacks(t, `name="subject"`)
	list.Holds(t, `<input type="hidden" name="member" value="`+address(subject)+`">`)
	b.Follow(b.post("/dashboard/members/role", "account", a.ID, "member", address(subject), "role",
		"developer")).Want(t, http.StatusOK, "The role is changed")
	question := b.Get("/dashboard/members/remove?member=" + address(subject))
	question.Want(t, http.StatusOK, "Remove vera?")
	question.Holds(t, `name="member" value="`+address(subject)+`"`)
	b.Follow(b.post("/dashboard/members/remove", "account", a.ID, "member", address(subject))).
		Want(t, http.StatusOK, "The member is removed")
	if now, err := r.accounts.Account(t.Context(), a.ID); err != nil || len(now.Members) != 2 {
		t.Errorf("%+v, %v", now.Members, err)
	}
	b.Get("/dashboard/members/remove?member="+address(subject)).Want(t, http.StatusNotFound)
}

func TestMembersAreManaged(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("olga")
	b.Get("/dashboard/members").Want(t, http.StatusOK, "Olga Owner", "you", "vera", "Invite somebody")
	role := func(subject, role string) answer {
		return b.Follow(b.post("/dashboard/members/role", "account", a.ID, "network", "example", "subject",
			subject, "role", role))
	}
	vera := r.as("vera")
	vera.Get("/dashboard/new-key").Want(t, http.StatusForbidden)
	role("vera", "developer").Want(t, http.StatusOK, "The role is changed")
	vera.Get("/dashboard/new-key").Want(t, http.StatusOK) // at the next click
	role("olga", "viewer").Want(t, http.StatusOK, "An account needs an owner")
	b.post("/dashboard/members/role", "account", a.ID, "network", "example", "subject", "vera", "role",
		"king").Want(t, http.StatusBadRequest)
	b.post("/dashboard/members/invite", "account", a.ID, "role", "king", "for", "Nils").
		Want(t, http.StatusUnprocessableEntity, "is not a role")
	b.Get("/dashboard/members/remove?network=example&subject=vera").Want(t, http.StatusOK, "Remove vera?")
	b.Follow(b.post("/dashboard/members/remove", "account", a.ID, "network", "example", "subject", "vera")).
		Want(t, http.StatusOK, "The member is removed")
	// she may make one of her own here
	vera.Follow(vera.Get("/dashboard/keys")).Want(t, http.StatusOK, "Name of the account")
	b.Follow(b.post("/dashboard/members/remove", "account", a.ID, "network", "example", "subject", "olga")).
		Want(t, http.StatusOK, "An account needs an owner")
	b.Get("/dashboard/audit").
		Want(t, http.StatusOK, "Role changed", "Member removed", "from: viewer", "to: developer")
	b.Get("/dashboard/audit?cursor=nonsense").Want(t, http.StatusSeeOther)
}

func TestUsageQuickstartAndSettings(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("vera")
	b.Get("/dashboard/usage").
		Want(t, http.StatusOK, "2,140 of 5,000 (42 %)", "rate limit", "verified", "Sessions by day")
	b.Get("/dashboard/usage").
		Want(t, http.StatusOK, "How far users got", "page opened", "dropped off", "still open", "expired",
			"Example Network")
	b.Get("/dashboard/usage?keys=test").Want(t, http.StatusOK, "Sessions of test keys by day")
	b.Get("/dashboard/usage?month=2999-01").Want(t, http.StatusOK, r.clock.Now().UTC().Format("January 2006"))
	if err := r.accounts.SetQuota(t.Context(), access.Operator(""), a.ID, 2140); err != nil {
		t.Fatal(err)
	}
	b.Get("/dashboard/usage").Want(t, http.StatusOK, "The quota is used up")
	b.Get("/dashboard/settings").
		Want(t, http.StatusOK, a.ID, "2,140 sessions", "Log out everywhere", "viewer")
	b.Get("/dashboard/quickstart").Want(t, http.StatusOK, "You have none yet", "$VERIFYD_API_KEY",
		"first verified user of Harbor Guild",
		"verifyd listen --base-url "+r.base+" --forward http://localhost",
		"verifyd try http://localhost:3000/hook --allow-private")
	for _, o := range []account.KeyOptions{{Name: "on my desk", Test: true}, {Name: "night bot"}} {
		if _, _, err := r.accounts.CreateKey(t.Context(), access.Operator(""), a.ID, o); err != nil {
			t.Fatal(err)
		}
	}
	r.until("both keys", func() bool { return len(r.mirror.Keys(a.ID)) == 2 })
	b.Get("/dashboard/quickstart").Want(t, http.StatusOK, "Your test key is on my desk, vfytest_…",
		"sessions of on my desk, vfytest_…", "the live key night bot, vfy_…")
	for _, root := range []string{"/dashboard", "/dashboard/"} {
		if to := b.To(b.Get(root)); to != r.base+"/dashboard/sessions" {
			t.Errorf("%s leads to %s", root, to)
		}
	}
}

// No page has an inline script or style, and none may be framed or cached.
func TestPolicyOfEveryPage(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{tls: true})
	r.account("Harbor Guild")
	b := r.as("olga")
	for _, path := range []string{
		"/dashboard/login", "/dashboard/link?token=x", "/dashboard/new-account", "/dashboard/sessions",
		"/dashboard/keys", "/dashboard/new-key", "/dashboard/signing",
		"/dashboard/callbacks", "/dashboard/callbacks/test",
		"/dashboard/usage", "/dashboard/quickstart", "/dashboard/members", "/dashboard/audit",
		"/dashboard/settings", "/dashboard/sign-in-page",
		"/dashboard/logins", "/dashboard/sessions/x", "/dashboard/sign-in-again",
	} {
		if path == "/dashboard/sign-in-again" { // it leads on as long as the sign-in is fresh
			r.clock.advance(logins.FreshFor)
		}
		a := b.Get(path)
		csp := a.Header.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") ||
			!strings.Contains(csp, "frame-ancestors 'none'") ||
			a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("Strict-Transport-Security") == "" {
			t.Errorf("%s: %v", path, a.Header)
		}
		if strings.Contains(a.Body, " style=") || strings.Contains(a.Body, "<style") ||
			strings.Contains(a.Body, "onclick") || strings.Count(a.Body, "<script") > 1 {
			t.Errorf("%s: a style or a script stands in the page", path)
		}
	}
}
