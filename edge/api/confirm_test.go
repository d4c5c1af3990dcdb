package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"verifyd/edge/problem"
	"verifyd/natsconf/natstest"
	"verifyd/sessions"
	"verifyd/sessions/proof"
	"verifyd/sessions/timeline"
)

// asking starts a session with a binding, and returns its token.
func (s *service) asking(t *testing.T, binding string) string {
	t.Helper()
	a := s.init(t, strings.Replace(goodBody, "{", fmt.Sprintf(`{"binding":%q,`, binding), 1))
	return parse[map[string]string](t, a, http.StatusOK)["session"]
}

// signedIn makes a browser sign in for a session that requires a code, and returns the code.
func (s *service) signedIn(t *testing.T, token string) string {
	t.Helper()
	id := sessions.ID(idOf(t, token))
	of, err := s.store.ReadOpen(t.Context(), id)
	if err == nil {
		err = s.store.AwaitCode(t.Context(), of, "browser", "cookie", "default")
	}
	if err != nil {
		t.Fatal(err)
	}
	return s.store.CodeFor(id, "cookie")
}

func (s *service) confirm(t *testing.T, session, key, body string) answer {
	t.Helper()
	return s.do(t, http.MethodPost, "/sessions/"+session+"/confirm", body, "Authorization", "Bearer "+key,
		"Content-Type", "application/json")
}

// A session requires the level of its start, or else of its account, or else of the operator; never less than
// the operator allows, and a level that cannot be reached starts no session.
func TestBindingOfASession(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		given, account, standard, least proof.Level
		want                            proof.Level // empty: refused
	}{
		{"", "", "", "", proof.Link},
		{"code", "", "", "", proof.Code},
		{"", "code", "", "", proof.Code},
		{"", "", "code", "", proof.Code},
		{"link", "code", "code", "", proof.Link},
		{"", "link", "code", "code", proof.Code},
		{"link", "", "", "code", ""},
		{"account", "", "", "code", proof.Account},
		{"account", "", "", "account", proof.Account},
		{"tight", "", "", "", ""},
	} {
		s := newService(t, func(c *Config) {
			c.Levels = Levels{row.standard, row.least}
			c.Proves = func(platform string, test bool) bool { return platform == "chat" && !test }
			keys := newKeyring()
			who := keys[acmeKey]
			who.Account.Level = row.account
			keys[acmeKey] = who
			c.Keys = keys
		})
		body := goodBody
		if row.given != "" {
			body = strings.Replace(body, "{", fmt.Sprintf(`{"binding":%q,`, row.given), 1)
		}
		a := s.init(t, body)
		if row.want == "" {
			if a.status != http.StatusBadRequest || !strings.Contains(a.body, `"field":"binding"`) {
				t.Errorf("%+v: %d %s", row, a.status, a.body)
			}
			continue
		}
		token := parse[map[string]string](t, a, http.StatusOK)["session"]
		if got := s.get(t, token, acmeKey); !strings.Contains(got.body,
			fmt.Sprintf(`"binding":%q,"reached":null`, row.want)) {
			t.Errorf("%+v: %s", row, got.body)
		}
		other := s.init(t, strings.Replace(body, `"chat"`, `"elsewhere"`, 1))
		if refused := other.status == http.StatusBadRequest; refused != (row.want == proof.Account) {
			t.Errorf("%+v on a platform that nobody proves: %d %s", row, other.status, other.body)
		}
	}
}

func TestConfirmation(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	token := s.asking(t, "code")
	given := func(user, code string) string {
		return fmt.Sprintf(`{"platform_user_id":%q,"code":%q}`, user, code)
	}
	wantProblem(t, s.confirm(t, token, acmeKey, given("u-1", "ZZZZZZ")), problem.CodeNothingToConfirm)
	code := s.signedIn(t, token)
	if a := s.get(t, token, acmeKey); !strings.Contains(a.body, `"binding":"code","reached":"link",`+
		`"state":"pending","step":"confirm"`) {
		t.Errorf("it waits: %s", a.body)
	}
	if a := s.list(t, acmeKey, ""); !strings.Contains(a.body, `"binding":"code","reached":"link",`+
		`"state":"pending","step":"confirm"`) {
		t.Errorf("the list: %s", a.body)
	}
	wantProblem(t, s.confirm(t, token, otherKey, given("u-1", code)), problem.CodeSessionNotFound)
	for _, body := range []string{
		"", "{}", given("u-1", ""), given("u-1", "12345"), given("", code), `{"platform_user_id":"u-1","code":1}`,
		given("u-1", code) + "x",
	} {
		wantProblem(t, s.confirm(t, token, acmeKey, body), problem.CodeInvalidRequest)
	}
	for left := range 2 { // the second is the first again, and costs nothing
		a := s.confirm(t, token, acmeKey, given("u-2", code))
		wantProblem(t, a, problem.CodeWrongCode)
		if !strings.Contains(a.body, `"tries_left":4`) {
			t.Errorf("after %d: %s", left, a.body)
		}
	}
	s.wantOneWrongCode(t, sessions.ID(idOf(t, token)))
	typed := strings.ToLower(code[:3] + "-" + code[3:])
	for range 2 {
		a := s.confirm(t, token, acmeKey, given("u-1", typed))
		if a.status != http.StatusOK || !strings.Contains(a.body, `"reached":"code","state":"verified","step":"",`+
			`"verified":true`) || !strings.Contains(a.body, `"delivery":{"state":"due"`) {
			t.Errorf("confirmed: %d %s", a.status, a.body)
		}
	}
	wantProblem(t, s.confirm(t, token, acmeKey, given("u-1", "ZZZZZZ")), problem.CodeNothingToConfirm)
	wantProblem(t, s.confirm(t, s.start(t).Session, acmeKey, given("u-1", code)),
		problem.CodeNothingToConfirm)
}

