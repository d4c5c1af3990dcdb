package main

import (
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
	"verifyd/cmd/verifyd/service"
	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/client"
	"verifyd/edge/dashboard/logins"
	"verifyd/natsconf"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/permission"
	"verifyd/natsconf/secretbox"
	"verifyd/sessions/lists"
	"verifyd/sessions/pauses"
)

// onExternal makes programs run on one external NATS server.
func onExternal(t *testing.T) func(*config.Config) {
	t.Helper()
	dir := t.TempDir()
	conn, _ := natstest.StartIn(t, dir)
	at := natstest.URL(t, dir)
	key := secretbox.NewKey()
	return func(c *config.Config) {
		c.Store.NATSURL, c.Store.Key, c.Store.Topology = at, &key, natstest.Options(conn)
	}
}

// Edge and dispatcher as processes of their own on an external NATS server: they meet only in the stream.
func TestRolesOnAnExternalServer(t *testing.T) {
	t.Parallel()
	external := onExternal(t)
	edge := boot(t, external, func(c *config.Config) { c.Dispatcher = false })
	s := edge.begin(t)
	b := demo.NewBrowser()
	expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in")),
		http.StatusOK, "You are verified")
	if v := edge.api().read(t, s.Session); v.Delivery.State != "due" || edge.inbox.count(v.ID) != 0 {
		t.Errorf("without a dispatcher the delivery is %s", v.Delivery.State)
	}
	boot(t, external, func(c *config.Config) {
		c.Edge = false
		c.CallbackRoots, c.CallbackPolicy = edge.Config.CallbackRoots, edge.Config.CallbackPolicy
	})
	v := edge.api().until(t, s.Session, "delivered")
	if n := edge.inbox.count(v.ID); n != 1 {
		t.Errorf("%d POSTs", n)
	}
}

// withRole returns a program's configuration on a server that distinguishes the roles.
func withRole(e natstest.External, role permission.Role, key *secretbox.Key) func(*config.Config) {
	return func(c *config.Config) {
		c.Store.NATSURL, c.Store.NATSCreds, c.Store.Key = e.URL, e.Credential(role), key
		c.Store.Topology.Replicas, c.Store.Topology.Embedded = 1, false
	}
}

