package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/apidoc/openapitest"
	"verifyd/edge/limit"
	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/lists"
	"verifyd/sessions/stats"
	"verifyd/sessions/store"
	"verifyd/sessions/urlpolicy"
)

func callbacksOf(t *testing.T) Callbacks {
	t.Helper()
	return urlpolicy.NewPolicy(nil, nil)
}

// faulty fails every call to the store, if a fault is set.
type faulty struct {
	*store.Store
	fault *atomic.Pointer[error]
	slow  *slowLists
}

func (f faulty) err() error {
	if err := f.fault.Load(); err != nil {
		return *err
	}
	return nil
}

func (f faulty) Create(ctx context.Context, r sessions.Request) (sessions.Session, sessions.Token, error) {
	if err := f.err(); err != nil {
		return sessions.Session{}, "", err
	}
	return f.Store.Create(ctx, r)
}

func (f faulty) ReadOf(ctx context.Context, account string, id sessions.ID) (facts.View, error) {
	if err := f.err(); err != nil {
		return facts.View{}, err
	}
	return f.Store.ReadOf(ctx, account, id)
}

func (f faulty) List(ctx context.Context, q lists.Query) (lists.Page, error) {
	if err := f.err(); err != nil {
		return lists.Page{}, err
	}
	f.slow.pass()
	return f.Store.List(ctx, q)
}

func (f faulty) Usage(ctx context.Context, account string, month time.Time) (stats.Usage, error) {
	if err := f.err(); err != nil {
		return stats.Usage{}, err
	}
	return f.Store.Usage(ctx, account, month)
}

// slowLists blocks lists, once it is on.
type slowLists struct {
	on          atomic.Bool
	began, goOn chan struct{}
}

func (s *slowLists) pass() {
	if s.on.Load() {
		s.began <- struct{}{}
		<-s.goOn
	}
}

// refusing treats every failure as one too many, once it is on.
type refusing struct{ on atomic.Bool }

func (r *refusing) Fail(netip.Addr, time.Time) limit.Decision {
	if r.on.Load() {
		return limit.Decision{RetryAfter: time.Second}
	}
	return limit.Decision{Allowed: true}
}

// The running server gives every answer in the document, and each is as described, which the client of these
// tests checks.
func TestEveryDescribedAnswerIsGiven(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	var fault atomic.Pointer[error]
	high := false
	failures, slow := &refusing{}, &slowLists{began: make(chan struct{}), goOn: make(chan struct{})}
	w := newWaiterOn(t, conn, func(c *Config) {
		briefly(c)
		f := faulty{c.Sessions.(*store.Store), &fault, slow}
		c.Sessions, c.Lister, c.Usages = f, f, f
		c.Listeners = faultyListeners{c.Listeners, &fault}
		c.StoreHigh = func() bool { return high }
		c.MaxWaiting, c.MaxListing, c.FailedKeys = 1, 1, failures
		c.Quota = limit.NewQuota(natstest.Writer(t, conn, topology.StreamUsage), standardQuota)
		keys := newKeyring()
		spent := keys[otherKey]
		spent.Account.Quota = 1
		keys[otherKey] = spent
		c.Keys = keys
	})
	walkInit(t, w, &high)
	walkSlowBody(t, w, pathInit)
	walkSlowBody(t, w, "/sessions/unknown/confirm")
	walkSessions(t, w)
	walkConfirmations(t, w)
	walkLists(t, w, slow)
	walkFaults(t, w, &fault)
	walkListen(t, w)
	failures.on.Store(true)
	w.do(t, http.MethodPost, pathInit, goodBody)
	w.do(t, http.MethodGet, pathList, "")
	w.do(t, http.MethodGet, pathUsage, "")
	w.do(t, http.MethodGet, pathSigning, "")
	w.do(t, http.MethodGet, "/sessions/unknown", "")
	w.do(t, http.MethodPost, "/sessions/unknown/cancel", "")
	w.do(t, http.MethodPost, "/sessions/unknown/resend", "")
	w.do(t, http.MethodPost, "/sessions/unknown/confirm", "")
	w.do(t, http.MethodPost, pathListen, "")
	w.do(t, http.MethodPost, "/listen/unknown", "")

	w.client.Transport.(*openapitest.Transport).NothingMissing(1)
}

