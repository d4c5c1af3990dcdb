package dashboard_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/keymirror"
	"verifyd/edge/account/notice"
	"verifyd/edge/account/signing"
	"verifyd/edge/api"
	"verifyd/edge/browsertest"
	"verifyd/edge/dashboard"
	sent "verifyd/edge/dashboard/callbacks"
	"verifyd/edge/dashboard/callbacks/kept"
	"verifyd/edge/dashboard/integrator"
	"verifyd/edge/dashboard/login"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/signinpage"
	"verifyd/edge/devnetwork"
	"verifyd/edge/limit"
	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
	"verifyd/edge/places"
	"verifyd/edge/signin"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/natsconf/devtunnel"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/pauses"
	"verifyd/sessions/stats"
	"verifyd/sessions/store"
	"verifyd/sessions/urlpolicy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

// clock is the real time plus an offset that tests set, or an instant at which it is stopped.
type clock struct {
	offset atomic.Int64
	stands atomic.Pointer[time.Time]
}

func (c *clock) Now() time.Time {
	if at := c.stands.Load(); at != nil {
		return at.Add(time.Duration(c.offset.Load()))
	}
	return time.Now().Add(time.Duration(c.offset.Load()))
}

func (c *clock) advance(by time.Duration) { c.offset.Add(int64(by)) }

// stop stops the clock, so that all that follows happens at one instant.
func (c *clock) stop() { c.stands.Store(new(time.Now())) }

// callbacks replaces the sender, which this package does not import.
type callbacks struct {
	policy *urlpolicy.Policy
	sent   []sent.Callback
	answer sent.Exchange
}

func (c *callbacks) Draft(cb sent.Callback) (string, error) {
	if _, err := c.policy.Parse(cb.URL); err != nil {
		return "", err
	}
	body := fmt.Sprintf(`{"platform_user_id":%q,"guild_id":%q,"verified":%t}`, cb.PlatformUserID, cb.GuildID,
		cb.Verified)
	return fmt.Sprintf("POST /verified HTTP/1.1\r\nHost: bot.example.com\r\nUser-Agent: "+
		"verifyd/test\r\nContent-Length: %d\r\n"+
		"Content-Type: application/json\r\nwebhook-id: %s\r\nwebhook-timestamp: "+
		"%d\r\nwebhook-signature: v1,%s\r\n\r\n%s",
		len(body), map[bool]string{true: "cbtest_", false: "cb_"}[cb.Test]+cb.ID, cb.At.Unix(),
		strings.Repeat("A", 43)+"=", body), nil
}

func (c *callbacks) Send(_ context.Context, cb sent.Callback) (sent.Exchange, error) {
	raw, err := c.Draft(cb)
	if err != nil {
		return sent.Exchange{}, err
	}
	c.sent = append(c.sent, cb)
	e := c.answer
	e.Request = raw
	return e, nil
}

// usages replaces the meter.
type usages struct{ used int64 }

func (u *usages) Usage(_ context.Context, _ string, month time.Time) (stats.Usage, error) {
	first := time.Date(month.Year(), month.Month(), 1, 0, 0, 0, 0, time.UTC)
	usage := stats.Usage{Used: u.used}
	for i := range first.AddDate(0, 1, -1).Day() {
		day := stats.UsageDay{
			Day: first.AddDate(0, 0, i), Live: map[stats.Count]int64{}, Test: map[stats.Count]int64{
				stats.CountStarted: 1,
			},
		}
		if n := int64(i*i%17+3) * u.used / 200; i < 21 {
			day.Live = map[stats.Count]int64{
				stats.CountStarted: n, stats.CountVerified: n * 7 / 10, stats.CountDeclined: n / 10,
				stats.CountDelivered: n * 7 / 10,
				stats.CountRejected:  n / 20, stats.CountRateLimited: n / 30,
				stats.CountRefused: n / 20, stats.CountExpired: n - n*7/10 - n/10 - n/20,
				stats.CountOpened: n * 95 / 100, stats.CountSignIn: n * 88 / 100,
				stats.CountReturned: n * 86 / 100, stats.CountFinished: n * 85 / 100,
				stats.CountSignIn.Of("example"):       n * 92 / 100,
				stats.CountReturned.Of("example"):     n * 88 / 100,
				stats.CountNetworkError.Of("example"): n / 50,
				stats.CountVerified.Of("example"):     n * 7 / 10,
				stats.CountDeclined.Of("example"):     n / 20, stats.CountRefused.Of("example"): n / 20,
			}
		}
		usage.Days = append(usage.Days, day)
	}
	return usage, nil
}

// setup is what tests choose.
type setup struct {
	prefix string // of the base URL
	tls    bool
	allow  string                // open when empty
	other  *netsettings.Settings // another identity network
	list   integrator.Lister     // of sessions; the store when nil
	// namespace is that of the network's identities; its id when empty, as for the first provider of an id
	namespace string
	poll      time.Duration   // of open pages; an hour when zero: notifications must come from the watch
	store     *places.Waiting // how pages wait for the store; as by limit's defaults when nil
	signIn    bool            // previews are the sign-in page's own, and no placeholders
	slow      *browsertest.Slow
	// whoever is logged in has just signed in: pictures take longer than a sign-in is fresh
	fresh       bool
	signedInAgo time.Duration // by the network's ID tokens, when it is asked to have people sign in again
}