// Each role with a credential that may do no more than its own: the whole path works, and nothing that a
// process does is refused.
func TestEachRoleWithItsOwnCredential(t *testing.T) {
	t.Parallel()
	e := natstest.StartExternal(t)
	key := secretbox.NewKey()
	on := []string{"--nats-url", e.URL, "--secret-key", key.Encode(), "--replicas", "1"}
	code, _, errOut := verifyd(t,
		append([]string{"apply", "--nats-creds", e.Credential(permission.RoleOperator)}, on...)...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	edge := boot(t, withRole(e, permission.RoleEdge, &key), func(c *config.Config) { c.Dispatcher = false })
	dispatcher := boot(t, withRole(e, permission.RoleDispatcher, &key), func(c *config.Config) {
		c.Edge, c.Alarms.Failures = false, 1
		c.CallbackRoots, c.CallbackPolicy = edge.Config.CallbackRoots, edge.Config.CallbackPolicy
	})
	a := edge.api()

	s := edge.begin(t)
	b := demo.NewBrowser()
	expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in")),
		http.StatusOK, "You are verified")
	v := a.until(t, s.Session, "delivered")
	if n := edge.inbox.count(v.ID); n != 1 {
		t.Errorf("%d POSTs", n)
	}
	if status, _, body := a.call(t, http.MethodPost, "/sessions/"+s.Session+"/resend",
		""); status != http.StatusAccepted {
		t.Errorf("resend: %d %s", status, body)
	}
	// The dispatcher's signature is verified with the edge's public key: both derive the pair from the master
	// key.
	keys := must[[]string](t)(edge.newClient(t, edge.apiKey).SigningKeys(t.Context()))
	public := must[*client.Verifier](t)(client.NewVerifier(keys...))
	for range 2 {
		got := natstest.Receive(t, "each POST comes", edge.inbox.got)
		if _, err := public.Verify(got.Header, got.Body, time.Now()); err != nil {
			t.Errorf("by the public key: %v", err)
		}
	}
	a.untilAttempts(t, s.Session, "delivered", 2)

	if status, _ := a.tryKeyed(t.Context(), "order-1", edge.inbox.CallbackURL()); status != http.StatusOK {
		t.Errorf("a start under an idempotency key: %d", status)
	}
	second := edge.begin(t)
	for _, q := range []struct{ method, path string }{
		{http.MethodPost, "/sessions/" + second.Session + "/cancel"},
		{http.MethodGet, "/sessions/" + second.Session + "?wait=1"},
		{http.MethodGet, "/sessions"},
		{http.MethodGet, "/usage"},
	} {
		if status, _, body := a.call(t, q.method, q.path, ""); status != http.StatusOK {
			t.Errorf("%s: %d %s", q.path, status, body)
		}
	}
	away := a.init(t, map[string]any{
		"platform": "p", "platform_user_id": "u", "callback_url": "https://127.0.0.1:1/verified",
	})
	expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, away.VerifyURL), "sign-in")),
		http.StatusOK, "You are verified")
	expectText(t, dispatcher.log, "callback not sent")
	natstest.Await(t, "one of them tells operators of the receiver", func() bool {
		for _, r := range []*rig{dispatcher, edge} {
			if err := r.Alarms.CheckOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return strings.Contains(dispatcher.log.String()+edge.log.String(), "operator event")
	})
	walkListening(t, edge)
	manage(t, edge,
		must[*accountstore.Store](t)(accountstore.New(t.Context(), e.Connect(t, permission.RoleOperator),
			key)))
	oversee(t, edge)
	for name, r := range map[string]*rig{"edge": edge, "dispatcher": dispatcher} {
		if log := r.log.String(); strings.Contains(log, "NATS refuses") {
			t.Errorf("the %s was refused something: %s", name, log)
		}
	}
}

// oversee does on an edge what the operator's pages do there.
func oversee(t *testing.T, edge *rig) {
	t.Helper()
	ctx, conn := t.Context(), edge.Store.Conn
	natstest.Await(t, "both processes answer", func() bool { // a request gives them a moment each time
		all := must[[]fleet.Process](t)(fleet.Ask(ctx, conn))
		return len(all) == 2 && fleet.Newest(all) != nil
	})
	book := pauses.NewStore(conn, nil)
	if _, err := book.Begin(ctx, "bot.example.com", "olga", "", time.Hour); err != nil {
		t.Error(err)
	}
	if on := must[[]pauses.Pause](t)(book.List(ctx)); len(on) != 1 {
		t.Errorf("paused: %+v", on)
	}
	if _, err := book.End(ctx, "bot.example.com", "olga"); err != nil {
		t.Error(err)
	}
	if _, err := edge.Store.Accounts.Operators(ctx); err != nil {
		t.Error(err)
	}
	if is, err := edge.Store.Accounts.IsOperator(ctx, "dev", "harbormaster"); err != nil || is {
		t.Errorf("is an operator: %t, %v", is, err)
	}
	if is, err := edge.Store.Accounts.IsOperatorLink(ctx, "link_of_nobody"); err != nil || is {
		t.Errorf("is an operator by a link: %t, %v", is, err)
	}
	facts := edge.Store.Reader()
	if _, err := facts.Backlog(ctx); err != nil {
		t.Error(err)
	}
	if _, err := facts.Verdicts(ctx, time.Now().Add(-time.Hour)); err != nil {
		t.Error(err)
	}
	if _, err := facts.FindDeliveries(ctx, lists.DeliveryQuery{Limit: 10}); err != nil {
		t.Error(err)
	}
}

