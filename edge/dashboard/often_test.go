package dashboard_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/edge/network/netsettings"
	"verifyd/natsconf/topology"
)

// counting is an identity network that verifies nobody and counts the codes that it gets.
type counting struct {
	server *httptest.Server
	codes  atomic.Int32
}

func newCounting(t *testing.T) *counting {
	t.Helper()
	c := &counting{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": c.server.URL, "authorization_endpoint": c.server.URL + "/authorize",
			"token_endpoint": c.server.URL + "/token", "jwks_uri": c.server.URL + "/jwks",
		})
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, _ *http.Request) {
		c.codes.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
	})
	c.server = httptest.NewServer(mux)
	t.Cleanup(c.server.Close)
	return c
}

func (c *counting) settings() *netsettings.Settings {
	return &netsettings.Settings{
		ID: "counting", Name: "Counting Network", Kind: netsettings.KindOIDC, Issuer: c.server.URL,
		ClientID: "verifyd", ClientSecret: "s",
	}
}

// Start, junk return, repeat: neither the identity network nor the store is used more often than an address
// may fail, and starts are refused then too. A colleague at another address notices nothing; one at this
// address sees how long to wait.
func TestLoopOfLoginsIsStopped(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	r := newRig(t, setup{other: c.settings()})
	r.account("Harbor Guild")
	r.clock.stop()
	before := r.last(topology.BucketSessions)
	b := r.browser()
	starts, returns := 0, 0
	for range 700 {
		a := b.post("/dashboard/login", "network", "counting")
		if a.Status == http.StatusTooManyRequests {
			continue
		}
		starts++
		to, err := url.Parse(b.To(a))
		if err != nil {
			t.Fatal(err)
		}
		a = b.Get("/dashboard/login/counting/callback?code=junk&state=" + to.Query().Get("state"))
		if a.Status == http.StatusTooManyRequests {
			a.Want(t, http.StatusTooManyRequests, "Too many logins", "Wait 2 seconds, then reload this page.")
			continue
		}
		returns++
	}
	if starts != 600 || returns != 120 || c.codes.Load() != 120 {
		t.Errorf("%d starts, %d returns, %d codes at the network; want 600, 120 and 120", starts, returns,
			c.codes.Load())
	}
	if n := r.last(topology.BucketSessions) - before; n != 120 {
		t.Errorf("the store took %d writes, want 120", n)
	}
	a := b.post("/dashboard/login", "network", "example")
	a.Want(t, http.StatusTooManyRequests, "Too many logins", "Wait a second, then go back")
	if a.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q", a.Header.Get("Retry-After"))
	}
	b.post("/dashboard/link", "token", "nonsense").Want(t, http.StatusTooManyRequests, "Too many logins")
	r.clock.advance(2 * time.Second)
	r.as("olga").Get("/dashboard/keys").Want(t, http.StatusOK, "API Keys")
}

// A whole class is behind one address.
func TestFiveHundredLoginsBehindOneAddress(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.clock.stop()
	for range 500 {
		b := r.browser()
		b.To(b.login("olga"))
		b.Client.CloseIdleConnections()
	}
}

// last returns the number of messages that a bucket ever accepted.
func (r *rig) last(bucket string) uint64 {
	r.t.Helper()
	_, last, err := r.conn.Bounds(r.t.Context(), topology.BucketStream(bucket))
	if err != nil {
		r.t.Fatal(err)
	}
	return last
}

// The record of an attempt expires with its flow: it is stored apart from logins, for half an hour.
func TestAttemptsLiveAsLongAsTheirFlow(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	b := r.browser()
	back := b.back("olga", "")
	before := r.last(topology.BucketLogins)
	b.Get(strings.Replace(back, "code=", "code=junk", 1))
	if n := r.last(topology.BucketLogins); n != before {
		t.Errorf("the bucket of logins took %d messages of an attempt", n-before)
	}
	m, err := r.conn.Last(t.Context(), topology.BucketStream(topology.BucketSessions),
		topology.BucketSubject(topology.BucketSessions, "redeemed.*"))
	if err != nil {
		t.Fatal(err)
	}
	life, err := time.ParseDuration(m.Header.Get("Nats-TTL"))
	if err != nil || life < 29*time.Minute || life > 31*time.Minute {
		t.Errorf("it is remembered for %s, %v", life, err)
	}
	b.To(b.Get(back)) // spent
	b.Get("/dashboard/keys").Want(t, http.StatusSeeOther)
}

// The cookie of an attempt logs nobody in elsewhere: not by itself, and not together with the other browser's
// own. Its code is not posted there, nor in the browser that began once another one has shown the address:
// that one begins again.
func TestLoginCookieInAnotherBrowser(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]setup{
		"plain": {}, "https": {tls: true}, "https and prefix": {tls: true, prefix: "/v"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, s)
			r.account("Harbor Guild")
			b, stranger := r.browser(), r.browser()
			back := b.back("olga", "")
			stranger.back("dev", "")
			at, err := url.Parse(back)
			if err != nil {
				t.Fatal(err)
			}
			own, other := map[string]string{}, map[string]string{}
			for cookies, jar := range map[*map[string]string]http.CookieJar{
				&own: b.Client.Jar, &other: stranger.Client.Jar,
			} {
				for _, c := range jar.Cookies(at) {
					_, kind, _ := strings.Cut(c.Name, "verifyd_login_")
					(*cookies)[kind[:4]] = c.Name + "=" + c.Value
				}
			}
			want := map[string]string{"plain": "verifyd_", "https": "__Host-verifyd_",
				"https and prefix": "__Secure-verifyd_"}[name]
			if !strings.HasPrefix(own["flow"], want) || !strings.HasPrefix(own["brow"], want) {
				t.Errorf("cookies %v, want %s…", own, want)
			}
			before := r.last(topology.BucketSessions)
			for what, cookies := range map[string]string{
				"the attempt's alone":            own["flow"],
				"beside the browser's own":       own["flow"] + "; " + other["brow"],
				"both, beside the browser's own": own["brow"] + "; " + own["flow"] + "; " + other["brow"],
				"both, behind the browser's own": other["brow"] + "; " + own["brow"] + "; " + own["flow"],
				"another's beside the own":       other["flow"] + "; " + own["brow"],
				"of a build that bound no browser": strings.Replace(own["flow"], "verifyd_login_flow_",
					"verifyd_dashboard_flow_", 1) + "; " + own["brow"],
			} {
				thief := r.browser()
				req := thief.Request(http.MethodGet, back, "")
				req.Header.Set("Cookie", cookies)
				if a := thief.Do(req); a.Status != http.StatusBadRequest ||
					!strings.Contains(a.Text(), "We lost track of your login") {
					t.Errorf("%s: status %d", what, a.Status)
				}
			}
			if n := r.last(topology.BucketSessions); n != before+2 { // its two names
				t.Error("returns to other browsers wrote something else than that the code is spent")
			}
			b.To(b.Get(back))
			b.Get("/dashboard/keys").Want(t, http.StatusSeeOther)
			b.Follow(b.Follow(b.Get(b.back("olga", "")))).Want(t, http.StatusOK, "olga")
		})
	}
}
