package manage

import (
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
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "vfyop_MARKERTOKEN"

// service answers each request with the next of its answers, over TLS, and records the requests.
type service struct {
	*httptest.Server

	mu    sync.Mutex
	asked []*http.Request
}

func newService(t *testing.T, answers ...http.HandlerFunc) (*service, *Client) {
	t.Helper()
	s := &service{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		s.mu.Lock()
		s.asked = append(s.asked, r)
		n := len(s.asked)
		s.mu.Unlock()
		answers[min(n, len(answers))-1](w, r)
	}))
	t.Cleanup(s.Close)
	c, err := New(s.URL, token, s.Client())
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func refuse(status int, doc string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, doc)
	}
}

func give(doc any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(doc) }
}

func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// A creation is repeated under one key, if no answer came; anything else is sent once.
func TestWhatMakesIsTriedAgain(t *testing.T) {
	busy := refuse(http.StatusServiceUnavailable, `{"code":"unavailable","detail":"Try again."}`)
	s, c := newService(t, cut, busy, give(map[string]any{"id": "key_1", "secret": "vfy_x", "stored": true}))
	k, err := c.CreateKey(t.Context(), "acc_1", KeyOptions{Name: "n"})
	if err != nil || k.ID != "key_1" || !k.Stored {
		t.Fatalf("%+v, %v", k, err)
	}
	var keys []string
	for _, r := range s.asked {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
	}
	if len(keys) != 3 || keys[0] == "" || len(slices.Compact(keys)) != 1 {
		t.Errorf("keys %q", keys)
	}
	s, c = newService(t, cut)
	if _, err := c.DeleteAccount(t.Context(), "acc_1"); err == nil || len(s.asked) != 1 ||
		s.asked[0].Header.Get("Idempotency-Key") != "" {
		t.Errorf("%d requests, %v", len(s.asked), err)
	}
	s, c = newService(t, refuse(http.StatusConflict, `{"code":"account_exists","detail":"Taken."}`))
	_, err = c.CreateAccount(t.Context(), "Harbor", false)
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != CodeAccountExists || len(s.asked) != 1 {
		t.Errorf("%d requests, %v", len(s.asked), err)
	}
	s, c = newService(t, cut)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := c.CreateAccount(ctx, "Harbor", false); err == nil || len(s.asked) > 1 {
		t.Errorf("the context ended: %d requests, %v", len(s.asked), err)
	}
}

// Redirects are not followed, answers of other servers are distinguished from the service's, and errors hold
// no token.
func TestAnswersOfOthers(t *testing.T) {
	for want, answer := range map[string]http.HandlerFunc{
		"a redirect, which is not followed": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://192.0.2.1/", http.StatusTemporaryRedirect)
		},
		"the answer does not come from verifyd": refuse(http.StatusBadGateway, "<html>"),
		"not the JSON that was expected":        give("text"),
		"403 scope_missing: Take it. (request R1)": refuse(403,
			`{"code":"scope_missing","detail":"Take it.","request_id":"R1"}`),
		"a: one. b: two.": refuse(400, `{"code":"invalid_request","detail":"Both.","errors":[
			{"field":"a","detail":"one"},{"field":"b","detail":"two"}]}`),
		"gave no answer": cut,
	} {
		s, c := newService(t, answer)
		_, err := c.Account(t.Context(), "acc_1/../x")
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), token) {
			t.Errorf("want %q, got %v", want, err)
		}
		if len(s.asked) != 1 || s.asked[0].URL.EscapedPath() != "/manage/accounts/acc_1%2F..%2Fx" ||
			s.asked[0].Header.Get("Authorization") != "Bearer "+token {
			t.Errorf("asked %v", s.asked)
		}
	}
}

// What a token cannot be is refused.
func TestTokensThatAreRefused(t *testing.T) {
	for _, bad := range []string{"", "a b", "a\r\nX: y", "ü"} {
		if _, err := New("https://verify.example.com", bad, nil); err == nil {
			t.Errorf("the token %q is taken", bad)
		}
	}
}

// Lists are read to their end, or to the first error.
func TestListsHavePages(t *testing.T) {
	page := func(id string, next any) http.HandlerFunc {
		return give(map[string]any{"accounts": []any{map[string]any{"id": id}}, "next": next})
	}
	s, c := newService(t, page("acc_1", "a b"), page("acc_2", nil))
	var ids []string
	for a, err := range c.Accounts(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, a.ID)
	}
	if !slices.Equal(ids, []string{"acc_1", "acc_2"}) || s.asked[1].URL.Query().Get("cursor") != "a b" {
		t.Errorf("%q, %v", ids, s.asked)
	}
	_, c = newService(t, page("acc_1", "x"), refuse(401, `{"code":"token_invalid","detail":"Revoked."}`))
	var last error
	for _, last = range c.Accounts(t.Context()) {
		if last != nil {
			break
		}
	}
	if e, ok := errors.AsType[*Error](last); !ok || e.Status != 401 {
		t.Errorf("%v", last)
	}
}
