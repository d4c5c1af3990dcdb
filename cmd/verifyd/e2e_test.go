package main

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
)

func TestSignInEndsInOneSignedPost(t *testing.T) {
	t.Parallel()
	r := boot(t)
	hook := must[*standardwebhooks.Webhook](t)(standardwebhooks.NewWebhook(r.secret))
	for name, c := range map[string]struct {
		members map[string]any
		body    string
	}{
		"with guild_id": {
			map[string]any{"guild_id": "118"},
			`{"platform_user_id":"sailor_42","guild_id":"118","verified":true}`,
		},
		"without guild_id": {nil, `{"platform_user_id":"sailor_42","guild_id":"","verified":true}`},
	} {
		members := map[string]any{
			"platform": "discord", "platform_user_id": "sailor_42", "callback_url": r.inbox.CallbackURL(),
		}
		maps.Copy(members, c.members)
		s := r.api().init(t, members)
		if s.VerifyURL != r.Base+"/?session="+s.Session {
			t.Errorf("%s: verify_url = %s", name, s.VerifyURL)
		}
		b := demo.NewBrowser()
		end := must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in"))
		expectTitle(t, end, http.StatusOK, "You are verified")
		if q := end.At.Query(); len(q) != 1 || q.Get("session") != s.Session {
			t.Errorf("%s: the clean page is %s", name, end.At)
		}
		got := <-r.inbox.got
		if string(got.Body) != c.body {
			t.Errorf("%s: body = %s", name, got.Body)
		}
		if err := hook.Verify(got.Body, got.Header); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		v := r.api().until(t, s.Session, "delivered")
		if v.State != "verified" || v.Verified == nil || !*v.Verified || len(v.Delivery.Attempts) != 1 {
			t.Errorf("%s: read back %+v", name, v)
		}
		if n := r.inbox.count(v.ID); n != 1 {
			t.Errorf("%s: %d POSTs", name, n)
		}
	}
}

func TestNoIsAnOutcome(t *testing.T) {
	t.Parallel()
	r := boot(t)
	ways := map[string]func(t *testing.T, b *demo.Browser, link string) *demo.Page{
		"declined at the provider": func(t *testing.T, b *demo.Browser, link string) *demo.Page {
			return must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, link), "decline"))
		},
		"don't verify me": func(t *testing.T, b *demo.Browser, link string) *demo.Page {
			p := must[*demo.Page](t)(b.Open(t.Context(), link))
			return must[*demo.Page](t)(b.Press(t.Context(), p, "decline"))
		},
	}
	for name, way := range ways {
		s := r.begin(t)
		expectTitle(t, way(t, demo.NewBrowser(), s.VerifyURL), http.StatusOK, "You were not verified")
		if got := <-r.inbox.got; string(
			got.Body) != `{"platform_user_id":"sailor_42","guild_id":"118","verified":false}` {
			t.Errorf("%s: body = %s", name, got.Body)
		}
		if v := r.api().until(t, s.Session, "delivered"); v.State != "failed" || v.Reason != "declined" {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// A provider's failure is no verdict: nothing is decided, and the next try succeeds.
func TestProviderTroubleThenSuccess(t *testing.T) {
	t.Parallel()
	r := boot(t)
	for _, trouble := range []string{"error", "token-error"} {
		s, b := r.begin(t), demo.NewBrowser()
		p := must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), trouble))
		expectTitle(t, p, http.StatusOK, "Is this you?")
		if v := r.api().read(t, s.Session); v.State != "pending" || v.Verified != nil {
			t.Errorf("%s: %+v", trouble, v)
		}
		p = must[*demo.Page](t)(b.Press(t.Context(), p, "dev"))
		expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), p, "sign-in")), http.StatusOK,
			"You are verified")
		<-r.inbox.got
		r.api().until(t, s.Session, "delivered")
	}
}

// Two tabs of one browser and two browsers finish at the same moment: one completion, one POST, and all see
// the same.
func TestManyFinishTogether(t *testing.T) {
	r := boot(t)
	s := r.begin(t)
	b, other := demo.NewBrowser(), demo.NewBrowser()
	tabs := []*demo.Browser{b, b, b, b}
	returns := make([]string, len(tabs))
	for i, b := range tabs {
		action := []string{"sign-in", "decline"}[i%2]
		returns[i] = must[string](t)(b.Begin(t.Context(), atProvider(t, b, s.VerifyURL), action))
	}
	expectTitle(t, must[*demo.Page](t)(other.Open(t.Context(), s.VerifyURL)), http.StatusConflict,
		"Started in another browser")
	var wg sync.WaitGroup
	titles := make([]string, len(tabs))
	for i, b := range tabs {
		wg.Go(func() { titles[i] = must[*demo.Page](t)(b.Open(t.Context(), returns[i])).Title() })
	}
	wg.Wait()
	v := r.api().until(t, s.Session, "delivered")
	want := map[string]string{"verified": "You are verified", "failed": "You were not verified"}[v.State]
	for i, title := range titles {
		if title != want {
			t.Errorf("tab %d read %q, the outcome is %s", i, title, v.State)
		}
	}
	if n := r.inbox.count(v.ID); n != 1 {
		t.Errorf("%d POSTs", n)
	}
}