// walkInit causes the answers of POST /verify/init, except faults.
func walkInit(t *testing.T, w waiter, high *bool) {
	post := func(key, body string, header ...string) answer {
		return w.do(t, http.MethodPost, pathInit, body,
			append([]string{"Authorization", "Bearer " + key, "Content-Type", "application/json"},
				header...)...)
	}
	w.keyed(t, acmeKey, "k", goodBody)
	w.keyed(t, acmeKey, "k", goodBody)
	w.keyed(t, acmeKey, "k", strings.Replace(goodBody, "u-1", "u-2", 1))
	v, faults := decodeVerification([]byte(goodBody), callbacksOf(t))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if _, err := w.store.Reserve(t.Context(),
		store.IdempotencyKey{Account: acme.ID, Key: "open", Fingerprint: v.fingerprint()}); err != nil {
		t.Fatal(err)
	}
	w.keyed(t, acmeKey, "open", goodBody)
	post(acmeKey, `{}`)
	post(acmeKey, `{"x":"`+strings.Repeat("x", web.MaxBodyBytes)+`"}`)
	w.do(t, http.MethodPost, pathInit, goodBody, "Authorization", "Bearer "+acmeKey, "Content-Type",
		"text/plain")
	w.do(t, http.MethodPost, pathInit, goodBody)
	post(revokedKey, goodBody)
	post(closedKey, goodBody)
	post(otherKey, goodBody)
	post(otherKey, goodBody)
	for range 3 {
		post(slowKey, goodBody)
	}
	*high = true
	post(acmeKey, goodBody)
	w.do(t, http.MethodPost, "/sessions/unknown/resend", "", "Authorization", "Bearer "+acmeKey)
	*high = false
	w.do(t, http.MethodGet, pathOpenAPI, "")
	w.do(t, http.MethodGet, pathDocs, "")
}

// walkSlowBody sends an incomplete body to a server with a short timeout, which other requests here could not
// use.
func walkSlowBody(t *testing.T, w waiter, path string) {
	t.Helper()
	s, _ := startServer(t, web.ServerConfig{
		Name: "impatient", Listen: "127.0.0.1:0", Handler: w.server.Handler(), Log: zerolog.Nop(),
		ReadTimeout: 500 * time.Millisecond,
	})
	slow, hold := io.Pipe()
	defer func() { _ = hold.Close() }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Addr()+path, slow)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+acmeKey)
	req.Header.Set("Content-Type", "application/json")
	send(t, w.client, req)
}

// walkSessions causes the answers of the other routes, except faults.
func walkSessions(t *testing.T, w waiter) {
	act := func(session, verb, key string) answer {
		return w.do(t, http.MethodPost, "/sessions/"+session+"/"+verb, "", "Authorization", "Bearer "+key)
	}
	done, old, open := w.start(t).Session, w.start(t).Session, w.start(t).Session
	for _, key := range []string{acmeKey, revokedKey, closedKey} {
		w.list(t, key, "")
		w.usage(t, key, "")
		w.signingKeys(t, key)
		w.get(t, open, key)
		act(done, "resend", key) // nothing to send
		act(open, "cancel", key)
	}
	act(done, "resend", slowKey) // its rate is used up
	w.signingKeys(t, brokenKey)
	for _, path := range []string{pathList, pathUsage, pathSigning, "/sessions/" + open} {
		w.do(t, http.MethodGet, path, "")
	}
	w.do(t, http.MethodPost, "/sessions/"+open+"/cancel", "")
	w.do(t, http.MethodPost, "/sessions/"+open+"/resend", "")
	w.list(t, acmeKey, "?limit=0")
	w.usage(t, acmeKey, "?month=x")
	w.get(t, open+"?wait=0", acmeKey)
	for _, verb := range []string{"cancel", "resend"} {
		act("unknown", verb, acmeKey)
	}
	w.get(t, "unknown", acmeKey)

	c := w.complete(t, done, sessions.Outcome{
		State: sessions.Failed, Reason: sessions.Refused, Network: "default",
	})
	act(done, "cancel", acmeKey)
	act(done, "resend", acmeKey) // still under way
	settle := facts.Result{
		Session: c.ID, Number: 1, Verdict: facts.VerdictRejected, Class: failure.Status, Status: 500,
		At: w.clock.now(),
	}
	if err := w.store.Claim(t.Context(), facts.Claim{
		Session: c.ID, Number: 1, At: w.clock.now(),
	}); err != nil {
		t.Fatal(err)
	}
	w.get(t, done, acmeKey)
	if _, err := w.store.StoreResult(t.Context(), settle); err != nil {
		t.Fatal(err)
	}
	act(done, "resend", acmeKey)
	w.list(t, acmeKey, "?limit=1")

	waiting := w.start(t).Session
	answer := w.wait(t, waiting, "60")
	w.get(t, waiting+"?wait=60", acmeKey) // one slot is taken, and there is no other
	act(waiting, "cancel", acmeKey)
	<-answer
	w.clock.advance(sessions.Lifetime)
	act(old, "cancel", acmeKey)
}

