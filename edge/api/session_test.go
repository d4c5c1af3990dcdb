package api

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/limit"
	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/natsconf/natstest"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/timeline"
)

func idOf(t *testing.T, token string) string {
	t.Helper()
	id, err := sessions.ParseID(token)
	if err != nil {
		t.Fatal(err)
	}
	return string(id)
}

func TestReadPendingSession(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	begun := s.start(t)
	id := idOf(t, begun.Session)
	for _, name := range []string{begun.Session, id} {
		a := s.get(t, name, acmeKey)
		created := web.Timestamp(s.clock.now())
		want := fmt.Sprintf(`{"id":%q,"test":false,"platform":"chat","platform_user_id":"u-1","guild_id":"g-1","binding":"link","reached":null,"state":"pending","step":"","verified":null,"reason":"","rule":"",`+
			`"created_at":%q,"expires_at":%q,"completed_at":null,"delivery":{"state":"none","attempts":[],"waiting":null},`+
			`"reference":"","locale":"","display_name":"","group_name":""}`,
			id, created, begun.ExpiresAt)
		if a.status != http.StatusOK || a.body != want {
			t.Errorf("%d %s\nwant %s", a.status, a.body, want)
		}
		if a.header.Get("Content-Type") != "application/json" || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("headers = %v", a.header)
		}
	}
	if head := s.do(t, http.MethodHead, "/sessions/"+id, "", "Authorization",
		"Bearer "+acmeKey); head.status != http.StatusOK || head.body != "" {
		t.Errorf("HEAD: %d %q", head.status, head.body)
	}
}

func TestReadEveryOutcome(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for _, row := range []struct {
		outcome  sessions.Outcome
		verified string
		delivery string
	}{
		{sessions.Outcome{State: sessions.Verified, Network: "default"}, "true", "due"},
		{sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined}, "false", "due"},
		{sessions.Outcome{State: sessions.Failed, Reason: sessions.Refused, Network: "default"}, "false",
			"due"},
		{sessions.Outcome{State: sessions.Failed, Reason: sessions.Refused, Rule: failure.RuleAccountAge,
			Network: "default"}, "false", "due"},
		{sessions.Outcome{State: sessions.Canceled, Reason: sessions.CanceledReason}, "null", "none"},
	} {
		token := s.start(t).Session
		s.complete(t, token, row.outcome)
		a := s.get(t, token, acmeKey)
		want := fmt.Sprintf(`"state":%q,"step":"","verified":%s,"reason":%q,"rule":%q,`, row.outcome.State,
			row.verified, row.outcome.Reason, row.outcome.Rule)
		completed := fmt.Sprintf(`"completed_at":%q,"delivery":{"state":%q,"attempts":[],"waiting":null}`,
			web.Timestamp(s.clock.now()), row.delivery)
		if a.status != http.StatusOK || !strings.Contains(a.body, want) ||
			!strings.Contains(a.body, completed) {
			t.Errorf("%d %s\nwant %s … %s", a.status, a.body, want, completed)
		}
	}
}

func TestReadExpiredSession(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	token := s.start(t).Session
	s.clock.advance(sessions.Lifetime - time.Millisecond)
	if got := parse[sessionDoc](t, s.get(t, token, acmeKey), http.StatusOK); got.State != sessions.Pending {
		t.Errorf("1 ms before its expiry the session is %s", got.State)
	}
	s.clock.advance(time.Millisecond)
	got := parse[sessionDoc](t, s.get(t, token, acmeKey), http.StatusOK)
	if got.State != sessions.Expired || got.Verified != nil || got.Reason != "expired" ||
		got.CompletedAt != nil || got.Delivery.State != "none" {
		t.Errorf("session = %+v", got)
	}
	wantProblem(t, s.cancel(t, token, acmeKey), problem.CodeSessionExpired)
}