func TestReloadOfTheReturnRepeatsNothing(t *testing.T) {
	t.Parallel()
	r := boot(t)
	s, b := r.begin(t), demo.NewBrowser()
	back := must[string](t)(b.Begin(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in"))
	for range 5 {
		expectTitle(t, must[*demo.Page](t)(b.Open(t.Context(), back)), http.StatusOK, "You are verified")
	}
	v := r.api().until(t, s.Session, "delivered")
	expectTitle(t, must[*demo.Page](t)(b.Open(t.Context(), s.VerifyURL)), http.StatusOK, "You are verified")
	if n := r.inbox.count(v.ID); n != 1 {
		t.Errorf("%d POSTs", n)
	}
}

func TestExpiredSessionIsNeverCompleted(t *testing.T) {
	t.Parallel()
	r := boot(t)
	s, b := r.begin(t), demo.NewBrowser()
	back := must[string](t)(b.Begin(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in"))
	r.offset.Store(int64(sessions.Lifetime))
	for _, link := range []string{s.VerifyURL, back} {
		if p := must[*demo.Page](t)(demo.NewBrowser().
			Open(t.Context(), s.VerifyURL)); p.Status != http.StatusGone ||
			p.Title() != "This link has expired" {
			t.Errorf("%s: %d %q", link[:20], p.Status, p.Title())
		}
	}
	_ = must[*demo.Page](t)(b.Open(t.Context(), back))
	if v := r.api().read(t, s.Session); v.State != "expired" || v.Reason != "expired" ||
		v.Delivery.State != "none" {
		t.Errorf("%+v", v)
	}
	if status, _, body := r.api().
		call(t, http.MethodPost, "/sessions/"+s.Session+"/cancel", ""); status != http.StatusConflict {
		t.Errorf("cancel of an expired session: %d %s", status, body)
	}
	fresh := r.begin(t) // delivered after it, so the dispatcher had its chance
	expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, fresh.VerifyURL), "sign-in")),
		http.StatusOK, "You are verified")
	r.api().until(t, fresh.Session, "delivered")
	if n := r.inbox.count(r.api().read(t, s.Session).ID); n != 0 {
		t.Errorf("%d POSTs for an expired session", n)
	}
}

func TestCanceledSessionSendsNothing(t *testing.T) {
	t.Parallel()
	r := boot(t)
	s := r.begin(t)
	for range 2 { // the repeat is harmless
		status, _, body := r.api().call(t, http.MethodPost, "/sessions/"+s.Session+"/cancel", "")
		if status != http.StatusOK || !strings.Contains(string(body), `"canceled"`) {
			t.Errorf("cancel: %d %s", status, body)
		}
	}
	expectTitle(t, must[*demo.Page](t)(demo.NewBrowser().Open(t.Context(), s.VerifyURL)), http.StatusOK,
		"No longer needed")
	if v := r.api().read(t, s.Session); v.State != "canceled" || v.Delivery.State != "none" {
		t.Errorf("%+v", v)
	}
}

// Chat applications open links to draw previews. Whatever opens the link, and however often, nothing changes.
func TestBotsChangeNothing(t *testing.T) {
	t.Parallel()
	r := boot(t)
	s := r.begin(t)
	natstest.Await(t, "the session is counted, and its key's use", func() bool { // seconds after its start
		_, _, usage := r.api().call(t, http.MethodGet, "/usage", "")
		used, err := r.Store.Accounts.LastUsed(t.Context())
		return strings.Contains(string(usage), `"started":1`) && err == nil && len(used) == 1
	})
	before := r.lastSequences(t)
	client := http.Client{
		Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	defer client.CloseIdleConnections()
	agents := []string{
		"Mozilla/5.0 (compatible; Discordbot/2.0; +https://discordapp.com)", "TelegramBot (like TwitterBot)",
		"Slackbot-LinkExpanding 1.0", "WhatsApp/2.23", "facebookexternalhit/1.1",
	}
	for i := range 200 {
		method := []string{http.MethodGet, http.MethodHead}[i%2]
		q := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), method, s.VerifyURL, nil))
		q.Header.Set("User-Agent", agents[i%len(agents)])
		response := must[*http.Response](t)(client.Do(q))
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK || response.Header.Get("Set-Cookie") != "" {
			t.Fatalf("%s: %d, cookies %q", method, response.StatusCode, response.Header.Values("Set-Cookie"))
		}
	}
	if after := r.lastSequences(t); !reflect.DeepEqual(before, after) {
		t.Errorf("streams moved from %v to %v", before, after)
	}
	b := demo.NewBrowser()
	expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in")),
		http.StatusOK, "You are verified")
}