// wantOneWrongCode checks that a wrong code is on the session's timeline once, however often it was repeated.
func (s *service) wantOneWrongCode(t *testing.T, id sessions.ID) {
	t.Helper()
	s.store.Emit(timeline.Event{Session: id, Name: timeline.EventOpened}) // follows what was emitted before
	var names []timeline.EventName
	natstest.Await(t, "the events are stored", func() bool {
		_, entries, err := s.store.Timeline(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		names = nil
		for _, e := range entries {
			if e.Event != nil {
				names = append(names, e.Event.Name)
			}
		}
		return slices.Contains(names, timeline.EventOpened)
	})
	names = slices.DeleteFunc(names, func(n timeline.EventName) bool { return n != timeline.EventWrongCode })
	if len(names) != 1 {
		t.Errorf("%d wrong codes on the timeline, want 1", len(names))
	}
}

// An integrator can confirm nothing but codes: only the user can sign in as the platform account, at any
// step.
func TestIntegratorCannotProveAnAccount(t *testing.T) {
	t.Parallel()
	s := newService(t, func(c *Config) { c.Proves = func(string, bool) bool { return true } })
	for _, binding := range []string{"link", "account"} {
		token := s.asking(t, binding)
		given := `{"platform_user_id":"u-1","code":"ZZZZZZ"}`
		wantProblem(t, s.confirm(t, token, acmeKey, given), problem.CodeNothingToConfirm)
		id := sessions.ID(idOf(t, token))
		if err := s.store.ProvePlatform(t.Context(), id, "browser", "chat"); err != nil {
			t.Fatal(err)
		}
		given = fmt.Sprintf(`{"platform_user_id":"u-1","code":%q}`, s.signedIn(t, token))
		wantProblem(t, s.confirm(t, token, acmeKey, given), problem.CodeNothingToConfirm)
		if a := s.stands(t, token); a.State != sessions.Pending {
			t.Errorf("%s: it stands as %+v", binding, a)
		}
	}
}

// A repeat long after the session's end gets its result, though its tries are forgotten by then.
func TestConfirmationAfterItsTriesAreForgotten(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	token := s.asking(t, "code")
	s.complete(t, token, sessions.Outcome{State: sessions.Verified, Reached: proof.Code})
	p := wantProblem(t, s.gives(t, token, "u-1", "ZZZZZZ")(), problem.CodeNothingToConfirm)
	if !strings.Contains(p.Detail, "it is verified") {
		t.Errorf("it says %q", p.Detail)
	}
}

func TestConfirmationThatFails(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	token := s.asking(t, "code")
	code := s.signedIn(t, token)
	for n := range proof.MaxTries {
		a := s.confirm(t, token, acmeKey, fmt.Sprintf(`{"platform_user_id":"u-1","code":"%06d"}`, n))
		wantProblem(t, a, problem.CodeWrongCode)
		if !strings.Contains(a.body, fmt.Sprintf(`"tries_left":%d`, proof.MaxTries-1-n)) {
			t.Errorf("try %d: %s", n, a.body)
		}
	}
	if a := s.get(t, token, acmeKey); !strings.Contains(a.body, `"reached":"link","state":"failed","step":"",`+
		`"verified":false,"reason":"unconfirmed"`) {
		t.Errorf("failed: %s", a.body)
	}
	wantProblem(t, s.confirm(t, token, acmeKey, fmt.Sprintf(`{"platform_user_id":"u-1","code":%q}`, code)),
		problem.CodeNothingToConfirm)
	late := s.asking(t, "code")
	code = s.signedIn(t, late)
	s.clock.advance(sessions.Lifetime)
	wantProblem(t, s.confirm(t, late, acmeKey, fmt.Sprintf(`{"platform_user_id":"u-1","code":%q}`, code)),
		problem.CodeConfirmationExpired)
}