// walkConfirmations causes the answers to a confirmation, except faults.
func walkConfirmations(t *testing.T, w waiter) {
	const given = `{"platform_user_id":"u-1","code":"ZZZZZZ"}`
	coded, link := w.asking(t, "code"), w.start(t).Session
	w.confirm(t, coded, acmeKey, given) // nobody has signed in
	code := w.signedIn(t, coded)
	for _, key := range []string{revokedKey, closedKey, slowKey, slowKey, slowKey, ""} {
		w.confirm(t, coded, key, given)
	}
	w.confirm(t, "unknown", acmeKey, given)
	w.confirm(t, link, acmeKey, given)
	w.confirm(t, coded, acmeKey, given)
	w.confirm(t, coded, acmeKey, `{"code":"?"}`)
	w.confirm(t, coded, acmeKey, `{"x":"`+strings.Repeat("x", web.MaxBodyBytes)+`"}`)
	w.do(t, http.MethodPost, "/sessions/"+coded+"/confirm", given, "Authorization", "Bearer "+acmeKey,
		"Content-Type", "text/plain")
	w.confirm(t, coded, acmeKey, `{"platform_user_id":"u-1","code":"`+code+`"}`)
	late := w.asking(t, "code")
	w.clock.advance(sessions.Lifetime)
	w.confirm(t, late, acmeKey, given)
}

// walkLists makes one list take long, so that there is no slot for another one.
func walkLists(t *testing.T, w waiter, slow *slowLists) {
	t.Helper()
	slow.on.Store(true)
	done := make(chan answer, 1)
	go func() { done <- w.list(t, acmeKey, "") }()
	<-slow.began
	a := w.list(t, slowKey, "") // another key of the account
	wantProblem(t, a, problem.CodeTooManyLists)
	wantRetryAfter(t, a, 1, 1)
	a = w.list(t, otherKey, "")
	wantProblem(t, a, problem.CodeUnavailable)
	wantRetryAfter(t, a, 1, 1)
	slow.on.Store(false)
	slow.goOn <- struct{}{}
	parse[listDoc](t, <-done, http.StatusOK)
	parse[listDoc](t, w.list(t, otherKey, ""), http.StatusOK) // the slot is free again
}

// walkFaults makes the store fail, in a way that a repeat may cure and in an unexpected one.
func walkFaults(t *testing.T, w waiter, fault *atomic.Pointer[error]) {
	for _, err := range []error{natsconf.ErrUnavailable, errors.New("nobody expected this")} {
		fault.Store(&err)
		w.init(t, goodBody)
		w.list(t, acmeKey, "")
		w.usage(t, acmeKey, "")
		for _, path := range []string{pathListen, "/listen/AAAAAAAAAAAAAAAAAAAAAAAAAA"} {
			w.do(t, http.MethodPost, path, `{"sent":true}`, "Authorization", "Bearer "+acmeTest)
		}
		w.get(t, "k3v7q2m5zt4yd6n2xw7p2c4hf2jb5ral", acmeKey)
		for _, verb := range []string{"cancel", "resend"} {
			w.do(t, http.MethodPost, "/sessions/k3v7q2m5zt4yd6n2xw7p2c4hf2jb5ral/"+verb, "", "Authorization",
				"Bearer "+acmeKey)
		}
		w.confirm(t, "k3v7q2m5zt4yd6n2xw7p2c4hf2jb5ral", acmeKey,
			`{"platform_user_id":"u-1","code":"ZZZZZZ"}`)
	}
	fault.Store(nil)
}
