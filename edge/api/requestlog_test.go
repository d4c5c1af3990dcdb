package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/natsconf/secretbox"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

func TestOneLinePerRequest(t *testing.T) {
	t.Parallel()
	s := newService(t, func(c *Config) { c.TrustedProxies = mustPrefixes("127.0.0.0/8") })
	forwarded := []string{"X-Forwarded-For", "198.51.100.7", "X-Request-Id", "mine"}
	a := s.do(t, http.MethodPost, pathInit+"?q=MARKERQUERY", goodBody,
		append(forwarded, "Authorization", "Bearer "+acmeKey, "Content-Type", "application/json")...)
	token := parse[started](t, a, http.StatusOK).Session
	bad := s.do(t, http.MethodGet, "/sessions/"+token+"?q=MARKERQUERY", "", "Authorization",
		"Bearer vfy_MARKERKEY")
	read := s.get(t, token, acmeKey)
	lost := s.do(t, "MARKERMETHOD", "/MARKERPATH", "")
	s.stop()
	lines := s.log.requests(t)
	id := string(sessions.Token(token).ID())
	want := []map[string]any{
		{"level": "info", "method": "POST", "route": "/verify/init", "status": 200.0,
			"bytes_in": float64(len(goodBody)), "bytes_out": float64(len(a.body)),
			"client_ip": "198.51.100.7", "account": acme.ID, "key": "key_acme", "sid": id,
			"request_id": a.header.Get(web.HeaderRequestID)},
		{"level": "info", "method": "GET", "route": "/sessions/{session}", "status": 401.0, "bytes_in": 0.0,
			"bytes_out": float64(len(bad.body)),
			"client_ip": "127.0.0.1", "code": "key_invalid",
			"request_id": bad.header.Get(web.HeaderRequestID)},
		{"level": "info", "method": "GET", "route": "/sessions/{session}", "status": 200.0, "bytes_in": 0.0,
			"bytes_out": float64(len(read.body)),
			"client_ip": "127.0.0.1", "account": acme.ID, "key": "key_acme", "sid": id,
			"request_id": read.header.Get(web.HeaderRequestID)},
		{"level": "info", "method": "other", "route": "none", "status": 404.0, "bytes_in": 0.0,
			"bytes_out": float64(len(lost.body)),
			"client_ip": "127.0.0.1", "code": "not_found",
			"request_id": lost.header.Get(web.HeaderRequestID)},
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d: %s", len(lines), len(want), s.log)
	}
	for i, line := range lines {
		if took, ok := line["took"].(float64); !ok || took <= 0 {
			t.Errorf("line %d: took = %v", i, line["took"])
		}
		delete(line, "took")
		delete(line, "message")
		for name, value := range want[i] {
			if line[name] != value {
				t.Errorf("line %d: %s = %v, want %v", i, name, line[name], value)
			}
		}
		if len(line) != len(want[i]) {
			t.Errorf("line %d has members beyond the known: %v", i, line)
		}
	}
}

// Whatever goes wrong, no secret gets into the log or the metrics.
func TestNoSecretIsLogged(t *testing.T) {
	t.Parallel()
	s := newService(t, func(c *Config) {
		briefly(c)
		c.Sessions = sealedReads{c.Sessions}
	})
	token := s.start(t).Session
	s.get(t, token, acmeKey)
	s.cancel(t, token, acmeKey)
	s.get(t, token+"MARKERTOKEN", acmeKey)
	s.init(t, `{"platform":"MARKERFIELD","callback_url":"https://user:MARKERPASSWORD@h.example/MARKERPATH?MARKERQUERY#x"}`)
	s.init(t, `{"MARKERNAME":1,"MARKERNAME":1}`)
	s.init(t, `MARKERBODY`)
	for _, key := range []string{revokedKey, brokenKey, "vfy_MARKERKEY", "MARKERKEY"} {
		s.do(t, http.MethodPost, pathInit+"?MARKERQUERY", goodBody, "Authorization", "Bearer "+key, "Cookie",
			"x=MARKERCOOKIE", "User-Agent", "MARKERAGENT")
	}
	s.stop()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := s.log.String()
	for _, f := range families {
		all += f.String()
	}
	for _, secret := range []string{"MARKER", token, token[:16]} {
		if i := strings.Index(all, secret); i >= 0 {
			t.Errorf("%q is in the log or the metrics: …%.200s", secret, all[max(0, i-100):])
		}
	}
	if n := len(s.log.requests(t)); n != 11 {
		t.Errorf("%d request lines, want 11", n)
	}
}

// sealedReads is a store whose reads fail in an unexpected way.
type sealedReads struct{ Sessions }

func (s sealedReads) ReadOf(ctx context.Context, account string, id sessions.ID) (facts.View, error) {
	if _, err := s.Sessions.ReadOf(ctx, account, id); err != nil {
		return facts.View{}, err
	}
	return facts.View{}, fmt.Errorf("decode session %s: %w", id, secretbox.ErrOpen)
}

func TestErrorsBehindA500AreLogged(t *testing.T) {
	t.Parallel()
	s := newService(t, func(c *Config) { c.Sessions = sealedReads{c.Sessions} })
	a := s.get(t, s.start(t).Session, acmeKey)
	p := wantProblem(t, a, problem.CodeInternal)
	if strings.Contains(a.body, "decode session") {
		t.Errorf("the client is told: %s", a.body)
	}
	s.stop()
	lines := s.log.requests(t)
	last := lines[len(lines)-1]
	if text, _ := last["error"].(string); !strings.Contains(text, "decode session") ||
		last["level"] != "error" || last["request_id"] != p.RequestID {
		t.Errorf("line = %v", last)
	}
}
