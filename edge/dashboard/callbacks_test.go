package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"verifyd/edge/account"
	"verifyd/edge/account/audit"
	"verifyd/edge/chromiumtest"
	sent "verifyd/edge/dashboard/callbacks"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// postMany sends a form in which a field occurs several times.
func (b *browser) postMany(path string, form url.Values) answer {
	req := b.Request(http.MethodPost, path, form.Encode())
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	return b.Do(req)
}

// undelivered ends sessions of an account, one for each of these verdicts.
func (r *rig) undelivered(a account.Account, verdicts ...facts.Verdict) (all []sessions.Session) {
	r.t.Helper()
	for i, verdict := range verdicts {
		s := r.session(a, func(q *sessions.Request) {
			q.PlatformUserID = fmt.Sprintf("%s_%d", verdict, i)
		})
		r.ended(s, sessions.Outcome{State: sessions.Verified}, facts.Result{
			Verdict: verdict, Class: failure.Connect, Detail: "nothing listens there",
		})
		all = append(all, s)
	}
	return all
}

func TestUndeliveredOutcomesOfAnAccount(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a, other := r.account("Harbor Guild"), r.account("Lake Guild")
	b := r.as("dev")
	b.To(b.post("/dashboard/account", "to", a.ID))
	at := "/dashboard/callbacks"
	b.Get(at).Want(t, http.StatusOK, "Nothing new")
	all := r.undelivered(a, facts.VerdictUndeliverable, facts.VerdictRejected, facts.VerdictUnknown,
		facts.VerdictDelivered)
	lost, refused, unknown, fine := all[0], all[1], all[2], all[3]
	foreign := r.undelivered(other, facts.VerdictUndeliverable)[0]

	page := b.Get(at)
	page.Want(t, http.StatusOK, "undeliverable_0", "rejected_1", "unknown_2", "nothing listens there",
		"hooks.example.com:443")
	page.Lacks(t, string(fine.ID), string(foreign.ID), "planted-secret", " checked>Select")
	b.Get(at+"?state=unknown").Holds(t, string(unknown.ID))
	b.Get(at+"?state=unknown").Lacks(t, string(lost.ID))
	b.Get(at+"?state=delivered&cursor=x").Want(t, http.StatusSeeOther)

	form := func(which string, field string, ids ...sessions.ID) url.Values {
		f := url.Values{"account": {a.ID}, "which": {which}}
		for _, id := range ids {
			f.Add(field, string(id))
		}
		return f
	}
	// seen: it is no longer new, and nothing else happens
	b.Follow(b.postMany(at+"/seen", form("ticked", "session"))).Want(t, http.StatusOK, "Nothing was selected")
	b.postMany(at+"/seen", form("ticked", "session", "../x")).Want(t, http.StatusBadRequest)
	b.Follow(b.postMany(at+"/seen", form("ticked", "session", fine.ID, foreign.ID))).
		Want(t, http.StatusOK, "None of them is still undelivered")
	b.Follow(b.postMany(at+"/seen", form("all", "shown", lost.ID, unknown.ID))).
		Want(t, http.StatusOK, "Marked as seen", "rejected_1")
	b.Get(at).Lacks(t, string(lost.ID), string(unknown.ID))
	seen := b.Get(at + "?shown=seen")
	seen.Holds(t, string(lost.ID), string(unknown.ID), `>seen</span>`)
	seen.Lacks(t, string(refused.ID))
	b.Get(at+"?shown=all").Holds(t, string(lost.ID), string(refused.ID))
	r.as("vera").Get(at).Lacks(t, string(lost.ID)) // for all members of the account

	// sent again together
	again := b.Follow(b.postMany(at+"/send-again", form("all", "shown", lost.ID, refused.ID, fine.ID,
		foreign.ID)))
	again.Want(t, http.StatusOK, "0 of 2 have ended", "2 are on their way", "2 were left out",
		"Refresh")
	again.Holds(t, "data-renew")
	for id, want := range map[sessions.ID]facts.DeliveryState{
		lost.ID: facts.DeliveryDue, refused.ID: facts.DeliveryDue, unknown.ID: facts.DeliveryUnknown,
		fine.ID: facts.DeliveryDelivered, foreign.ID: facts.DeliveryUndeliverable,
	} {
		if v, err := r.store.Read(t.Context(), id); err != nil || v.Delivery.State != want {
			t.Errorf("%s: %s, %v; want %s", id, v.Delivery.State, err, want)
		}
	}
	log, err := r.accounts.Audit(t.Context(), a.ID, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	var sentAgain, marked []audit.Record
	for _, e := range log.Records {
		switch e.What {
		case audit.CallbackSent:
			sentAgain = append(sentAgain, e)
		case audit.OutcomesSeen:
			marked = append(marked, e)
		}
	}
	if len(sentAgain) != 1 || sentAgain[0].Detail["count"] != "2" ||
		!strings.Contains(sentAgain[0].Detail["sessions"], string(lost.ID)) {
		t.Errorf("what was sent again has the records %+v", sentAgain)
	}
	if len(marked) != 1 || marked[0].Detail["count"] != "2" {
		t.Errorf("what was marked has the records %+v", marked)
	}

	// an outcome that fails again is new again
	r.attempt(lost, 2, facts.Result{Verdict: facts.VerdictRejected, Class: failure.Status})
	r.attempt(refused, 2, facts.Result{Verdict: facts.VerdictDelivered, Status: 204})
	b.Get(at).Holds(t, string(lost.ID))
	over := b.Get(strings.TrimPrefix(again.At, r.base))
	over.Want(t, http.StatusOK, "2 of 2 have ended: 1 delivered, 1 not.")
	over.Lacks(t, "data-renew", "Refresh")
	run := again.At[strings.LastIndex(again.At, "/")+1:]
	b.To(b.post("/dashboard/account", "to", other.ID))
	b.Get(at+"/runs/"+run).Want(t, http.StatusNotFound)
	b.Get(at+"/runs/..x").Want(t, http.StatusNotFound)
}

// attempt ends one more attempt of a session.
func (r *rig) attempt(s sessions.Session, n int, res facts.Result) {
	r.t.Helper()
	now := r.clock.Now()
	if err := r.store.Claim(r.t.Context(), facts.Claim{
		Session: s.ID, Number: n, Worker: "worker-1", At: now, Deadline: now.Add(time.Second),
		SettleAfter: now.Add(time.Minute),
	}); err != nil {
		r.t.Fatal(err)
	}
	res.Session, res.Number, res.By, res.At = s.ID, n, "worker-1", now
	if _, err := r.store.StoreResult(r.t.Context(), res); err != nil {
		r.t.Fatal(err)
	}
}

// A page has as many as can be sent at once, and marked outcomes make no page shorter. If more are sent than
// the account's rate allows, the page says how many are left.
func TestManyUndeliveredOutcomes(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.clock.stop()
	a := r.account("Harbor Guild")
	all := r.undelivered(a, slices.Repeat([]facts.Verdict{facts.VerdictUndeliverable}, 104)...)
	b := r.as("olga")
	at := "/dashboard/callbacks"
	send := func(path string, of ...sessions.Session) answer {
		f := url.Values{"account": {a.ID}, "which": {"all"}}
		for _, s := range of {
			f.Add("shown", string(s.ID))
		}
		return b.postMany(path, f)
	}
	send(at+"/send-again", all[:101]...).Want(t, http.StatusBadRequest)
	b.Follow(send(at+"/seen", all[101:103]...)).Want(t, http.StatusOK, "Marked as seen")
	first := b.Get(at)
	if n := strings.Count(first.Body, `name="session"`); n != 100 {
		t.Errorf("the first page has %d", n)
	}
	first.Holds(t, string(all[103].ID), string(all[2].ID), "Older")
	first.Lacks(t, string(all[102].ID), string(all[1].ID))
	older := b.Get("/dashboard/callbacks?shown=new&cursor=" + between(t, first.Body, `?cursor=`, `&amp;`))
	older.Holds(t, string(all[0].ID), string(all[1].ID), "Newest")
	older.Lacks(t, string(all[2].ID))

	b.Follow(send(at+"/send-again", all[:98]...)).Want(t, http.StatusOK, "98 are on their way")
	b.Follow(send(at+"/send-again", all[98:]...)).Want(t, http.StatusOK, "2 are on their way",
		"4 more were not sent")
	send(at+"/send-again", all[100:]...).Want(t, http.StatusTooManyRequests, "Slow down")
	// one by one it is the same rate
	b.post("/dashboard/sessions/"+string(all[103].ID)+"/resend", "account", a.ID).
		Want(t, http.StatusTooManyRequests)
}

// The last ten test callbacks are remembered, without their secrets.
func TestTestsAreRemembered(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	at := "/dashboard/callbacks/test"
	r.as("vera").Get(at).Want(t, http.StatusOK, "No test yet")
	b := r.as("dev")
	r.callbacks.answer = sent.Exchange{Verdict: facts.VerdictDelivered, Status: 204, Answer: "secret answer"}
	for i := range 12 {
		r.clock.advance(time.Minute)
		b.post(at, "account", a.ID, "url", fmt.Sprintf("https://bot-%d.example.com/?k=planted-secret", i)).
			Want(t, http.StatusSeeOther)
	}
	r.callbacks.answer = sent.Exchange{Verdict: facts.VerdictReleased, Class: failure.Connect}
	b.post(at, "account", a.ID, "url", "https://away.example.com/").Want(t, http.StatusSeeOther)
	page := r.as("vera").Get(at)
	page.Want(t, http.StatusOK, "The last 10 tests", "bot-11.example.com:443", "bot-3.example.com:443",
		"away.example.com:443", "not sent", "204", "dev")
	page.Lacks(t, "bot-2.example.com", "planted-secret", "secret answer", "Send test callback")
	r.as("olga").Get("/dashboard/audit").Want(t, http.StatusOK, "Test callback sent")
}

// The page of a run reloads itself until nothing is in progress any more.
func TestProgressIsSeen(t *testing.T) {
	t.Parallel()
	tab := chromiumtest.Start(t)
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	all := r.undelivered(a, facts.VerdictUndeliverable, facts.VerdictUndeliverable)
	setCookies(tab, t, r, []*http.Cookie{loginCookie(t, r.browser().login("dev"))})
	chromiumtest.Do(tab, t, chromedp.Navigate(r.base+"/dashboard/callbacks"),
		chromiumtest.Click(`input[name="which"][value="all"]`), chromiumtest.Click(".actions .main"),
		chromedp.WaitVisible("[data-renew] h1"))
	for _, s := range all {
		r.attempt(s, 2, facts.Result{Verdict: facts.VerdictDelivered, Status: 204})
	}
	chromiumtest.Do(tab, t, chromedp.WaitVisible(".head:not([data-renew]) h1"))
	text := chromiumtest.Run(tab, t, chromedp.Evaluate[string](`
document.querySelector(".lead").textContent + "; " + document.querySelector("#voice").textContent + "; " +
document.querySelector("progress").value`))
	if text != "2 of 2 have ended: 2 delivered, 0 not.; 2 of 2 have ended: 2 delivered, 0 not.; 2" {
		t.Errorf("the page and the screen reader say %q", text)
	}
}
