package client_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"verifyd/edge/client"
	"verifyd/natsconf/natstest"
	"verifyd/sessions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

const apiKey = "vfytest_0123456789abcdefghijklmnopqrstuvwxyzAB"

// asked is one request as the service saw it.
type asked struct {
	line, key, idempotency string
	body                   string
}

// service answers each request with the next of its answers; the last one repeats.
type service struct {
	*httptest.Server

	mu      sync.Mutex
	answers []func(w http.ResponseWriter)
	asked   []asked
}

func serve(t *testing.T, answers ...func(w http.ResponseWriter)) (*service, *client.Client) {
	t.Helper()
	s := &service{answers: answers}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New(s.URL, apiKey, client.WithHTTPClient(&http.Client{
		Transport: transport, Timeout: 10 * time.Second,
	}))
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.asked = append(s.asked, asked{
		r.Method + " " + r.RequestURI, r.Header.Get("Authorization"), r.Header.Get("Idempotency-Key"),
		string(body),
	})
	answer := s.answers[min(len(s.asked), len(s.answers))-1]
	s.mu.Unlock()
	answer(w)
}

// requests returns what was asked so far.
func (s *service) requests() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func say(status int, header, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for line := range strings.SplitSeq(header, "\n") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				w.Header().Set(name, value)
			}
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func cut(http.ResponseWriter) { panic(http.ErrAbortHandler) }

var (
	verification = client.Verification{
		Platform: "chat", PlatformUserID: "u\u2028\"<é", CallbackURL: "https://bot.example.com/verified",
	}
	begun = say(200, "",
		`{"verify_url":"https://v.example/?session=tok","session":"tok","expires_at":"2026-11-21T13:22:09.105Z"}`)
	away = say(503, "Retry-After: 0",
		`{"code":"unavailable","detail":"The service cannot reach its store; try again.","request_id":"R"}`)
	running = say(409, "", `{"code":"idempotency_in_progress"}`)
)

func TestStartMatchesTheContract(t *testing.T) {
	t.Parallel()
	s, c := serve(t, begun)
	started, err := c.Start(t.Context(), verification)
	if err != nil {
		t.Fatal(err)
	}
	if started.VerifyURL != "https://v.example/?session=tok" || started.Session != "tok" ||
		started.ExpiresAt.UnixMilli() != 1795267329105 {
		t.Errorf("started %+v", started)
	}
	var members map[string]string
	got := s.requests()[0]
	if err := json.Unmarshal([]byte(got.body), &members); err != nil {
		t.Fatal(err)
	}
	if got.line != "POST /verify/init" || got.key != "Bearer "+apiKey || len(got.idempotency) < 26 ||
		len(members) != 3 ||
		members["platform_user_id"] != verification.PlatformUserID {
		t.Errorf("asked %+v", got)
	}
}

