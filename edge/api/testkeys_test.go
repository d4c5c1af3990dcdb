package api

import (
	"net/http"
	"strings"
	"testing"

	"verifyd/edge/limit"
	"verifyd/edge/problem"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

func TestTestKeysWhereTheyAreOff(t *testing.T) {
	t.Parallel()
	s := newService(t, func(c *Config) { c.TestKeys = false })
	for _, a := range []answer{
		s.do(t, http.MethodPost, pathInit, goodBody, "Authorization", "Bearer "+acmeTest, "Content-Type",
			"application/json"),
		s.list(t, acmeTest, ""),
	} {
		if p := wantProblem(t, a, problem.CodeKeyInvalid); !strings.Contains(p.Detail, "VERIFYD_TEST_KEYS") {
			t.Errorf("detail = %q", p.Detail)
		}
	}
	s.start(t) // live keys go on
}

func TestTestSessionsCostNoQuota(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	s := newServiceOn(t, conn, func(c *Config) {
		c.Quota = limit.NewQuota(natstest.Writer(t, conn, topology.StreamUsage), 1)
	})
	s.start(t)
	wantProblem(t, s.init(t, goodBody), problem.CodeQuotaExceeded)
	for range 3 {
		s.startAs(t, acmeTest, "u")
		a := s.keyed(t, acmeTest, "k", goodBody)
		parse[started](t, a, http.StatusOK)
		if got := a.header.Get(headerLimit); strings.Contains(got, "month") {
			t.Errorf("a test key is told about the quota: %q", got)
		}
	}
}