func (r *rig) lastSequences(t *testing.T) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	for _, c := range topology.New(topology.Options{}).Streams {
		s := must[jetstream.Stream](t)(r.Store.Conn.JS.Stream(t.Context(), c.Name))
		all[c.Name] = s.CachedInfo().State.LastSeq
	}
	return all
}

func TestArbitraryStringsComeBackUnchanged(t *testing.T) {
	t.Parallel()
	r := boot(t)
	for name, text := range map[string]string{
		"emoji": "⚓️👩‍🚀🏴‍☠️", "right to left": "مرحبا \u202eabc\u202c שלום",
		"quotes": `"'\<script>&amp;</script>`, "newline": "a\nb\r\n\tc",
		"control": "\x00\x01\x1f\x7f\u0085\u2028\u2029\ufeff", "1,024 bytes": strings.Repeat("ü", 512),
		"noncharacter": "\uffff\U0010ffff",
	} {
		s := r.api().init(t, map[string]any{
			"platform": text, "platform_user_id": text, "guild_id": text,
			"callback_url": r.inbox.CallbackURL(),
		})
		b := demo.NewBrowser()
		expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in")),
			http.StatusOK, "You are verified")
		got := <-r.inbox.got
		var body map[string]any
		if err := json.Unmarshal(got.Body, &body); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{"platform_user_id": text, "guild_id": text, "verified": true}
		if !reflect.DeepEqual(body, want) {
			t.Errorf("%s: %q", name, got.Body)
		}
		if v := r.api().read(t, s.Session); v.Platform != text || v.PlatformUserID != text ||
			v.GuildID != text {
			t.Errorf("%s: read back %+v", name, v)
		}
	}
}

func TestKeysOfOthersAndRevokedKeys(t *testing.T) {
	t.Parallel()
	r := boot(t)
	s := r.begin(t)
	otherKey, _ := r.enroll(t, "Somebody Else")
	other := api{base: r.Base, key: otherKey}
	for _, call := range [][2]string{
		{http.MethodGet, "/sessions/" + s.Session}, {http.MethodPost, "/sessions/" + s.Session + "/cancel"},
	} {
		if status, _, _ := other.call(t, call[0], call[1], ""); status != http.StatusNotFound {
			t.Errorf("%s with another account's key: %d", call[0], status)
		}
	}
	if _, err := r.Store.Accounts.RevokeKey(t.Context(), operator(), "", otherKey); err != nil {
		t.Fatal(err)
	}
	if header, _ := other.gone(t); header.Get("WWW-Authenticate") == "" {
		t.Error("401 without WWW-Authenticate")
	}
}

// A hundred calls race for the last session of the month: exactly one gets it.
func TestQuotaIsExact(t *testing.T) {
	t.Parallel()
	r := boot(t, func(c *config.Config) { c.Quota = 10; c.Rate.Count, c.Rate.Burst = 10_000, 10_000 })
	for range 9 {
		r.begin(t)
	}
	var wg sync.WaitGroup
	statuses := make([]int, 100)
	for i := range statuses {
		wg.Go(func() {
			statuses[i], _, _ = r.api().
				call(t, http.MethodPost, "/verify/init",
					`{"platform":"p","platform_user_id":"u","callback_url":"`+r.inbox.CallbackURL()+`"}`)
		})
	}
	wg.Wait()
	slices.Sort(statuses)
	if statuses[0] != http.StatusOK || statuses[1] != http.StatusTooManyRequests {
		t.Errorf("statuses %v", statuses)
	}
}