// An idempotency key makes a second try harmless: the caller's, or one of Start's own.
func TestWhatIsTriedAgain(t *testing.T) {
	t.Parallel()
	refused := say(400, "", `{"code":"invalid_request"}`)
	limited := say(429, "Retry-After: 3", `{"code":"rate_limited"}`)
	for name, c := range map[string]struct {
		key     string
		answers []func(http.ResponseWriter)
		tries   int
		fails   bool
	}{
		"no key, not available": {"", []func(http.ResponseWriter){away, begun}, 2, false},
		"no key, no answer":     {"", []func(http.ResponseWriter){cut, running, begun}, 3, false},
		"no key, refused":       {"", []func(http.ResponseWriter){refused, begun}, 1, true},
		"key, not available":    {"k-1", []func(http.ResponseWriter){away, begun}, 2, false},
		"key, no answer":        {"k-1", []func(http.ResponseWriter){cut, running, begun}, 3, false},
		"key, a proxy's word": {
			"k-1", []func(http.ResponseWriter){say(502, "", "<html>"), begun}, 2, false,
		},
		"key, refused":      {"k-1", []func(http.ResponseWriter){refused, begun}, 1, true},
		"key, rate limited": {"k-1", []func(http.ResponseWriter){limited, begun}, 1, true},
		"key, used for another": {
			"k-1", []func(http.ResponseWriter){say(422, "", `{"code":"idempotency_key_reused"}`)}, 1, true,
		},
		"key, a success cut short": {
			"k-1", []func(http.ResponseWriter){say(200, "", `{"verify_url":`), begun}, 2, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, cl := serve(t, c.answers...)
			v := verification
			v.IdempotencyKey = c.key
			_, err := cl.Start(t.Context(), v)
			if (err != nil) != c.fails || len(s.requests()) != c.tries {
				t.Fatalf("%d tries, %v", len(s.requests()), err)
			}
			key := cmp.Or(c.key, s.requests()[0].idempotency)
			for _, a := range s.requests() {
				if a.idempotency != key || key == "" {
					t.Errorf("asked with idempotency key %q", a.idempotency)
				}
			}
			if len(c.answers) == 1 {
				return // the next Start fails as this one did
			}
			if _, err := cl.Start(t.Context(), v); err != nil {
				t.Fatalf("the next Start: %v", err)
			}
			again := s.requests()[len(s.requests())-1].idempotency
			if (again == key) != (c.key != "") {
				t.Errorf("the next Start's idempotency key is %q, this one's %q", again, key)
			}
		})
	}
}

// A service that is not available is tried again for a while, with the same key.
func TestNeverAvailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{answers: []func(http.ResponseWriter){away}}
		c, err := client.New("https://verify.example.com", apiKey, client.WithHTTPClient(&http.Client{
			Transport: inMemory{s},
		}))
		if err != nil {
			t.Fatal(err)
		}
		v := verification
		v.IdempotencyKey = "k-1"
		if _, err := c.Start(t.Context(), v); err == nil || len(s.requests()) != 6 {
			t.Errorf("%d tries, %v", len(s.requests()), err)
		}
		for _, a := range s.requests() {
			if a.idempotency != "k-1" {
				t.Errorf("asked with idempotency key %q", a.idempotency)
			}
		}
	})
}

// inMemory passes requests directly to a handler.
type inMemory struct{ http.Handler }

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	m.ServeHTTP(answer, r)
	resp := answer.Result()
	resp.Request = r
	return resp, nil
}

func TestStartKeepsToItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in real time the answer might come after the end
		c, err := client.New("https://verify.example.com", apiKey, client.WithHTTPClient(&http.Client{
			Transport: waitsAnHour{},
		}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		v := verification
		v.IdempotencyKey = "k"
		_, err = c.Start(ctx, v)
		e, ok := errors.AsType[*client.Error](err)
		if !ok || e.RetryAfter != time.Hour || ctx.Err() == nil {
			t.Errorf("Start = %v", err)
		}
	})
}

// waitsAnHour is a service that is not available for an hour.
type waitsAnHour struct{}

func (waitsAnHour) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	say(503, "Retry-After: 3600", `{"code":"unavailable"}`)(answer)
	resp := answer.Result()
	resp.Request = r
	return resp, nil
}

func TestErrorsMatchTheProblemDocument(t *testing.T) {
	t.Parallel()
	_, c := serve(t, say(400, "", `{"type":"urn:verifyd:problem:invalid_request","title":"The request is not valid","status":400,
		"detail":"1 field is wrong.","code":"invalid_request","request_id":"ABC","errors":[{"field":"callback_url","code":"callback_url_scheme","detail":"not https"}]}`))
	_, err := c.Start(t.Context(), verification)
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.Status != 400 || e.Code != client.CodeInvalidRequest || e.RequestID != "ABC" ||
		len(e.Fields) != 1 || e.Fields[0].Name != "callback_url" {
		t.Fatalf("%#v", err)
	}
	const want = "verifyd answered 400 invalid_request: 1 field is wrong. callback_url: not https. " +
		"(request ABC)"
	if e.Error() != want {
		t.Errorf("it reads %q", e)
	}
}