// Every member of an attempt, while it is in progress and after it ended; and nothing of the receiver's
// answer.
func TestReadAttempts(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	token := s.start(t).Session
	id := sessions.ID(idOf(t, token))
	s.complete(t, token, sessions.Outcome{State: sessions.Verified})
	at := time.Date(2030, 1, 2, 3, 4, 5, 678_900_000, time.UTC)
	claim := func(n int) {
		t.Helper()
		if err := s.store.Claim(t.Context(), facts.Claim{
			Session: id, Number: n, Worker: "w", At: at, Deadline: at, SettleAfter: at,
		}); err != nil {
			t.Fatal(err)
		}
	}
	settle := func(r facts.Result) {
		t.Helper()
		r.Session, r.At, r.By, r.Answer, r.Detail = id, at.Add(time.Second), "w", "MARKERANSWER",
			"MARKERDETAIL"
		if _, err := s.store.StoreResult(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	claim(1)
	settle(facts.Result{Number: 1, Verdict: facts.VerdictReleased, Class: failure.Late})
	claim(2)
	first := `{"number":1,"verdict":"released","class":"late","status":null,"claimed_at":"2030-01-02T03:04:05.678Z","ended_at":"2030-01-02T03:04:06.678Z"}`
	for _, row := range []struct{ state, second string }{
		{"claimed", `{"number":2,"verdict":null,"class":"","status":null,"claimed_at":"2030-01-02T03:04:05.678Z","ended_at":null}`},
		{"rejected", `{"number":2,"verdict":"rejected","class":"status","status":503,"claimed_at":"2030-01-02T03:04:05.678Z","ended_at":"2030-01-02T03:04:06.678Z"}`},
	} {
		if row.state == "rejected" {
			settle(facts.Result{
				Number: 2, Verdict: facts.VerdictRejected, Class: failure.Status, Status: 503,
			})
		}
		a := s.get(t, token, acmeKey)
		if want := `"delivery":{"state":"` + row.state + `","attempts":[` + first + "," + row.second +
			`],"waiting":null}`; !strings.Contains(a.body, want) {
			t.Errorf("%s\nwant %s", a.body, want)
		}
		if strings.Contains(a.body, "MARKER") || strings.Contains(a.body, "bot.example.com") {
			t.Errorf("the answer or the callback URL is shown: %s", a.body)
		}
	}
}

// A callback that is due says why, wherever a session is read.
func TestReadWhyItIsDue(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	token := s.start(t).Session
	s.complete(t, token, sessions.Outcome{State: sessions.Verified})
	view, err := s.store.Read(t.Context(), sessions.ID(idOf(t, token)))
	if err != nil {
		t.Fatal(err)
	}
	s.store.Emit(timeline.Event{
		Name: timeline.EventNotSent, At: time.Date(2030, 1, 2, 3, 4, 5, 678_900_000, time.UTC), Attempt: 1,
		Tries: 4, Class: failure.Connect, Detail: "=refused the connection", Next: 9 * time.Second,
	}.Of(view.Session))
	want := `"delivery":{"state":"due","attempts":[],"waiting":{"tries":4,"class":"connect",` +
		`"detail":"=refused the connection","tried_at":"2030-01-02T03:04:05.678Z",` +
		`"next_attempt_at":"2030-01-02T03:04:14.678Z"}}`
	natstest.AwaitValue(t, want, func() string { return s.get(t, token, acmeKey).body },
		func(body string) bool { return strings.Contains(body, want) })
	listed := func(accept string) string {
		return s.do(t, http.MethodGet, pathList, "", "Authorization", "Bearer "+acmeKey, "Accept",
			accept).body
	}
	for _, accept := range []string{"application/json", "application/jsonl"} {
		if got := listed(accept); !strings.Contains(got, want) {
			t.Errorf("%s: %s", accept, got)
		}
	}
	const cells = ",due,0,connect,,,,4,'=refused the connection,2030-01-02T03:04:05.678Z," +
		"2030-01-02T03:04:14.678Z,,\r\n"
	if got := listed("text/csv"); !strings.HasSuffix(got, cells) {
		t.Errorf("%s\nwant %s", got, cells)
	}
}

func TestArbitraryStringsComeBackUnchanged(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for name, value := range map[string]string{
		"emoji":           "👩‍👩‍👧 🏳️‍🌈",
		"right to left":   "\u202eمرحبا שלום\u202c",
		"quotes":          `"'` + "`" + `\"<>&</script>{{.}}`,
		"newlines":        "a\nb\r\nc\td",
		"NUL":             "a\x00b",
		"controls":        "\x01\x1f\x7f\u0085\u2028\u2029",
		"not normalised":  "e\u0301 \u00e9",
		"noncharacters":   "\ufffe\uffff\U0010ffff",
		"replacement":     "\ufffd",
		"byte order":      "\ufeffx",
		"white space":     "  x  ",
		"longest":         strings.Repeat("x", 1024),
		"longest emoji":   strings.Repeat("😀", 256),
		"looks like JSON": `{"verified":true}`,
	} {
		t.Run(name, func(t *testing.T) {
			in := map[string]string{
				"platform": value, "platform_user_id": value, "guild_id": value,
				"callback_url": "https://h.example/",
			}
			body, err := json.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			token := parse[started](t, s.init(t, string(body)), http.StatusOK).Session
			for _, when := range []string{"pending", "verified"} {
				if when == "verified" {
					s.complete(t, token, sessions.Outcome{State: sessions.Verified})
				}
				got := parse[sessionDoc](t, s.get(t, token, acmeKey), http.StatusOK)
				if got.Platform != value || got.PlatformUserID != value || got.GuildID != value {
					t.Errorf("%s: %q, %q, %q; want %q", when, got.Platform, got.PlatformUserID, got.GuildID,
						value)
				}
			}
		})
	}
}

func TestOnlyTheOwnAccountSeesASession(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	begun := s.start(t)
	id := idOf(t, begun.Session)
	unknown := strings.Repeat("a", 32)
	names := []string{
		begun.Session, id, unknown, strings.Repeat("A", 43), "x", id[:31], id + "a", strings.ToUpper(id),
		"%00", "%ff", "..", "a%2Fb",
	}
	for _, name := range names {
		key := otherKey
		a, b := s.get(t, name, key), s.cancel(t, name, key)
		if name == "a%2Fb" { // another path to the router, without a route
			wantProblem(t, a, problem.CodeNotFound)
			wantProblem(t, b, problem.CodeNotFound)
			continue
		}
		wantProblem(t, a, problem.CodeSessionNotFound)
		wantProblem(t, b, problem.CodeSessionNotFound)
	}
	for _, a := range []answer{
		s.do(t, http.MethodGet, "/sessions/"+id, ""),
		s.do(t, http.MethodPost, "/sessions/"+id+"/cancel", ""),
	} {
		wantProblem(t, a, problem.CodeKeyMissing)
	}
	wantProblem(t, s.get(t, id, revokedKey), problem.CodeKeyInvalid)
	if got := parse[sessionDoc](t, s.get(t, id, slowKey), http.StatusOK); got.State != sessions.Pending {
		t.Errorf("for another key of the account the session is %s; strangers must not have moved it",
			got.State)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	token := s.start(t).Session
	open := s.read(t, token)
	first := s.cancel(t, token, acmeKey)
	got := parse[sessionDoc](t, first, http.StatusOK)
	if got.State != sessions.Canceled || got.Verified != nil || got.Reason != "canceled" ||
		got.CompletedAt == nil || got.Delivery.State != "none" {
		t.Errorf("session = %+v", got)
	}
	s.clock.advance(time.Minute)
	for _, again := range []answer{s.cancel(t, idOf(t, token), slowKey), s.get(t, token, acmeKey)} {
		if again.status != http.StatusOK || again.body != first.body {
			t.Errorf("afterwards: %d %s\nwant %s", again.status, again.body, first.body)
		}
	}
	if _, err := s.store.Complete(t.Context(), open, sessions.Outcome{State: sessions.Verified}); err == nil {
		t.Error("a canceled session was verified")
	}
}

func TestCancelOfACompletedSession(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for _, o := range []sessions.Outcome{
		{State: sessions.Verified}, {State: sessions.Failed, Reason: sessions.Declined},
	} {
		token := s.start(t).Session
		s.complete(t, token, o)
		p := wantProblem(t, s.cancel(t, token, acmeKey), problem.CodeSessionCompleted)
		if !strings.Contains(p.Detail, string(o.State)) {
			t.Errorf("detail = %q", p.Detail)
		}
	}
}

// stale is a store with outdated reads: what Complete finds decides.
type stale struct {
	Sessions

	view func(facts.View) facts.View
}

func (s stale) ReadOf(ctx context.Context, account string, id sessions.ID) (facts.View, error) {
	v, err := s.Sessions.ReadOf(ctx, account, id)
	return s.view(v), err
}

func TestCancelThatComesSecond(t *testing.T) {
	t.Parallel()
	pending := func(v facts.View) facts.View {
		v.Outcome, v.CompletedAt, v.Delivery = sessions.Outcome{State: sessions.Pending}, time.Time{},
			facts.Delivery{State: facts.DeliveryNone}
		return v
	}
	s := newService(t, func(c *Config) { c.Sessions = stale{c.Sessions, pending} })
	verified, canceled, expired := s.start(t).Session, s.start(t).Session, s.start(t).Session
	s.complete(t, verified, sessions.Outcome{State: sessions.Verified})
	s.complete(t, canceled, sessions.Outcome{State: sessions.Canceled, Reason: sessions.CanceledReason})
	wantProblem(t, s.cancel(t, verified, acmeKey), problem.CodeSessionCompleted)
	if got := parse[sessionDoc](t, s.cancel(t, canceled, acmeKey),
		http.StatusOK); got.State != sessions.Canceled || got.CompletedAt == nil {
		t.Errorf("session = %+v", got)
	}
	s.clock.advance(sessions.Lifetime)
	wantProblem(t, s.cancel(t, expired, acmeKey), problem.CodeSessionExpired)
}

// Each resend is a POST to somebody and facts in the store, so their number is limited.
func TestResendsCountTowardsTheRate(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	token := s.start(t).Session
	c := s.complete(t, token, sessions.Outcome{State: sessions.Verified, Network: "default"})
	if err := s.store.Claim(t.Context(), facts.Claim{
		Session: c.ID, Number: 1, At: s.clock.now(),
	}); err != nil {
		t.Fatal(err)
	}
	result := facts.Result{
		Session: c.ID, Number: 1, Verdict: facts.VerdictRejected, Class: failure.Status, Status: 500,
		At: s.clock.now(),
	}
	if _, err := s.store.StoreResult(t.Context(), result); err != nil {
		t.Fatal(err)
	}
	resend := func() answer {
		return s.do(t, http.MethodPost, "/sessions/"+token+"/resend", "", "Authorization", "Bearer "+slowKey)
	}
	parse[sessionDoc](t, resend(), http.StatusAccepted)
	wantProblem(t, resend(), problem.CodeDeliveryOpen)
	a := resend()
	wantProblem(t, a, problem.CodeRateLimited)
	wantRetryAfter(t, a, 60, 60)
	// The account's other keys are not slowed.
	wantProblem(t, s.do(t, http.MethodPost, "/sessions/"+token+"/resend", "", "Authorization",
		"Bearer "+acmeKey), problem.CodeDeliveryOpen)
}

// All keys of an account send again at the rate of one, and none while the store is nearly full.
func TestResendsOfManyKeysShareARate(t *testing.T) {
	t.Parallel()
	high := false
	rates, err := limit.NewRates(account.Rate{Count: 1, Per: time.Minute, Burst: 2})
	if err != nil {
		t.Fatal(err)
	}
	s := newService(t, func(c *Config) {
		c.StoreHigh = func() bool { return high }
		c.Rates = rates
		c.Keys = renamed{c.Keys}
	})
	resend := func() answer {
		return s.do(t, http.MethodPost, "/sessions/"+strings.Repeat("a", 43)+"/resend", "",
			"Authorization", "Bearer "+acmeKey)
	}
	high = true
	wantProblem(t, resend(), problem.CodeStoreFull)
	high = false
	wantProblem(t, resend(), problem.CodeSessionNotFound)
	wantProblem(t, resend(), problem.CodeRateLimited)
}

// renamed makes each use of a key that of another key of the same account.
type renamed struct{ keys }

type keys = Keys // which has a method of that name

func (k renamed) Lookup(secret string) (account.Principal, error) {
	who, err := k.keys.Lookup(secret)
	who.Key.ID = rand.Text()
	return who, err
}
