package integrator

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/signing"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/limit"
	"verifyd/edge/page"
	"verifyd/edge/web"
	"verifyd/sessions/facts"
	"verifyd/sessions/timeline"
	"verifyd/sessions/urlpolicy"
)

// signingPages are the page of the callback signing secret and its changes.
type signingPages struct {
	deps

	tests *limit.Rates // of test callbacks, by account
}

// shownTest is a test callback on its way to the page that shows it.
type shownTest struct {
	URL      string   `json:"url"`
	Verified bool     `json:"verified"`
	Exchange Exchange `json:"exchange"`
}

type signingData struct {
	Current  account.Secret
	Old      *account.Secret     // that signs beside it until the overlap ends
	Secrets  []string            // asked for, the current one first; none otherwise
	Public   []signing.PublicKey // the current one first
	Snippets []Snippet
	Test     *shownTest
	Steps    []timeline.Phase
	Tone     string
	Outcome  string
}

// parcelSigning is what a POST of this page hands to the GET after it.
type parcelSigning struct {
	Secrets []string   `json:"secrets,omitempty"`
	Test    *shownTest `json:"test,omitempty"`
}

// showSigning answers GET /dashboard/signing; with ?show=… it shows, once, what a POST made.
func (h signingPages) showSigning(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := site.Within(r)
	defer cancel()
	var p parcelSigning
	if name := page.Single(r.URL.Query(), "show"); name != "" {
		switch err := h.Logins.Take(ctx, v.Login, name, &p); {
		case errors.Is(err, logins.ErrNoParcel):
			h.Done(w, flashOnce, paths.Signing)
			return
		case err != nil:
			h.Fail(w, r, &v, err)
			return
		}
	}
	h.drawSigning(w, r, v, p, p.Test.form())
}

// form is the form that a test callback was sent with, for the next one; nil where none was.
func (t *shownTest) form() *form.Form {
	if t == nil {
		return nil
	}
	return &form.Form{Values: url.Values{"url": {t.URL}, "verified": {strconv.FormatBool(t.Verified)}}}
}

func (h signingPages) drawSigning(w http.ResponseWriter, r *http.Request, v site.Visit, p parcelSigning,
	f *form.Form) {
	d := signingData{
		Secrets: p.Secrets, Public: h.Signing.Public(v.Account, h.Now()), Snippets: h.Snippets, Test: p.Test,
	}
	for i, s := range v.Account.Signing(h.Now()) {
		s.Value = "" // the page has no use for it, unless it was asked for
		if i == 0 {
			d.Current = s
		} else {
			d.Old = &s
		}
	}
	if d.Test != nil {
		e := d.Test.Exchange
		d.Steps, d.Tone = timeline.Phases(e.Timing), site.ToneOfVerdict(e.Verdict)
		d.Outcome = testOutcome(e)
	}
	status := http.StatusOK
	if f != nil && !f.OK() {
		status = http.StatusUnprocessableEntity
	}
	h.Draw(w, site.View{
		Page: "signing", Title: "Callback signing", Nav: "signing", Visit: &v, Flash: h.TakeFlash(w, r),
		Form: f, Status: status, Data: d,
	})
}

// reveal answers POST /dashboard/signing/reveal.
func (h signingPages) reveal(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := site.Within(r)
	defer cancel()
	secrets, err := h.Accounts.RevealSecrets(ctx, v.Actor(), v.Account.ID)
	if err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	var p parcelSigning
	for _, s := range secrets {
		p.Secrets = append(p.Secrets, s.Value)
	}
	h.handSigning(ctx, w, r, v, p)
}

// handSigning leads to the page, which shows a parcel once.
func (h signingPages) handSigning(ctx context.Context, w http.ResponseWriter, r *http.Request, v site.Visit,
	p parcelSigning) {
	name, err := h.Logins.Hand(ctx, v.Login, p)
	if err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	page.SeeOther(w, h.Prefix+paths.Signing+"?"+form.Query("show", name))
}