// No redirect is followed: the API key and the body would be sent along.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	other, _ := serve(t, begun)
	for _, status := range []int{301, 307, 308} {
		_, c := serve(t, say(status, "Location: "+other.URL+"/verify/init", ""))
		_, err := c.Start(t.Context(), verification)
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Status != status || e.Code != "" {
			t.Errorf("%d: %v", status, err)
		}
	}
	if len(other.requests()) != 0 {
		t.Errorf("the other server was asked: %v", other.requests())
	}
}

func TestWaitEndsWithTheSession(t *testing.T) {
	t.Parallel()
	pending := say(200, "", `{"id":"s","state":"pending","verified":null}`)
	verified := say(200, "",
		`{"id":"s","test":true,"state":"verified","verified":true,"completed_at":"2026-11-21T13:22:09.105Z",
		"delivery":{"state":"delivered","attempts":[{"number":1,"verdict":"delivered","status":204,"claimed_at":"2026-11-21T13:22:09.105Z","ended_at":null}],
		"waiting":{"tries":2,"class":"connect","detail":"refused","tried_at":"2026-11-21T13:22:09.105Z","next_attempt_at":"2026-11-21T13:22:10.105Z"}}}`)
	s, c := serve(t, pending, verified)
	session, err := c.Wait(t.Context(), "tok/../x")
	if err != nil || session.State != client.Verified || !*session.Verified || !session.Test ||
		session.Delivery.Attempts[0].Status != 204 || session.Delivery.Waiting.Tries != 2 ||
		session.Delivery.Waiting.NextAttemptAt.Sub(session.Delivery.Waiting.TriedAt) != time.Second {
		t.Errorf("%+v, %v", session, err)
	}
	if len(s.requests()) != 2 || s.requests()[0].line != "GET /sessions/tok%2F..%2Fx?wait=30" {
		t.Errorf("asked %v", s.requests())
	}
	_, c = serve(t, say(404, "", `{"code":"session_not_found"}`))
	if _, err := c.Wait(t.Context(), "tok"); err == nil {
		t.Error("a session that is not there was waited for")
	}
}

// Errors are logged: neither the key nor the token in the path may be in them.
func TestErrorsHoldNoSecret(t *testing.T) {
	t.Parallel()
	s, c := serve(t, cut)
	_, err := c.Session(t.Context(), "TOKEN")
	s.Close()
	_, err2 := c.Session(t.Context(), "TOKEN")
	for _, err := range []error{err, err2} {
		if err == nil || strings.Contains(err.Error(), "TOKEN") || strings.Contains(err.Error(), apiKey) {
			t.Errorf("it reads %v", err)
		}
		if _, ok := errors.AsType[*client.NoAnswer](err); !ok {
			t.Errorf("%T", err)
		}
	}
}

func TestNewRefusesWhatCannotBeRight(t *testing.T) {
	for _, c := range []struct{ base, key string }{
		{"", apiKey}, {"verify.example.com", apiKey}, {"http://verify.example.com", apiKey},
		{"ftp://localhost", apiKey},
		{"https://u:secret@verify.example.com", apiKey}, {"https://verify.example.com?x=1", apiKey},
		{"https://verify.example.com/#f", apiKey},
		{"http://localhost.example.com", apiKey}, {"https://verify.example.com", ""},
		{"https://verify.example.com", "vfy_ 1"},
		{"https://verify.example.com", "vfy_1\n"},
	} {
		if _, err := client.New(c.base, c.key); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("New(%q, %q) = %v", c.base, c.key, err)
		}
	}
	for _, base := range []string{
		"https://verify.example.com/prefix/", "http://localhost:8080", "http://127.0.0.1:1", "http://[::1]:1",
	} {
		if _, err := client.New(base, apiKey); err != nil {
			t.Error(err)
		}
	}
}

// The id must be the one that the service derives from the token.
func TestStartedID(t *testing.T) {
	const token = "iPx30Nf1YxksqwSLPvkDBpNZosLCCpeqNuUdXCdJ7ng"
	want, err := sessions.ParseID(token)
	if got := (client.Started{Session: token}).ID(); err != nil || got != string(want) {
		t.Errorf("ID = %q, want %q, %v", got, want, err)
	}
}
