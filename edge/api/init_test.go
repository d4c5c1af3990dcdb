package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/edge/limit"
	"verifyd/edge/places"
	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	sessionstore "verifyd/sessions/store"
)

func TestInitMatchesTheContract(t *testing.T) {
	t.Parallel()
	s := newService(t, func(c *Config) { c.BaseURL = "https://verify.example.com/app/" })
	before := s.clock.now()
	a := s.do(t, http.MethodPost, "/app/verify/init", goodBody, "Authorization", "Bearer "+acmeKey,
		"Content-Type", "application/json")
	got := parse[map[string]string](t, a, http.StatusOK)
	if len(got) != 3 {
		t.Errorf("members = %v, want exactly three", got)
	}
	token, err := sessions.ParseToken(got["session"])
	if err != nil {
		t.Fatalf("session = %q: %v", got["session"], err)
	}
	if want := "https://verify.example.com/app/?session=" + got["session"]; got["verify_url"] != want {
		t.Errorf("verify_url = %q, want %q", got["verify_url"], want)
	}
	if u, err := url.Parse(got["verify_url"]); err != nil || u.Query().Get("session") != got["session"] {
		t.Errorf("verify_url = %q: its query does not give the session (%v)", got["verify_url"], err)
	}
	expires, err := time.Parse("2006-01-02T15:04:05.000Z", got["expires_at"])
	if err != nil || expires.Sub(before.Truncate(time.Millisecond)) != 10*time.Minute {
		t.Errorf("expires_at = %q, want 10 minutes after %s (%v)", got["expires_at"], before, err)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
	} {
		if a.header.Get(name) != want {
			t.Errorf("%s = %q, want %q", name, a.header.Get(name), want)
		}
	}
	// Durable, and as requested.
	view, err := s.store.Read(t.Context(), token.ID())
	if err != nil {
		t.Fatal(err)
	}
	want := view.Session // with the position of its key, which is internal to the store
	want.ID, want.Account, want.Key, want.Test, want.Policy, want.Trace = token.ID(), acme.ID, "key_acme",
		false, "", ""
	want.Platform, want.PlatformUserID, want.GuildID, want.CallbackURL, want.ExpiresAt = "chat", "u-1", "g-1",
		callback, expires
	if view.Session != want {
		t.Errorf("stored = %+v, want %+v", view.Session, want)
	}
}

func TestInitAccepts(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for name, row := range map[string]struct {
		body   string
		header []string
	}{
		"scheme in other case": {
			goodBody, []string{"Authorization", "bEaReR " + acmeKey, "Content-Type", "application/json"},
		},
		"several spaces": {
			goodBody, []string{"Authorization", "Bearer   " + acmeKey, "Content-Type", "application/json"},
		},
		"charset": {
			goodBody, []string{
				"Authorization", "Bearer " + acmeKey, "Content-Type", `Application/JSON; charset="UTF-8"`,
			},
		},
		"identity encoding": {
			goodBody, []string{
				"Authorization", "Bearer " + acmeKey, "Content-Type", "application/json", "Content-Encoding",
				"identity",
			},
		},
		"white space": {" \r\n\t" + goodBody + "\n ", nil},
		"unknown members": {
			`{"x":{"y":[1,null,true]},"Platform":5,"guildId":"g","user_id":"u","url":"",` + goodBody[1:], nil,
		},
		"no guild_id": {
			`{"platform":"p","platform_user_id":"u","callback_url":"https://h.example/"}`, nil,
		},
		"empty guild_id": {
			`{"platform":"p","platform_user_id":"u","guild_id":"","callback_url":"https://h.example/"}`, nil,
		},
		"escaped names": {
			`{"pl\u0061tform":"p","platform_user_id":"u","callback_url":"https:\/\/h.example\/"}`, nil,
		},
		"strings at their limit": {
			fmt.Sprintf(`{"platform":%q,"platform_user_id":%[1]q,"guild_id":%[1]q,"callback_url":"https://h.example/"}`, strings.Repeat("x", 1024)), nil,
		},
		"body at its limit": {
			`{"x":"` + strings.Repeat("x",
				web.MaxBodyBytes-len(goodBody)-len(`"x":"",`)) + `",` + goodBody[1:],
			nil,
		},
		"a public address": {
			`{"platform":"p","platform_user_id":"u","callback_url":"https://8.8.8.8:8443/x"}`, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if row.header == nil {
				row.header = []string{
					"Authorization", "Bearer " + acmeKey, "Content-Type", "application/json",
				}
			}
			if a := s.do(t, http.MethodPost, pathInit, row.body, row.header...); a.status != http.StatusOK {
				t.Errorf("status = %d: %s", a.status, a.body)
			}
		})
	}
}

