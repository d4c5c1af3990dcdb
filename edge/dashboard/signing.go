package dashboard

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"time"

	"verifyd/edge"
	"verifyd/edge/account"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/page"
	"verifyd/sessions"
	"verifyd/sessions/target"
	"verifyd/sessions/told"
)

// Snippet is how a callback is verified in one language.
type Snippet struct{ ID, Language, File, Text string }

// shownTest is a test callback on its way to the page that shows it.
type shownTest struct {
	URL      string   `json:"url"`
	Exchange Exchange `json:"exchange"`
}

type signingData struct {
	Current  account.Secret
	Old      *account.Secret // that signs beside it until the overlap ends
	Secrets  []string        // asked for, the current one first; none otherwise
	Snippets []Snippet
	Test     *shownTest
	Steps    []told.Step
	Tone     string
	Outcome  string
}

// parcelSigning is what a POST of this page hands to the GET after it.
type parcelSigning struct {
	Secrets []string   `json:"secrets,omitempty"`
	Test    *shownTest `json:"test,omitempty"`
}

// showSigning answers GET /dashboard/signing; with ?show=… it shows, once, what a POST made.
func (h *Handler) showSigning(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	var p parcelSigning
	if name := page.Single(r.URL.Query(), "show"); name != "" {
		switch err := h.Logins.Take(ctx, v.login, name, &p); {
		case errors.Is(err, logins.ErrNoParcel):
			h.done(w, flashOnce, pathSigning)
			return
		case err != nil:
			h.fail(w, r, &v, err)
			return
		}
	}
	h.drawSigning(w, r, v, p, nil)
}

func (h *Handler) drawSigning(w http.ResponseWriter, r *http.Request, v visit, p parcelSigning, f *form) {
	d := signingData{Secrets: p.Secrets, Snippets: h.Snippets, Test: p.Test}
	for i, s := range v.account.Signing(h.Now()) {
		s.Value = "" // the page has no use for it, unless it was asked for
		if i == 0 {
			d.Current = s
		} else {
			d.Old = &s
		}
	}
	if d.Test != nil {
		e := d.Test.Exchange
		d.Steps, d.Tone = told.Steps(e.Timing), toneOfVerdict(e.Verdict)
		d.Outcome = testOutcome(e)
	}
	status := http.StatusOK
	if f != nil {
		status = http.StatusUnprocessableEntity
	}
	h.draw(w, view{page: "signing", Title: "Callback signing", Nav: "signing", visit: &v, Flash: h.takeFlash(w, r), Form: f, status: status, Data: d})
}

// reveal answers POST /dashboard/signing/reveal.
func (h *Handler) reveal(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	secrets, err := h.Accounts.RevealSecrets(ctx, v.actor(), v.account.ID)
	if err != nil {
		h.fail(w, r, &v, err)
		return
	}
	var p parcelSigning
	for _, s := range secrets {
		p.Secrets = append(p.Secrets, s.Value)
	}
	h.handSigning(ctx, w, r, v, p)
}

// handSigning leads to the page, which shows a parcel once.
func (h *Handler) handSigning(ctx context.Context, w http.ResponseWriter, r *http.Request, v visit, p parcelSigning) {
	name, err := h.Logins.Hand(ctx, v.login, p)
	if err != nil {
		h.fail(w, r, &v, err)
		return
	}
	page.SeeOther(w, h.prefix+pathSigning+"?"+query("show", name))
}

// rotate answers POST /dashboard/signing/rotate.
func (h *Handler) rotate(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	f := newForm(r)
	overlap, known := graces[f.text("overlap")]
	if !known {
		f.wrong("overlap", "Choose one of these.")
		h.drawSigning(w, r, v, parcelSigning{}, f)
		return
	}
	_, err := h.Accounts.RotateSecret(ctx, v.actor(), v.account.ID, overlap)
	switch {
	case err == nil:
		h.done(w, flashRotated, pathSigning)
	case errors.Is(err, account.ErrRotating):
		h.done(w, flashRotating, pathSigning)
	default:
		h.fail(w, r, &v, err)
	}
}

// endOverlap answers POST /dashboard/signing/end.
func (h *Handler) endOverlap(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	_, err := h.Accounts.EndRotation(ctx, v.actor(), v.account.ID)
	switch {
	case err == nil:
		h.done(w, flashRotationEnded, pathSigning)
	case errors.Is(err, account.ErrNotRotating):
		h.done(w, flashNotRotating, pathSigning)
	default:
		h.fail(w, r, &v, err)
	}
}

const (
	// What a test callback says: nobody in particular.
	testUser  = "test_user"
	testGuild = "test_guild"
	// testWithin bounds a test callback as a whole: the attempt has a deadline of its own, and the server's answer one of 30 s.
	testWithin = 25 * time.Second
)

// testRate is how many test callbacks an account may send: enough for somebody who mends a receiver, too few to disturb one.
var testRate = account.Rate{Count: 10, Per: time.Minute, Burst: 5}

// sendTest answers POST /dashboard/signing/test.
func (h *Handler) sendTest(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := context.WithTimeout(r.Context(), testWithin)
	defer cancel()
	f := newForm(r)
	to := strings.TrimSpace(f.text("url"))
	if to == "" {
		f.wrong("url", "Write the address of your receiver, for example https://bot.example.com/verified.")
	} else if !h.tests.Allow(account.Key{ID: v.account.ID}, h.Now()).Allowed {
		f.wrong("url", "Those were many test callbacks at once. Wait a few seconds, then send the next one.")
	}
	if !f.ok() {
		h.drawSigning(w, r, v, parcelSigning{}, f)
		return
	}
	e, err := h.Callbacks.Send(ctx, Callback{
		URL: to, ID: strings.ToLower(rand.Text()), PlatformUserID: testUser, GuildID: testGuild, Verified: f.text("verified") != "false",
		Test: true, Secrets: signing(v.account, h.Now()), At: h.Now(),
	})
	if fault, ok := errors.AsType[*target.Fault](err); ok {
		f.wrong("url", sentence(fault.Detail))
		h.drawSigning(w, r, v, parcelSigning{}, f)
		return
	}
	if err != nil {
		h.fail(w, r, &v, err)
		return
	}
	if err := h.Accounts.Note(ctx, v.actor(), v.account.ID, account.CallbackTested, "", map[string]string{"host": told.URLHost(to)}); err != nil {
		edge.LineOf(r.Context()).Err = err // it was sent all the same
	}
	h.handSigning(ctx, w, r, v, parcelSigning{Test: &shownTest{URL: to, Exchange: e}})
}

// testOutcome says how a test callback ended.
func testOutcome(e Exchange) string {
	words := told.Why(e.Class, e.Detail)
	switch e.Verdict {
	case sessions.VerdictDelivered:
		return "Delivered: your receiver took it."
	case sessions.VerdictReleased:
		return sentence("not sent: " + words)
	case sessions.VerdictRejected:
		return sentence("rejected: " + words)
	default:
		return sentence("unknown: " + words)
	}
}

// sentence makes a sentence of words that are none yet.
func sentence(words string) string {
	if words == "" {
		return ""
	}
	return strings.ToUpper(words[:1]) + strings.TrimSuffix(words[1:], ".") + "."
}
