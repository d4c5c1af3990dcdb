package main

import (
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/seal"
)

// Edge and dispatcher as processes of their own on an external NATS server: they meet in the stream alone.
func TestRolesOnAnExternalServer(t *testing.T) {
	dir := t.TempDir()
	natstest.StartIn(t, dir)
	end := must[natsconf.Endpoint](t)(natsconf.ReadEndpoint(dir))
	key := seal.NewKey()
	external := func(c *config) {
		at := must[*url.URL](t)(url.Parse(end.URL))
		at.User = url.UserPassword(end.User, end.Password)
		c.store.natsURL, c.store.key, c.store.topology.Replicas = at.String(), &key, 1
	}
	edge := boot(t, external, func(c *config) { c.dispatch = false })
	s := edge.begin(t)
	b := newBrowser()
	expectTitle(t, must[*page](t)(b.press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in")), http.StatusOK, "You are verified")
	if v := edge.api().read(t, s.Session); v.Delivery.State != "due" || edge.inbox.count(v.ID) != 0 {
		t.Errorf("without a dispatcher the delivery is %s", v.Delivery.State)
	}
	boot(t, external, func(c *config) {
		c.edge = false
		c.callbackRoots, c.callbackPolicy = edge.c.callbackRoots, edge.c.callbackPolicy
	})
	v := edge.api().until(t, s.Session, "delivered")
	if n := edge.inbox.count(v.ID); n != 1 {
		t.Errorf("%d POSTs", n)
	}
}

// SIGTERM lets the POST under way end and stores its result; then the process is gone, with exit code 0.
func TestTermDrains(t *testing.T) {
	t.Parallel()
	c := newChild(t)
	answer := make(chan struct{})
	c.inbox.hold = answer
	c.start(t)
	key := must[string](t)(c.command(t, "key", "create", "--account", "Harbor Guild"))
	w := &walk{c: c, api: api{base: c.base(), key: key}, browser: newBrowser()}
	w.api.knownSoon(t)
	for _, s := range steps {
		s.do(t, w)
	}
	<-c.inbox.got
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(c.log.String(), `"stopping"`) {
		<-tick.C
	}
	close(answer)
	if err := <-c.exited; err != nil {
		t.Errorf("exit: %v", err)
	}
	c.inbox.hold = nil
	c.start(t)
	v := w.api.read(t, w.session.Session)
	if v.Delivery.State != "delivered" || c.inbox.count(v.ID) != 1 {
		t.Errorf("delivery %s, %d POSTs", v.Delivery.State, c.inbox.count(v.ID))
	}
}
