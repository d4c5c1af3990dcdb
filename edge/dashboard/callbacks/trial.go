package callbacks

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
	"verifyd/edge/dashboard/callbacks/kept"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
	"verifyd/edge/web"
	"verifyd/sessions/facts"
	"verifyd/sessions/timeline"
	"verifyd/sessions/urlpolicy"
)

// shownTest is a test callback on its way to the page that shows it.
type shownTest struct {
	URL      string   `json:"url"`
	Verified bool     `json:"verified"`
	Exchange Exchange `json:"exchange"`
}

type testData struct {
	Test    *shownTest
	Steps   []timeline.Phase
	Tone    string
	Outcome string
	Tests   []kept.Test
}

// showTest answers GET /dashboard/callbacks/test; with ?show=… it shows, once, what a POST made.
func (h *Handler) showTest(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	name := page.Single(r.URL.Query(), "show")
	if name == "" {
		h.drawTest(ctx, w, r, v, nil, nil)
		return
	}
	var t shownTest
	switch err := h.Logins.Take(ctx, v.Login, name, &t); {
	case errors.Is(err, logins.ErrNoParcel):
		h.Done(w, flashTestOnce, paths.CallbackTest)
	case err != nil:
		h.Fail(w, r, &v, err)
	default: // the next one begins with the values of this one
		h.drawTest(ctx, w, r, v, &t, &form.Form{Values: url.Values{
			"url": {t.URL}, "verified": {strconv.FormatBool(t.Verified)},
		}})
	}
}

func (h *Handler) drawTest(ctx context.Context, w http.ResponseWriter, r *http.Request, v site.Visit,
	t *shownTest, f *form.Form) {
	d := testData{Test: t}
	var err error
	if d.Tests, err = h.Kept.Tests(ctx, v.Account.ID); err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	if t != nil {
		d.Steps, d.Tone = timeline.Phases(t.Exchange.Timing), site.ToneOfVerdict(t.Exchange.Verdict)
		d.Outcome = testOutcome(t.Exchange)
	}
	status := http.StatusOK
	if f != nil && !f.OK() {
		status = http.StatusUnprocessableEntity
	}
	h.Draw(w, site.View{
		Page: "callbacktest", Title: "Test callbacks", Nav: "callbacks", Visit: &v, Flash: h.TakeFlash(w, r),
		Form: f, Status: status, Data: d,
	})
}

const (
	// The fields of a test callback: no real person's.
	testUser  = "test_user"
	testGuild = "test_guild"
	// testWithin bounds a test callback as a whole: the attempt has a deadline of its own, and the server's
	// answer one of 30 s.
	testWithin = 25 * time.Second
)

// testRate is how many test callbacks an account may send: enough for fixing a receiver, too few to disturb
// one.
var testRate = account.Rate{Count: 10, Per: time.Minute, Burst: 5}

// sendTest answers POST /dashboard/callbacks/test.
func (h *Handler) sendTest(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := context.WithTimeout(r.Context(), testWithin)
	defer cancel()
	f := form.New(r)
	to := strings.TrimSpace(f.Text("url"))
	if to == "" {
		f.Wrong("url", "Enter the address of your receiver, for example https://bot.example.com/verified.")
	} else if !h.tests.Allow(rateOf(v), h.Now()).Allowed {
		f.Wrong("url", "Too many test callbacks at once. Wait a few seconds, then send the next one.")
	}
	if !f.OK() {
		h.drawTest(ctx, w, r, v, nil, f)
		return
	}
	verified, at := f.Text("verified") != "false", h.Now()
	e, err := h.Sender.Send(ctx, Callback{
		URL: to, ID: strings.ToLower(rand.Text()), PlatformUserID: testUser, GuildID: testGuild,
		Verified: verified, Test: true, Secrets: h.Signing.Secrets(v.Account, at), At: at,
	})
	if fault, ok := errors.AsType[*urlpolicy.Fault](err); ok {
		f.Wrong("url", form.Sentence(fault.Detail))
		h.drawTest(ctx, w, r, v, nil, f)
		return
	}
	if err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	host := timeline.URLHost(to)
	// it was sent, whether or not it is remembered
	if err := errors.Join(
		h.Accounts.Note(ctx, v.Actor(), v.Account.ID, audit.CallbackTested, "",
			map[string]string{"host": host}),
		h.Kept.AddTest(ctx, v.Account.ID, kept.Test{
			At: at.UTC(), By: v.Actor().String(), Host: host, Verified: verified, Verdict: e.Verdict,
			Class: e.Class, Status: e.Status, Took: e.Timing.Total,
		}),
	); err != nil {
		web.EventFrom(r.Context()).Err = err
	}
	name, err := h.Logins.Hand(ctx, v.Login, shownTest{URL: to, Verified: verified, Exchange: e})
	if err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	page.SeeOther(w, h.Prefix+paths.CallbackTest+"?"+form.Query("show", name))
}

// testOutcome describes how a test callback ended.
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
