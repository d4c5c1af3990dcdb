package api

import (
	"net/http"
	"strings"
	"testing"

	"verifyd/edge/browsertest"
	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/natsconf/natstest"
)

// hold lists with a key, and does not read the answer.
func (s *service) hold(t *testing.T, slow *browsertest.Slow, key, accept string) (answer <-chan string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.server.Addr()+pathList,
		http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Accept", accept)
	return slow.Hold(t, s.client, req)
}

// Clients that do not read hold no slot of the lists, neither by exports nor by pages. An account has a few
// exports at once.
func TestSlowClientsTakeNoSlots(t *testing.T) {
	t.Parallel()
	slow := browsertest.NewSlow()
	s := newServiceOn(t, natstest.Start(t), func(c *Config) { c.MaxListing = 1 },
		func(c *web.ServerConfig) { c.Handler = slow.Before(c.Handler) })
	s.startAs(t, acmeKey, "u-1")
	s.startAs(t, otherKey, "u-2")
	held := []<-chan string{s.hold(t, slow, acmeKey, "application/json")}
	for range 4 {
		held = append(held, s.hold(t, slow, acmeKey, "application/jsonl"))
	}
	over := s.do(t, http.MethodGet, pathList, "", "Authorization", "Bearer "+slowKey, "Accept", "text/csv")
	wantProblem(t, over, problem.CodeTooManyLists)
	wantRetryAfter(t, over, 1, 1)
	for _, key := range []string{acmeKey, otherKey} {
		if ids, _ := s.ids(t, key, ""); len(ids) != 1 {
			t.Errorf("%d sessions are listed", len(ids))
		}
	}
	if a := s.do(t, http.MethodGet, pathList, "", "Authorization", "Bearer "+otherKey, "Accept",
		"text/csv"); a.status != http.StatusOK || !strings.Contains(a.body, "u-2") {
		t.Errorf("an export of another account: %d %s", a.status, a.body)
	}
	slow.Release()
	for _, answer := range held {
		if a := <-answer; !strings.Contains(a, "u-1") || browsertest.IsCut(a) {
			t.Errorf("an answer that was read late is %q", a)
		}
	}
}

// An export ends before its next page when its key is revoked, and is not taken for a whole one.
func TestExportEndsWithItsKey(t *testing.T) {
	t.Parallel()
	slow, keys := browsertest.NewSlow(), &revocable{keyring: newKeyring()}
	s := newServiceOn(t, natstest.Start(t), func(c *Config) { c.Keys = keys },
		func(c *web.ServerConfig) { c.Handler = slow.Before(c.Handler) })
	const all, page = 150, 100
	for range all {
		s.startAs(t, acmeKey, "u-1")
	}
	answer := s.hold(t, slow, acmeKey, "application/jsonl")
	keys.revoked.Store(true)
	slow.Release()
	if got := <-answer; strings.Count(got, "\n") > page || !browsertest.IsCut(got) {
		t.Errorf("%d of %d sessions, cut off: %t", strings.Count(got, "\n"), all, browsertest.IsCut(got))
	}
}
