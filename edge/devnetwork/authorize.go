package devnetwork

import (
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
)

// grant is what a code is exchanged for.
type grant struct {
	request authRequest
	subject string
	broken  bool // the token endpoint answers 500
	at      time.Time
}

// GET /authorize draws the form. Nothing is kept: the form carries the request.
func (p *Provider) drawAuthorize(w http.ResponseWriter, r *http.Request) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		drawProblem(w, http.StatusBadRequest, "This request is malformed.")
		return
	}
	a, problem, code := p.readRequest(q)
	switch {
	case problem != "":
		drawProblem(w, http.StatusBadRequest, problem)
	case code != "":
		p.sendBack(w, a, url.Values{"error": {code}})
	default:
		drawForm(w, http.StatusOK, a, "")
	}
}

// POST /authorize does what the button says.
func (p *Provider) answerAuthorize(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxFormBytes)
	if err := r.ParseForm(); err != nil {
		drawProblem(w, http.StatusBadRequest, "This form is malformed or too large.")
		return
	}
	a, problem, code := p.readRequest(r.PostForm)
	switch {
	case problem != "":
		drawProblem(w, http.StatusBadRequest, problem)
		return
	case code != "":
		p.sendBack(w, a, url.Values{"error": {code}})
		return
	}
	subject := r.PostForm.Get("subject")
	switch action := r.PostForm.Get("action"); action {
	case actionDecline:
		p.sendBack(w, a, url.Values{"error": {"access_denied"}})
	case actionError:
		p.sendBack(w, a, url.Values{"error": {"server_error"}})
	case actionSignIn, actionTokenError:
		if subject == "" || len(subject) > maxSubjectBytes || !utf8.ValidString(subject) {
			drawForm(w, http.StatusUnprocessableEntity, a, "Enter whom to sign in as: 1 to 1,024 bytes.")
			return
		}
		g := grant{a, subject, action == actionTokenError, p.cfg.Now()}
		p.sendBack(w, a, url.Values{"code": {p.codes.put(g)}})
	default:
		drawProblem(w, http.StatusBadRequest, "Press one of the form's buttons: there is no such action.")
	}
}

// sendBack sends the browser back with the answer, its state and the issuer (RFC 6749 §4.1.2, RFC 9207
// §2). 303 turns the form's POST into a GET, so that no form data travels on (RFC 9700 §4.12).
func (p *Provider) sendBack(w http.ResponseWriter, a authRequest, answer url.Values) {
	answer.Set("iss", p.Issuer())
	if a.state != "" {
		answer.Set("state", a.state)
	}
	mark := "?"
	if strings.Contains(a.redirectURI, "?") {
		mark = "&"
	}
	setHeaders(w, a)
	w.Header().Set("Location", a.redirectURI+mark+answer.Encode())
	w.WriteHeader(http.StatusSeeOther)
}