func TestInitWithTestKeyMarksTheSession(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	a := s.do(t, http.MethodPost, pathInit, goodBody, "Authorization", "Bearer "+acmeTest, "Content-Type",
		"application/json")
	id, err := sessions.ParseID(parse[started](t, a, http.StatusOK).Session)
	if err != nil {
		t.Fatal(err)
	}
	if view, err := s.store.Read(t.Context(), id); err != nil || !view.Test {
		t.Errorf("test = %v, %v", view.Test, err)
	}
}

func TestInitWithoutAGoodKey(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for name, row := range map[string]struct {
		header []string
		code   problem.Code
	}{
		"none":           {nil, problem.CodeKeyMissing},
		"empty":          {[]string{"Authorization", ""}, problem.CodeKeyMissing},
		"scheme only":    {[]string{"Authorization", "Bearer"}, problem.CodeKeyMissing},
		"no key":         {[]string{"Authorization", "Bearer  "}, problem.CodeKeyMissing},
		"another scheme": {[]string{"Authorization", "Basic " + acmeKey}, problem.CodeKeyMissing},
		"no scheme":      {[]string{"Authorization", acmeKey}, problem.CodeKeyMissing},
		"in the query":   {nil, problem.CodeKeyMissing},
		"twice": {
			[]string{"Authorization", "Bearer " + acmeKey, "Authorization", "Bearer " + acmeKey},
			problem.CodeKeyMissing,
		},
		"malformed": {[]string{"Authorization", "Bearer secret"}, problem.CodeKeyInvalid},
		"two in one": {
			[]string{"Authorization", "Bearer " + acmeKey + ", Bearer " + acmeKey}, problem.CodeKeyInvalid,
		},
		"unknown": {[]string{"Authorization", "Bearer vfy_nobody"}, problem.CodeKeyInvalid},
		"revoked": {[]string{"Authorization", "Bearer " + revokedKey}, problem.CodeKeyInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			// The body is bad and of a bad type: the key comes first.
			a := s.do(t, http.MethodPost, pathInit+"?access_token="+acmeKey, "no JSON", row.header...)
			wantProblem(t, a, row.code)
			if got := a.header.Values("WWW-Authenticate"); !slices.Equal(got, []string{"Bearer"}) {
				t.Errorf("WWW-Authenticate = %q", got)
			}
			if a.header.Get(headerLimit) != "" {
				t.Error("a stranger is told about limits")
			}
		})
	}
}

// A request waits for its key as long as for the store.
func TestInitBeforeTheKeysAreKnown(t *testing.T) {
	t.Parallel()
	s := newService(t, briefly)
	began := time.Now()
	a := s.do(t, http.MethodPost, pathInit, goodBody, "Authorization", "Bearer "+brokenKey, "Content-Type",
		"application/json")
	wantProblem(t, a, problem.CodeUnavailable)
	wantRetryAfter(t, a, 2, 2)
	if took := time.Since(began); took < brief {
		t.Errorf("it waited for %s", took)
	}
}

func wantRetryAfter(t *testing.T, a answer, least, most int) {
	t.Helper()
	if n, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || n < least || n > most {
		t.Errorf("Retry-After = %q, want %d to %d seconds", a.header.Get("Retry-After"), least, most)
	}
}

