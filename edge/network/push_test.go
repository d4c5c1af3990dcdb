package network_test

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
)

const requestURI = "urn:ietf:params:oauth:request_uri:6esc_11ACC5bwc014ltc14eY22c"

// push makes a stand-in offer pushed requests, and answer them so.
func (s *standIn) push(answer http.HandlerFunc) {
	s.metadata = func(m map[string]any) { m["pushed_authorization_request_endpoint"] = s.URL + "/par" }
	s.token = answer
}

func created(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write([]byte(`{"request_uri":"` + requestURI + `","expires_in":60}`))
}

// A provider that offers it gets the request itself, and the address that the browser opens only names it, so
// that whoever is handed that address can alter nothing (RFC 9126).
func TestRequestsArePushed(t *testing.T) {
	for _, style := range []string{"header", "params"} {
		t.Run(style, func(t *testing.T) {
			s := newStandIn(t)
			edit := func(set *netsettings.Settings, _ *network.Options) { set.AuthStyle = style }
			plain, err := s.network(t, edit).AuthURL(t.Context(), s.attempt)
			if err != nil {
				t.Fatal(err)
			}
			s.push(created)
			n := s.network(t, edit)
			got, err := n.AuthURL(t.Context(), s.attempt)
			if err != nil {
				t.Fatal(err)
			}
			u, err := url.Parse(got)
			if err != nil || !strings.HasPrefix(got, s.URL+"/authorize?") {
				t.Fatalf("the browser opens %s", got)
			}
			want := url.Values{"tenant": {"1"}, "client_id": {"client"}, "request_uri": {requestURI}}
			if q := u.Query(); q.Encode() != want.Encode() {
				t.Errorf("the browser takes %v, want %v", q, want)
			}
			asked, err := url.Parse(plain)
			if err != nil {
				t.Fatal(err)
			}
			form := maps.Clone(*s.lastForm.Load())
			id, secret, ok := s.lastRequest.Load().BasicAuth()
			switch style {
			case "header":
				if !ok || id != "client" || secret == "" {
					t.Errorf("the client authenticates as %q, %t", id, ok)
				}
			default:
				if ok || form.Get("client_secret") == "" {
					t.Errorf("no secret in the form, or one in the header")
				}
				form.Del("client_secret")
			}
			if s.lastRequest.Load().URL.Path != "/par" || form.Encode() != asked.Query().Encode() {
				t.Errorf("pushed to %s: %v, want %s", s.lastRequest.Load().URL, form, asked.RawQuery)
			}
			if doubts, err := n.Doubts(t.Context()); err != nil || len(doubts) > 0 {
				t.Errorf("doubts %q, %v", doubts, err)
			}
		})
	}
}

// A provider that offers pushed requests and accepts none gets them by the browser, and check says so; one
// that requires them does not.
func TestPushedRequestsThatAreRefused(t *testing.T) {
	refusal := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		class  string
	}{
		"an OAuth error":     {refusal(401, `{"error":"invalid_client"}`), network.ClassRefused},
		"an error, 200":      {refusal(200, `{"error":"invalid_request"}`), network.ClassRefused},
		"another status":     {refusal(404, "not here"), network.ClassStatus},
		"nothing":            {refusal(201, ""), network.ClassMalformed},
		"HTML":               {refusal(200, "<html>"), network.ClassMalformed},
		"no request_uri":     {refusal(201, `{"expires_in":60}`), network.ClassMalformed},
		"one that is a list": {refusal(201, `{"request_uri":["x"]}`), network.ClassMalformed},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, network.ClassRedirect},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t)
			s.push(tc.answer)
			n := s.network(t)
			got, err := n.AuthURL(t.Context(), s.attempt)
			if err != nil || !strings.Contains(got, "state="+s.attempt.State) {
				t.Errorf("the browser opens %s, %v", got, err)
			}
			doubts, err := n.Doubts(t.Context())
			if err != nil || !slices.ContainsFunc(doubts, func(d string) bool {
				return strings.Contains(d, "pushed authorization requests") && strings.Contains(d, tc.class)
			}) {
				t.Errorf("doubts %q, %v", doubts, err)
			}
			offered := s.metadata
			s.metadata = func(m map[string]any) {
				offered(m)
				m["require_pushed_authorization_requests"] = true
			}
			_, err = s.network(t).AuthURL(t.Context(), s.attempt)
			if e, ok := errors.AsType[*network.Error](err); !ok || e.Class != tc.class ||
				e.Stage != network.StageAuthorization {
				t.Errorf("a provider that requires them: %v, want class %s", err, tc.class)
			}
			s.checkQuiet(t, err)
		})
	}
}

// A provider that is busy, ill or gone gets the request later, not by the browser: whoever can make it so
// would have an address that can be altered. Nor does one that has accepted one before and refuses another.
func TestPushedRequestsThatFail(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"busy": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
		"ill":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"gone": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t)
			s.push(answer)
			n := s.network(t)
			if got, err := n.AuthURL(t.Context(), s.attempt); err == nil {
				t.Errorf("the browser opens %s", got)
			}
			s.token = created
			if got, err := n.AuthURL(t.Context(), s.attempt); err != nil ||
				!strings.Contains(got, "request_uri=") {
				t.Errorf("when it is well again: %s, %v", got, err)
			}
			s.token = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }
			if got, err := n.AuthURL(t.Context(), s.attempt); err == nil {
				t.Errorf("one that it refuses after another: %s", got)
			}
		})
	}
}
