package signin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"verifyd/edge/signin"
)

// The preview looks as the page does, is about nobody, and leads nowhere but where the account's own link
// does.
func TestPreview(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{networks: 2})
	requester := signin.Requester{
		Name: "Harbor <Guild>", ReturnURL: "https://harbor.example/done", Colour: "#1f5fd0", Verified: true,
	}
	before := r.sequences()
	look := func(query string, ended bool) answer {
		w := httptest.NewRecorder()
		r.handler.Preview(w, httptest.NewRequest(http.MethodGet, "/dashboard/sign-in-page/preview"+query,
			nil), requester, ended)
		return answer{Status: w.Code, Header: w.Header(), Body: w.Body.String()}
	}
	ask := look("", false)
	ask.WantPage(t, http.StatusOK, headingAsk)
	ask.Holds(t, ">H</text>", "sailor_42", `href="?lang="`, "has verified this name.")
	look("?lang=", false).Holds(t, "<h1>Language</h1>", `href="?lang=de"`,
		`href="?lang=en" aria-current="true"><bdi>English<`)
	look("?lang=de", false).Holds(t, "hat diesen Namen geprüft.")
	if requester.Verified = false; strings.Contains(look("", false).Body, "has verified this name") {
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
	end := look("?end=yes&lang=ja", true)
	end.Holds(t, `href="https://harbor.example/done"`, `<html lang="ja"`, `href="?end=yes&lang=&from=ja"`)
	look("?end=yes&lang=&from=ja", true).Holds(t, `<html lang="ja"`, `href="?end=yes&lang=ar"`,
		`href="?end=yes&lang=ja" aria-current="true"`)
	if after := r.sequences(); len(after) != len(before) || after["EVENTS"] != before["EVENTS"] {
		t.Errorf("streams went from %v to %v", before, after)
	}
}
