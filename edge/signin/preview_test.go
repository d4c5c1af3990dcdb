package signin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"verifyd/edge/signin"
)

// preview draws the preview of a state.
func (r *rig) preview(a signin.Requester, query, state string) answer {
	w := httptest.NewRecorder()
	r.handler.Preview(w, httptest.NewRequest(http.MethodGet, "/dashboard/sign-in-page/preview"+query, nil), a,
		state)
	return answer{Status: w.Code, Header: w.Header(), Body: w.Body.String()}
}

// The preview looks like the page, is about no real user, and links only where the account's own link does.
func TestPreview(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{networks: 2})
	requester := signin.Requester{
		Name: "Harbor <Guild>", ReturnURL: "https://harbor.example/done", Colour: "#1f5fd0", Verified: true,
	}
	before := r.sequences()
	look := func(query, state string) answer {
		return r.preview(requester, query, state)
	}
	ask := look("", "")
	ask.WantPage(t, http.StatusOK, headingAsk)
	ask.Holds(t, ">H</text>", "sailor_42", `href="?lang="`, "has verified this name.")
	look("?lang=", "").Holds(t, "<h1>Language</h1>", `href="?lang=de"`,
		`href="?lang=en" aria-current="true"><bdi>English<`)
	look("?lang=de", "").Holds(t, "hat diesen Namen geprüft.")
	if requester.Verified = false; strings.Contains(look("", "").Body, "has verified this name") {
		t.Error("a name is verified that is not")
	}
	requester.Verified = true
	if strings.Count(ask.Body, `<button`) != 3 || strings.Count(ask.Body, ` type="button"`) != 3 ||
		!strings.Contains(ask.Header.Get("Content-Security-Policy"), "form-action 'none'") {
		t.Errorf("something can be pressed: %v\n%s", ask.Header, ask.Body)
	}
	if ask.Header.Get("Set-Cookie") != "" || strings.Contains(ask.Body, "harbor.example") ||
		strings.Contains(ask.Body, "<Guild>") {
		t.Errorf("more than the question: %v\n%s", ask.Header, ask.Body)
	}
	end := look("?state=verified&lang=ja", "verified")
	end.Holds(t, `href="https://harbor.example/done"`, `<html lang="ja"`, `href="?state=verified&lang=&from=ja"`)
	look("?state=verified&lang=&from=ja", "verified").Holds(t, `<html lang="ja"`, `href="?state=verified&lang=ar"`,
		`href="?state=verified&lang=ja" aria-current="true"`)
	if after := r.sequences(); len(after) != len(before) || after["EVENTS"] != before["EVENTS"] {
		t.Errorf("streams went from %v to %v", before, after)
	}
}