func TestInitRateLimit(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	slow := func(body string) answer {
		return s.do(t, http.MethodPost, pathInit, body, "Authorization", "Bearer "+slowKey, "Content-Type",
			"application/json")
	}
	for _, row := range []struct {
		body  string
		code  problem.Code
		limit string
	}{
		{goodBody, "", `"key";r=1;t=60, "month";r=99999;t=`},
		{"no JSON", problem.CodeInvalidRequest, `"key";r=0;t=120`},
		// costs rate, since it costs us, but no quota
		{"no JSON", problem.CodeRateLimited, `"key";r=0;t=60`}, // rate comes before the body
	} {
		a := slow(row.body)
		if row.code != "" {
			wantProblem(t, a, row.code)
		}
		if got := a.header.Get(headerLimit); !strings.HasPrefix(got, row.limit) {
			t.Errorf("RateLimit = %q, want %q…", got, row.limit)
		}
		if got := a.header.Get(headerPolicy); !strings.HasPrefix(got, `"key";q=2;w=120`) {
			t.Errorf("RateLimit-Policy = %q", got)
		}
		if row.code == problem.CodeRateLimited {
			wantRetryAfter(t, a, 60, 60)
		}
	}
	s.clock.advance(time.Minute - 100*time.Millisecond)
	a := slow(goodBody)
	wantProblem(t, a, problem.CodeRateLimited)
	wantRetryAfter(t, a, 1, 1) // a tenth of a second, rounded up
	s.clock.advance(time.Second)
	if a := slow(goodBody); a.status != http.StatusOK ||
		!strings.Contains(a.header.Get(headerLimit), `"month";r=99998;`) {
		t.Errorf("after Retry-After: %d, RateLimit %q", a.status, a.header.Get(headerLimit))
	}
}

func TestInitQuota(t *testing.T) {
	t.Parallel()
	keys := newKeyring()
	poor := keys[acmeKey]
	poor.Account.Quota = 2
	keys[acmeKey] = poor
	s := newService(t, func(c *Config) { c.Keys = keys })
	s.clock.at = time.Date(2031, time.March, 31, 23, 59, 30, 0, time.UTC)
	for range 5 { // a 4xx costs no quota
		wantProblem(t, s.init(t, `{}`), problem.CodeInvalidRequest)
	}
	for left := 1; left >= 0; left-- {
		a := s.init(t, goodBody)
		parse[started](t, a, http.StatusOK)
		if want := fmt.Sprintf(`, "month";r=%d;t=30`, left); !strings.HasSuffix(a.header.Get(headerLimit),
			want) {
			t.Errorf("RateLimit = %q, want …%q", a.header.Get(headerLimit), want)
		}
		if got := a.header.Get(headerPolicy); !strings.HasSuffix(got, `, "month";q=2`) {
			t.Errorf("RateLimit-Policy = %q", got)
		}
	}
	a := s.init(t, goodBody)
	wantProblem(t, a, problem.CodeQuotaExceeded)
	wantRetryAfter(t, a, 30, 30)
	wantProblem(t, s.init(t, `{}`), problem.CodeInvalidRequest) // the body comes before the quota
	s.clock.advance(30 * time.Second)
	parse[started](t, s.init(t, goodBody), http.StatusOK)
}

func TestInitWhileTheStoreIsNearlyFull(t *testing.T) {
	t.Parallel()
	full := true
	s := newService(t, func(c *Config) { c.StoreHigh = func() bool { return full } })
	wantProblem(t, s.init(t, `{}`), problem.CodeInvalidRequest) // faults of the body are reported first
	a := s.init(t, goodBody)
	wantProblem(t, a, problem.CodeStoreFull)
	wantRetryAfter(t, a, 60, 60)
	full = false
	a = s.init(t, goodBody)
	if a.status != http.StatusOK || !strings.Contains(a.header.Get(headerLimit), `"month";r=99999`) {
		t.Errorf("with room again: %d, RateLimit %q; the refusal must cost no quota", a.status,
			a.header.Get(headerLimit))
	}
}

// If the store was left, a start is refused before anything is counted: otherwise what is compared at the end
// of a move would keep changing.
func TestInitInAStoreThatWasLeft(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	s := newServiceOn(t, conn, func(c *Config) {
		c.Quota = limit.NewQuota(natstest.Writer(t, conn, topology.StreamUsage), 4)
		c.StoreLeft = func() error {
			return &storestate.Error{Record: storestate.Record{State: storestate.StateSealing}}
		}
	})
	for name, a := range map[string]answer{
		"a start": s.init(t, goodBody), "a start under a key": s.keyed(t, acmeKey, "k", goodBody),
	} {
		t.Run(name, func(t *testing.T) {
			p := wantProblem(t, a, problem.CodeUnavailable)
			if !strings.Contains(p.Detail, "another store") {
				t.Errorf("detail = %q", p.Detail)
			}
			wantRetryAfter(t, a, 1, 5)
		})
	}
	if _, last, err := conn.Bounds(t.Context(), topology.StreamUsage); err != nil || last != 0 {
		t.Errorf("%d changes of what is counted, %v", last, err)
	}
}

