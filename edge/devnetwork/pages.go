package devnetwork

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"regexp"

	shared "verifyd/edge/page"
)

var (
	//go:embed page.html style.css
	files embed.FS

	page            = template.Must(template.ParseFS(files, "page.html"))
	style, styleErr = shared.LoadStyle(files, "style.css")
)

// view is what the page shows: the form, or a problem alone.
type view struct {
	Title   string
	Style   string // where the style sheet is
	Problem string
	Hidden  []hidden // the request; empty if there is no form
	Wrong   string   // what was wrong with the form's input
	Service string   // the origin that asks
	Actions map[string]string
}

type hidden struct{ Name, Value string }

func drawForm(w http.ResponseWriter, status int, a authRequest, wrong string) {
	v := view{
		Title:   "Sign in",
		Wrong:   wrong,
		Service: returnOrigin(a),
		Actions: map[string]string{
			"SignIn": actionSignIn, "Decline": actionDecline, "Error": actionError,
			"TokenError": actionTokenError,
		},
	}
	for _, f := range a.fields() {
		v.Hidden = append(v.Hidden, hidden{f.Name, *f.Value})
	}
	setHeaders(w, a)
	draw(w, status, v)
}

func drawProblem(w http.ResponseWriter, status int, problem string) {
	setHeaders(w, authRequest{})
	draw(w, status, view{Title: "This did not work", Problem: problem})
}

func draw(w http.ResponseWriter, status int, v view) {
	v.Style = "/" + style.Name
	var b bytes.Buffer // a template that fails half-way must not leave half a page with status 200
	if err := page.Execute(&b, v); err != nil {
		http.Error(w, "the page could not be drawn", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the browser may have left
}

// setHeaders sets what every page and redirect carries. form-action names the place of return as well, since
// browsers hold the redirect that answers a form to it (CSP 3 §6.4.1).
func setHeaders(w http.ResponseWriter, a authRequest) {
	h := w.Header()
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors "+
			"'none'; form-action 'self' "+returnOrigin(a))
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
}

// originForm admits nothing that could end a directive of a CSP.
var originForm = regexp.MustCompile(`^https?://[A-Za-z0-9.:\[\]-]+$`)

// returnOrigin is the origin of the redirect URI, or empty.
func returnOrigin(a authRequest) string {
	u, err := url.Parse(a.redirectURI)
	if err != nil {
		return ""
	}
	if origin := u.Scheme + "://" + u.Host; originForm.MatchString(origin) {
		return origin
	}
	return ""
}