// rig is the real thing: embedded JetStream, the dev network, and an HTTP server with the routes under the
// edge's middleware.
type rig struct {
	t         testing.TB
	setup     setup
	away      func() // stops JetStream
	rest      func() // ends what polls JetStream
	conn      *natsconf.Conn
	store     *store.Store
	accounts  *accountstore.Store
	mirror    *keymirror.Mirror
	logins    *logins.Store
	dev       *devnetwork.Provider
	callbacks *callbacks
	pauses    *pauses.Store
	kept      *kept.Store
	fleet     []fleet.Process // the processes that answer
	usages    *usages
	server    *httptest.Server
	routes    []web.Route // of the dashboard
	base      string
	clock     *clock
}

func newRig(tb testing.TB, s setup) *rig {
	tb.Helper()
	r := &rig{
		t: tb, setup: s, clock: &clock{}, callbacks: &callbacks{policy: urlpolicy.NewPolicy(nil, nil)},
		usages: &usages{2140},
	}
	var conn *natsconf.Conn
	conn, r.away = natstest.StartIn(tb, tb.TempDir())
	r.conn = conn
	key := secretbox.NewKey()
	r.store = store.New(store.Config{
		Conn: conn, Key: key, Now: r.clock.Now,
		Pending:     natstest.Writer(tb, conn, topology.BucketStream(topology.BucketSessions)),
		Completions: natstest.Writer(tb, conn, topology.StreamCompletions),
		Idempotency: natstest.Writer(tb, conn, topology.BucketStream(topology.BucketIdempotency)),
	})
	var err error
	if r.accounts, err = accountstore.New(tb.Context(), conn, key); err != nil {
		tb.Fatal(err)
	}
	r.accounts.Now = r.clock.Now
	r.mirror = keymirror.New(conn, key, zerolog.Nop())
	r.mirror.Now = r.clock.Now
	stopMirror := natstest.Serve(tb, r.mirror)
	<-r.mirror.Loaded()
	now := r.clock.Now
	if s.fresh {
		at := time.Now()
		now = func() time.Time { return at }
	}
	r.logins = logins.NewStore(conn, key, now)
	watch := store.NewWatch(conn)
	stopWatch, stopStore := natstest.Serve(tb, watch), r.away
	r.rest = func() { stopWatch(); stopMirror() }
	r.away = func() { r.rest(); stopStore() }
	var handler atomic.Pointer[http.Handler]
	r.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		(*handler.Load()).ServeHTTP(w, q)
	}))
	if s.tls {
		r.server.StartTLS()
	} else {
		r.server.Start()
	}
	tb.Cleanup(r.server.Close)
	r.base = r.server.URL + s.prefix
	if s.allow == "" {
		s.allow = "open"
	}
	allow, err := logins.ParseAllow(s.allow)
	if err != nil {
		tb.Fatal(err)
	}
	list := cmp.Or[integrator.Lister](s.list, r.store)
	r.pauses = pauses.NewStore(conn, r.clock.Now)
	r.kept = kept.New(conn)
	networks := r.networks()
	preview, pages := r.preview(networks, key)
	h, err := dashboard.New(dashboard.Config{
		Notices: notice.NewStore(conn), Addresses: r.callbacks.policy,
		Pauses: r.pauses, Kept: r.kept,
		Fleet:   func(context.Context) ([]fleet.Process, error) { return r.fleet, nil },
		BaseURL: r.base, Networks: networks, Allow: allow, Accounts: r.accounts, Directory: r.mirror,
		Logins: r.logins, Sessions: r.store,
		List: list, Watch: watch, Poll: cmp.Or(s.poll, time.Hour), Usage: r.usages, Callbacks: r.callbacks,
		Rate:   account.Rate{Count: 20, Per: time.Second, Burst: 40},
		Policy: sessions.PolicyOnce, Quota: 5000, TestKeys: true, Key: key, Now: r.clock.Now,
		Preview: preview, Store: s.store,
		Snippets: []integrator.Snippet{
			{ID: "go", Language: "Go", File: "verify.go", Text: "package main\n"},
			{ID: "python", Language: "Python", File: "verify.py", Text: "import hmac\n"},
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	r.routes = h.Routes()
	rates, err := limit.NewRates(account.Rate{Count: 20, Per: time.Second, Burst: 40})
	if err != nil {
		tb.Fatal(err)
	}
	quota := limit.NewQuota(natstest.Writer(tb, conn, topology.StreamUsage), 5000)
	natstest.Serve(tb, quota)
	mounted, err := api.New(api.Config{
		BaseURL: r.base, Keys: r.mirror, Sessions: r.store, TestKeys: true, Reservations: r.store,
		Signing: signing.New(key),
		Lister:  r.store,
		Usages:  r.store, Changes: watch, Rates: rates, Quota: quota, Callbacks: r.callbacks.policy,
		Listeners: devtunnel.New(conn), Routes: slices.Concat(r.routes, pages), Nowhere: h.Nowhere,
		Log: zerolog.Nop(),
	})
	if err != nil {
		tb.Fatal(err)
	}
	if s.slow != nil {
		mounted = s.slow.Before(mounted)
	}
	handler.Store(&mounted)
	return r
}

// preview returns the renderer of the previews, and the routes of their assets.
func (r *rig) preview(networks []*network.Network, key secretbox.Key) (signinpage.Config, []web.Route) {
	if !r.setup.signIn {
		return signinpage.Config{
			Draw: func(w http.ResponseWriter, _ *http.Request, a account.Account, state string) {
				_, _ = fmt.Fprintf(w, "%s of %s %s %s", cmp.Or(state, "ask"), a.Name, a.Colour,
					a.Branding.Button)
			}, States: []string{"ask", "verified"},
		}, nil
	}
	pages, err := signin.New(signin.Config{
		BaseURL: r.base, Sessions: r.store, Networks: networks, Key: key, Log: zerolog.Nop(),
		Now: r.clock.Now,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return signinpage.Config{
		Draw: func(w http.ResponseWriter, q *http.Request, a account.Account, state string) {
			pages.Preview(w, q, signin.Requester{
				ID: a.ID, Name: a.Name, Verified: !a.VerifiedAt.IsZero(), ReturnURL: a.ReturnURL,
				Colour: a.Colour, Branding: a.Branding,
			}, state)
		}, States: signin.Previews(),
	}, pages.Routes()
}

func (r *rig) networks() []*network.Network {
	r.t.Helper()
	var err error
	if r.dev, err = devnetwork.New(devnetwork.Config{SignedInAgo: r.setup.signedInAgo}); err != nil {
		r.t.Fatal(err)
	}
	if err := r.dev.Listen(); err != nil {
		r.t.Fatal(err)
	}
	natstest.Serve(r.t, r.dev)
	s := r.dev.Settings()
	s.ID, s.Name = "example", "Example Network"
	n, err := network.New(s, network.Options{
		BaseURL: r.base, ReturnPath: login.ReturnPath, Namespace: r.setup.namespace,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.dev.AllowRedirect(n.RedirectURI())
	all := []*network.Network{n}
	if r.setup.other != nil {
		other, err := network.New(*r.setup.other, network.Options{
			BaseURL: r.base, ReturnPath: login.ReturnPath,
		})
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, other)
	}
	return all
}

// address is how pages name a member by a subject of the network.
func address(subject string) string {
	return access.Identity{Network: "example", Subject: subject}.Address()
}

// account creates an account with a member of each role: olga, dev and vera.
func (r *rig) account(name string) account.Account {
	r.t.Helper()
	a, err := r.accounts.CreateAccount(r.t.Context(), access.Operator(""), name,
		account.Member{Network: "example", Subject: "olga", Name: "Olga Owner"})
	if err != nil {
		r.t.Fatal(err)
	}
	for subject, role := range map[string]access.Role{
		"dev": access.RoleDeveloper, "vera": access.RoleViewer,
	} {
		if a, err = r.accounts.AddMember(r.t.Context(), access.Operator(""), a.ID, account.Member{
			Network: "example", Subject: subject, Name: subject, Role: role,
		}); err != nil {
			r.t.Fatal(err)
		}
	}
	r.until("the directory knows "+name, func() bool {
		for _, known := range r.mirror.AccountsOf("example", "vera") {
			if known.ID == a.ID && len(known.Members) == 3 {
				return true
			}
		}
		return false
	})
	return a
}

func (r *rig) until(what string, is func() bool) {
	r.t.Helper()
	natstest.Await(r.t, what, is)
}

// session starts a session of an account.
func (r *rig) session(a account.Account, change ...func(*sessions.Request)) sessions.Session {
	r.t.Helper()
	q := sessions.Request{
		Account: a.ID, Key: "key_1", Platform: "discord", PlatformUserID: "sailor_42",
		GuildID:     "118203948571029384",
		CallbackURL: "https://hooks.example.com/verified?token=planted-secret",
	}
	for _, c := range change {
		c(&q)
	}
	s, _, err := r.store.Create(r.t.Context(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// delivered ends a session with an attempt that ended in this way.
func (r *rig) ended(s sessions.Session, o sessions.Outcome, res ...facts.Result) {
	r.t.Helper()
	if _, err := r.store.Complete(r.t.Context(), s, o); err != nil {
		r.t.Fatal(err)
	}
	for i, result := range res {
		now := r.clock.Now()
		claim := facts.Claim{
			Session: s.ID, Number: i + 1, Worker: "worker-1", At: now, Deadline: now.Add(time.Second),
			SettleAfter: now.Add(time.Minute),
		}
		if err := r.store.Claim(r.t.Context(), claim); err != nil {
			r.t.Fatal(err)
		}
		result.Session, result.Number, result.By, result.At = s.ID, i+1, "worker-1", r.clock.Now()
		if _, err := r.store.StoreResult(r.t.Context(), result); err != nil {
			r.t.Fatal(err)
		}
	}
}