// sealed is a store that cannot create.
type sealed struct {
	*sessionstore.Store

	err error
}

func (s sealed) Create(context.Context, sessions.Request) (sessions.Session, sessions.Token, error) {
	return sessions.Session{}, "", fmt.Errorf("create session: %w", s.err)
}

func TestInitThatCreatesNothingCostsNoQuota(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err  error
		code problem.Code
	}{
		{natsconf.ErrUnavailable, problem.CodeUnavailable},
		{natsconf.ErrUncertain, problem.CodeUnavailable},
		{natsconf.ErrStoreFull, problem.CodeStoreFull},
		{context.DeadlineExceeded, problem.CodeUnavailable},
		{errors.New("no such thing"), problem.CodeInternal},
	} {
		t.Run(row.err.Error(), func(t *testing.T) {
			var quota Quota
			s := newService(t, func(c *Config) {
				store, _ := c.Sessions.(*sessionstore.Store)
				c.Sessions, quota = sealed{store, row.err}, c.Quota
			})
			a := s.init(t, goodBody)
			wantProblem(t, a, row.code)
			if row.code != problem.CodeInternal {
				wantRetryAfter(t, a, 2, 60)
			}
			if u, err := quota.Take(t.Context(), acme.ID, 0, s.clock.now()); err != nil || u.Used != 1 {
				t.Errorf("usage = %+v, %v; want this one unit only", u, err)
			}
		})
	}
}

// The store goes down under a running service, and comes back.
func TestInitWhileJetStreamIsAway(t *testing.T) {
	t.Parallel()
	e, conn, stop := natstest.StartServer(t, embedded.Options{DataDir: t.TempDir()})
	s := newServiceOn(t, conn, nil)
	session := s.start(t).Session
	// one that gives the store so little time that this one's own answers might not come in it
	impatient := newServiceOn(t, conn, func(c *Config) {
		c.Store = places.NewWaiting(500*time.Millisecond, 10)
	})

	stop()
	for _, a := range []answer{
		impatient.init(t, goodBody), impatient.get(t, session, acmeKey),
		impatient.cancel(t, session, acmeKey),
	} {
		wantProblem(t, a, problem.CodeUnavailable)
		wantRetryAfter(t, a, 2, 2)
	}
	back := conn.NC.StatusChanged(nats.CONNECTED)
	stop = natstest.Serve(t, e)
	<-back
	t.Cleanup(stop)
	parse[started](t, s.init(t, goodBody), http.StatusOK)
	if got := parse[map[string]any](t, s.get(t, session, acmeKey), http.StatusOK); got["state"] != "pending" {
		t.Errorf("the acknowledged session is %v", got)
	}
}

func TestParallelInitsAllGetTheirOwnSession(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	var wg sync.WaitGroup
	tokens := make(chan string, 50)
	for range cap(tokens) {
		wg.Go(func() {
			var got started
			if a := s.init(t, goodBody); a.status == http.StatusOK &&
				json.Unmarshal([]byte(a.body), &got) == nil {
				tokens <- got.Session
			}
		})
	}
	wg.Wait()
	close(tokens)
	seen := map[string]bool{}
	for token := range tokens {
		seen[token] = true
	}
	if len(seen) != cap(tokens) {
		t.Errorf("%d different sessions, want %d", len(seen), cap(tokens))
	}
}

func TestInitMetrics(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	s.start(t)
	s.keyed(t, acmeKey, "k", goodBody)
	s.keyed(t, acmeKey, "k", goodBody)
	s.init(t, `{}`)
	s.init(t, `{`)
	s.do(t, http.MethodPost, pathInit, goodBody)
	s.do(t, http.MethodGet, "/nowhere/MARKERPATH", "")
	s.stop()
	got := map[string]float64{}
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().
				GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"verifyd_init_total outcome=created":                          2,
		"verifyd_init_total outcome=replayed":                         1,
		"verifyd_init_total outcome=invalid_request":                  2,
		"verifyd_init_total outcome=key_missing":                      1,
		"verifyd_http_request_duration_seconds route=init status=2xx": 3,
		"verifyd_http_request_duration_seconds route=init status=4xx": 3,
		"verifyd_http_request_duration_seconds route=none status=4xx": 1,
		"verifyd_http_requests_in_flight":                             0,
	} {
		if v, there := got[name]; !there || v != want {
			t.Errorf("%s = %v, want %v (have %v)", name, v, want, got)
		}
	}
}