// manage does on an edge what the dashboard does there; commands is the store as the command line has it.
func manage(t *testing.T, edge *rig, commands *accountstore.Store) {
	t.Helper()
	accounts, ctx := edge.Store.Accounts, t.Context()
	acc := must[account.Account](t)(accounts.AccountByName(ctx, "Harbor Guild"))
	_, k, err := accounts.CreateKey(ctx, operator(), acc.ID, account.KeyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, rolled, err := accounts.RollKey(ctx, operator(), acc.ID, k.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := accounts.RevokeKey(ctx, operator(), acc.ID, rolled.ID); err != nil {
		t.Error(err)
	}
	if _, err := accounts.RotateSecret(ctx, operator(), acc.ID, time.Hour); err != nil {
		t.Error(err)
	}
	token, link, err := commands.LoginLink(ctx, operator(), acc.ID, access.RoleOwner)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := accounts.RedeemLoginLink(ctx, token); err != nil {
		t.Error(err)
	}
	if g, err := accounts.LoginLinkGrant(ctx, acc.ID, link.ID); err != nil || g.Role != access.RoleOwner {
		t.Errorf("the login link gives %+v, %v", g, err)
	}
	if _, _, err := accounts.LoginLink(ctx, operator(), acc.ID, access.RoleOwner); !errors.Is(err,
		natsconf.ErrCredential) {
		t.Errorf("an edge makes a login link: %v", err)
	}
	if err := accounts.RevokeLoginLink(ctx, operator(), acc.ID, link.ID); !errors.Is(err,
		natsconf.ErrCredential) {
		t.Errorf("an edge takes a login link back: %v", err)
	}
	for what, look := range map[string]func() error{
		"audit log": func() error { _, err := accounts.Audit(ctx, acc.ID, "", 10); return err },
		"accounts":  func() error { _, err := accounts.Accounts(ctx); return err },
		"keys":      func() error { _, err := accounts.Keys(ctx); return err },
		"uses":      func() error { _, err := accounts.LastUsed(ctx); return err },
		"repairing": func() error { return accounts.Repair(ctx) },
	} {
		if err := look(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	kept := logins.NewStore(edge.Store.Conn, edge.Store.Key, nil)
	cookie := must[string](t)(kept.Begin(ctx, logins.Login{Network: "dev", Subject: "harbormaster"}))
	if err := kept.EndAll(ctx, must[logins.Login](t)(kept.Find(ctx, cookie))); err != nil {
		t.Error(err)
	}
}

// SIGTERM lets the POST under way end and stores its result; then the process exits with code 0.
func TestTermDrains(t *testing.T) {
	t.Parallel()
	c := newChild(t)
	answer := c.inbox.keepWaiting()
	w := c.untilPosted(t)
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	expectText(t, c.log, `"stopping"`)
	answer()
	if err := c.end(t); err != nil {
		t.Errorf("exit: %v", err)
	}
	c.start(t)
	v := w.api.read(t, w.session.Session)
	if v.Delivery.State != "delivered" || c.inbox.count(v.ID) != 1 {
		t.Errorf("delivery %s, %d POSTs", v.Delivery.State, c.inbox.count(v.ID))
	}
}

// A receiver that accepts the POST and never answers does not delay a stop for longer than documented, and
// its result is stored.
func TestTermDoesNotWaitForever(t *testing.T) {
	t.Parallel()
	c := newChild(t)
	c.env = append(c.env, briefly)
	answer := c.inbox.keepWaiting()
	w := c.untilPosted(t)
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	cfg := config.Config{Dispatcher: true, CallbackTimeout: briefTime}
	select {
	case err := <-c.exited:
		if err != nil {
			t.Errorf("exit: %v", err)
		}
	case <-time.After(service.StopWithin(cfg)):
		t.Fatalf("it has not stopped within %s:\n%s", service.StopWithin(cfg), c.log)
	}
	answer()
	c.start(t)
	if v := w.api.read(t, w.session.Session); v.Delivery.State != "unknown" || c.inbox.count(v.ID) != 1 {
		t.Errorf("delivery %s, %d POSTs", v.Delivery.State, c.inbox.count(v.ID))
	}
}