// rotate answers POST /dashboard/signing/rotate.
func (h signingPages) rotate(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := site.Within(r)
	defer cancel()
	f := form.New(r)
	overlap, known := graces[f.Text("overlap")]
	if !known {
		f.Wrong("overlap", "Choose one of these.")
		h.drawSigning(w, r, v, parcelSigning{}, f)
		return
	}
	_, err := h.Accounts.RotateSecret(ctx, v.Actor(), v.Account.ID, overlap)
	switch {
	case err == nil:
		h.Done(w, flashRotated, paths.Signing)
	case errors.Is(err, account.ErrRotating):
		h.Done(w, flashRotating, paths.Signing)
	default:
		h.Fail(w, r, &v, err)
	}
}

// endOverlap answers POST /dashboard/signing/end.
func (h signingPages) endOverlap(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := site.Within(r)
	defer cancel()
	_, err := h.Accounts.EndRotation(ctx, v.Actor(), v.Account.ID)
	switch {
	case err == nil:
		h.Done(w, flashRotationEnded, paths.Signing)
	case errors.Is(err, account.ErrNotRotating):
		h.Done(w, flashNotRotating, paths.Signing)
	default:
		h.Fail(w, r, &v, err)
	}
}

const (
	// What a test callback says: nobody in particular.
	testUser  = "test_user"
	testGuild = "test_guild"
	// testWithin bounds a test callback as a whole: the attempt has a deadline of its own, and the server's
	// answer one of 30 s.
	testWithin = 25 * time.Second
)

// testRate is how many test callbacks an account may send: enough for somebody who fixes a receiver, too few
// to disturb one.
var testRate = account.Rate{Count: 10, Per: time.Minute, Burst: 5}

// sendTest answers POST /dashboard/signing/test.
func (h signingPages) sendTest(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := context.WithTimeout(r.Context(), testWithin)
	defer cancel()
	f := form.New(r)
	to := strings.TrimSpace(f.Text("url"))
	if to == "" {
		f.Wrong("url", "Enter the address of your receiver, for example https://bot.example.com/verified.")
	} else if !h.tests.Allow(account.Key{ID: v.Account.ID}, h.Now()).Allowed {
		f.Wrong("url", "Too many test callbacks at once. Wait a few seconds, then send the next one.")
	}
	if !f.OK() {
		h.drawSigning(w, r, v, parcelSigning{}, f)
		return
	}
	verified := f.Text("verified") != "false"
	e, err := h.Callbacks.Send(ctx, Callback{
		URL: to, ID: strings.ToLower(rand.Text()), PlatformUserID: testUser, GuildID: testGuild,
		Verified: verified,
		Test:     true, Secrets: h.Signing.Secrets(v.Account, h.Now()), At: h.Now(),
	})
	if fault, ok := errors.AsType[*urlpolicy.Fault](err); ok {
		f.Wrong("url", form.Sentence(fault.Detail))
		h.drawSigning(w, r, v, parcelSigning{}, f)
		return
	}
	if err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	if err := h.Accounts.Note(ctx, v.Actor(), v.Account.ID, audit.CallbackTested, "", map[string]string{
		"host": timeline.URLHost(to),
	}); err != nil {
		web.EventFrom(r.Context()).Err = err // it was sent all the same
	}
	h.handSigning(ctx, w, r, v, parcelSigning{Test: &shownTest{URL: to, Verified: verified, Exchange: e}})
}

// testOutcome says how a test callback ended.
func testOutcome(e Exchange) string {
	words := timeline.Cause(e.Class, e.Detail)
	switch e.Verdict {
	case facts.VerdictDelivered:
		return "Delivered: your receiver accepted it."
	case facts.VerdictReleased:
		return form.Sentence("not sent: " + words)
	case facts.VerdictRejected:
		return form.Sentence("rejected: " + words)
	default:
		return form.Sentence("unknown: " + words)
	}
}
