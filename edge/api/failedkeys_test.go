package api

import (
	"net/http"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/limit"
	"verifyd/edge/problem"
)

func TestFailedKeysAreLimitedByAddress(t *testing.T) {
	t.Parallel()
	failures, err := limit.NewFailures(account.Rate{Count: 1, Per: time.Minute, Burst: 3})
	if err != nil {
		t.Fatal(err)
	}
	s := newService(t, func(c *Config) {
		briefly(c)
		c.FailedKeys = failures
		c.TrustedProxies = mustPrefixes("127.0.0.0/8")
	})
	try := func(key, address string) answer {
		return s.do(t, http.MethodPost, pathInit, goodBody, "Authorization", key, "Content-Type",
			"application/json", "X-Forwarded-For", address)
	}
	for range 10 {
		parse[started](t, try("Bearer "+acmeKey, "192.0.2.1"), http.StatusOK) // good keys cost nothing
	}
	wantProblem(t, try("Bearer vfy_nobody", "192.0.2.1"), problem.CodeKeyInvalid)
	wantProblem(t, try("nonsense", "192.0.2.1"), problem.CodeKeyMissing)
	wantProblem(t, s.do(t, http.MethodGet, "/usage", "", "X-Forwarded-For", "192.0.2.1"),
		problem.CodeKeyMissing)
	a := try("Bearer vfy_nobody", "192.0.2.1")
	wantProblem(t, a, problem.CodeTooManyFailedKeys)
	wantRetryAfter(t, a, 60, 60)
	if a.header.Get("WWW-Authenticate") != "" || a.header.Get(headerLimit) != "" {
		t.Errorf("headers = %v", a.header)
	}
	// a good key is not refused for others at its address
	parse[started](t, try("Bearer "+acmeKey, "192.0.2.1"), http.StatusOK)
	wantProblem(t, try("Bearer vfy_nobody", "192.0.2.2"), problem.CodeKeyInvalid)
	wantProblem(t, try("Bearer "+brokenKey, "192.0.2.1"), problem.CodeUnavailable) // not the client's fault
	s.clock.advance(time.Minute)
	wantProblem(t, try("Bearer vfy_nobody", "192.0.2.1"), problem.CodeKeyInvalid)
}
