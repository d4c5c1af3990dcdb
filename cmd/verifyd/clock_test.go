package main

import (
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"verifyd/cmd/verifyd/alarm"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
	"verifyd/edge/client"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storetime"
)

// A service whose machine is days ahead works by the store's time: sessions expire when they should, and
// signatures have a timestamp that receivers accept. It reports its clock until that is set.
func TestServiceOnAWrongClock(t *testing.T) {
	t.Parallel()
	key, dir := secretbox.NewKey(), t.TempDir()
	conn, _ := natstest.StartIn(t, dir)
	at, held := natstest.URL(t, dir), natstest.Options(conn)
	var ahead atomic.Int64
	ahead.Store(int64(8 * 24 * time.Hour))
	r := alarming(t, func(c *config.Config) {
		c.Store.NATSURL, c.Store.Key, c.Store.Topology = at, &key, held
		c.Now = nil
		c.Store.MachineClock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	s := must[client.Started](t)(r.newClient(t, r.apiKey).Start(t.Context(), client.Verification{
		Platform: "chat", PlatformUserID: "sailor", CallbackURL: r.inbox.CallbackURL(),
	}))
	if left := time.Until(s.ExpiresAt); left < 9*time.Minute || left > 11*time.Minute {
		t.Errorf("the session expires in %s", left)
	}
	b := demo.NewBrowser()
	end := must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in"))
	expectTitle(t, end, http.StatusOK, "You are verified")
	got := natstest.Receive(t, "the callback", r.inbox.got)
	hook := must[*standardwebhooks.Webhook](t)(standardwebhooks.NewWebhook(r.secret))
	if err := hook.Verify(got.Body, got.Header); err != nil { // its timestamp, too
		t.Error(err)
	}
	r.api().until(t, s.Session, "delivered")
	status, reason := r.awaitCheck(t, "clock", false)
	// the store's time is known within the time that an answer took
	if status != http.StatusOK ||
		!regexp.MustCompile(`19(2h0m0|1h59m59)[.0-9]*s ahead of the store's`).MatchString(reason) {
		t.Errorf("/readyz: %d %s", status, reason)
	}
	natstest.Await(t, "the log has it", func() bool {
		return strings.Contains(r.log.String(), "until the clocks agree")
	})
	if e := r.told(t); e.Type != alarm.ClockOff || e.Status != alarm.Raised || e.About == "" {
		t.Errorf("told %+v", e)
	}
	ahead.Store(int64(-storetime.MaxSkew / 2))
	r.awaitCheck(t, "clock", true)
	if e := r.told(t); e.Type != alarm.ClockOff || e.Status != alarm.Resolved {
		t.Errorf("told %+v", e)
	}
}