// Each actor is killed in turn; its supervisor starts it again, and a session goes through from end to end.
func TestKilledActorsAreRestarted(t *testing.T) {
	t.Parallel()
	r := boot(t)
	names := []string{
		"sessions writer", "completions writer", "retries writer", "usage writer", "idempotency writer",
		"session watch", "meter", "rate sharing", "search", "quota", "key mirror",
		"store gauge",
		"dispatcher", "dev network", "public server", "admin server",
	}
	if !natstest.OnCluster() {
		names = append(names, "store watchdog", "embedded server")
	}
	for _, name := range names {
		if !r.Kill(name) {
			t.Fatalf("there is no actor %q", name)
		}
		s := r.persist(t)
		b := demo.NewBrowser()
		walk := func() string {
			p, err := b.Open(t.Context(), s.VerifyURL)
			if err != nil || p.Title() != "Is this you?" {
				return "not yet"
			}
			if p, err = b.Press(t.Context(), p, "dev"); err != nil {
				return "not yet"
			}
			if p, err = b.Press(t.Context(), p, "sign-in"); err != nil {
				return "not yet"
			}
			return p.Title()
		}
		ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
		title := walk()
		for title != "You are verified" && ctx.Err() == nil {
			title = walk()
			if p, err := b.Open(t.Context(), s.VerifyURL); err == nil && p.Title() == "You are verified" {
				break
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: the user reads %q", name, title)
		}
		cancel()
		// the actor may go only now
		v := r.api().untilDespite(t, s.Session, "delivered", http.StatusServiceUnavailable)
		if n := r.inbox.count(v.ID); n != 1 {
			t.Errorf("%s: %d POSTs", name, n)
		}
	}
}

// persist starts a session as an integrator that retries while the service restarts.
func (r *rig) persist(t *testing.T) demo.Started {
	t.Helper()
	body := `{"platform":"p","platform_user_id":"u","callback_url":"` + r.inbox.CallbackURL() + `"}`
	deadline := time.Now().Add(natstest.TestTimeout)
	for {
		q := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodPost,
			r.Base+"/verify/init", strings.NewReader(body)))
		q.Header.Set("Authorization", "Bearer "+r.apiKey)
		q.Header.Set("Content-Type", "application/json")
		client := http.Client{
			Transport: &http.Transport{DisableKeepAlives: true}, Timeout: natstest.TestTimeout,
		}
		response, err := client.Do(q)
		if err == nil {
			var s demo.Started
			err = json.NewDecoder(response.Body).Decode(&s)
			_ = response.Body.Close()
			if err == nil && response.StatusCode == http.StatusOK {
				return s
			}
			if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusServiceUnavailable {
				t.Fatalf("init while an actor restarts: %d", response.StatusCode)
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("init does not come back: %v", err)
		}
	}
}

// The integrator sends an outcome again whose delivery has ended; before that, and if there is nothing to
// send, it gets an error.
func TestSendAgainThroughTheAPI(t *testing.T) {
	t.Parallel()
	r := boot(t)
	s := r.begin(t)
	resend := func(want int, code string) {
		t.Helper()
		status, _, body := r.api().call(t, http.MethodPost, "/sessions/"+s.Session+"/resend", "")
		if status != want || !strings.Contains(string(body), code) {
			t.Errorf("resend: %d %s, want %d %s", status, body, want, code)
		}
	}
	resend(http.StatusConflict, "nothing_to_send")
	answer := r.inbox.keepWaiting()
	b := demo.NewBrowser()
	expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in")),
		http.StatusOK, "You are verified")
	<-r.inbox.got
	resend(http.StatusConflict, "delivery_open")
	answer()
	v := r.api().until(t, s.Session, "delivered")
	resend(http.StatusAccepted, `"due"`)
	<-r.inbox.got
	r.api().untilAttempts(t, s.Session, "delivered", 2)
	if n := r.inbox.count(v.ID); n != 2 {
		t.Errorf("%d POSTs with this webhook-id", n)
	}
	// The operator does the same from the command line, with the session's id.
	if code, _, errOut := verifyd(t,
		append([]string{"deliveries", "resend", v.ID}, r.reach()...)...); code != 0 ||
		!strings.Contains(errOut, "Attempt 3") {
		t.Errorf("deliveries resend: exit %d, %s", code, errOut)
	}
	<-r.inbox.got
	if code, _, errOut := verifyd(t,
		append([]string{"deliveries", "resend", strings.Repeat("a", 32)},
			r.reach()...)...); code != exitUsage {
		t.Errorf("resend of no session: exit %d, %s", code, errOut)
	}
	otherKey, _ := r.enroll(t, "Somebody Else")
	if status, _, _ := (api{base: r.Base, key: otherKey}).
		call(t, http.MethodPost, "/sessions/"+s.Session+"/resend", ""); status != http.StatusNotFound {
		t.Errorf("another account's key: %d", status)
	}
}
