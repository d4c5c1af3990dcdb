package integrator

import (
	"context"
	"errors"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/pauses"
	"verifyd/sessions/timeline"
)

// line is one entry of a timeline as it is drawn.
type line struct {
	At     time.Time
	Day    bool   // the first of its day
	Tone   string // good, bad, caution or none
	Words  template.HTML
	Answer string // the first bytes of the receiver's answer
	Steps  []timeline.Phase
}

type sessionData struct {
	facts.View

	Lines  []line
	Advice template.HTML
	Host   string
	KeyRow *account.Key
	Sent   int // attempts in which bytes were sent
	Held   int // attempts and tries in which none were sent
	Last   *facts.Result
	Again  bool // the callback can be sent again
	Curl   string
	Pause  *pauses.Pause // of the receiver's host, while the callback waits
}

// WebhookID is the callback's webhook-id.
func (d sessionData) WebhookID() string {
	if d.Test {
		return "cbtest_" + string(d.ID)
	}
	return "cb_" + string(d.ID)
}

// Cut reports whether the page's head shows only the first lines of the integrator's texts.
func (d sessionData) Cut() bool {
	texts := []string{d.PlatformUserID, d.Platform, d.GuildID, d.DisplayName, d.GroupName}
	return slices.ContainsFunc(texts, func(s string) bool { return len(s) > headBytes && page.Long(s) })
}

// headBytes is what the head of a session's page shows of a text on the smallest phone: three lines.
const headBytes = 40

// showSession answers GET /dashboard/sessions/{session}.
func (h sessionPages) showSession(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	s, entries, ok := h.session(ctx, w, r, v)
	if !ok {
		return
	}
	d := h.sessionData(s, entries, v)
	if s.Delivery.State == facts.DeliveryDue {
		var err error
		if d.Pause, err = h.Pauses.Of(ctx, d.Host); err != nil {
			h.Fail(w, r, &v, err)
			return
		}
	}
	h.Draw(w, site.View{
		Page: "session", Title: "Session", Nav: "sessions", Visit: &v, Flash: h.TakeFlash(w, r), Data: d,
		Live: h.liveAddress(s),
	})
}

// liveAddress returns the address of the session's live updates; empty once nothing more is to come.
func (h sessionPages) liveAddress(s facts.View) string {
	if settled(s) {
		return ""
	}
	return h.Prefix + paths.Of(pathLive, string(s.ID)) + "?" + form.Query("seen", markOf(s))
}

// settled reports whether a session no longer changes by itself.
func settled(s facts.View) bool {
	return s.State != sessions.Pending && s.Delivery.State != facts.DeliveryDue &&
		s.Delivery.State != facts.DeliveryClaimed
}

// session reads the session that a path names. It answers the request unless the session is the account's.
func (h sessionPages) session(ctx context.Context, w http.ResponseWriter, r *http.Request,
	v site.Visit) (facts.View, []timeline.Entry, bool) {
	id, err := sessions.ParseID(r.PathValue("session"))
	// never by its token, which would be in the address
	if err != nil || string(id) != r.PathValue("session") {
		h.DrawProblem(w, &v, site.ProblemNotFound)
		return facts.View{}, nil, false
	}
	web.EventFrom(r.Context()).Session = id
	s, entries, err := h.Sessions.Timeline(ctx, id)
	switch {
	case errors.Is(err, sessions.ErrNotFound), err == nil && s.Account != v.Account.ID:
		h.DrawProblem(w, &v, site.ProblemNotFound)
		return facts.View{}, nil, false
	case err != nil:
		h.Fail(w, r, &v, err)
		return facts.View{}, nil, false
	}
	return s, entries, true
}

func (h sessionPages) sessionData(s facts.View, entries []timeline.Entry, v site.Visit) sessionData {
	report := timeline.Report{
		View: s, Account: v.Account.Name, Networks: h.NetworkName, Instant: site.Instant,
	}
	d := sessionData{
		View: s, Host: timeline.Host(s.Session), Advice: advice(report, v.May(access.ActionSend)),
	}
	day := ""
	for _, e := range entries {
		l := lineOf(report, e)
		if at := e.At.UTC().Format(time.DateOnly); at != day {
			day, l.Day = at, true
		}
		d.Lines = append(d.Lines, l)
		if e.Kind == timeline.EntryEvent && e.Event.Name == timeline.EventNotSent {
			d.Held++
		}
	}
	for i := range s.Delivery.Attempts {
		res := s.Delivery.Attempts[i].Result
		switch {
		case res == nil:
		case res.Verdict == facts.VerdictReleased, res.Verdict == facts.VerdictUndeliverable:
			d.Last = res
		default:
			d.Last = res
			d.Sent++
		}
	}
	for _, k := range h.Directory.Keys(v.Account.ID) {
		if k.ID == s.Key {
			d.KeyRow = &k
		}
	}
	if v.May(access.ActionSend) {
		d.Again = s.Delivery.State != facts.DeliveryNone && settled(s)
		d.Curl = h.curl(s, v.Account)
	}
	return d
}

// lineOf returns an entry as the page shows it.
func lineOf(report timeline.Report, e timeline.Entry) line {
	l := line{At: e.At, Words: site.Words(report.Describe(e))}
	switch e.Kind {
	case timeline.EntryCompleted:
		l.Tone = site.ToneOfState(report.State)
	case timeline.EntryExpired:
		l.Tone = "caution"
	case timeline.EntryResult:
		l.Tone, l.Answer, l.Steps = site.ToneOfVerdict(e.Result.Verdict), e.Result.Answer,
			timeline.Phases(e.Result.Timing)
	case timeline.EntryEvent:
		if e.Event.Name == timeline.EventNotSent || e.Event.Name == timeline.EventNetworkError {
			l.Tone = "caution"
		}
	case timeline.EntryCreated, timeline.EntryResendRequested, timeline.EntryClaimed:
	}
	return l
}

// What to do about a session, by its state.
var (
	sessionAdvice = map[sessions.State]string{
		sessions.Pending: "The user has not finished yet and has until {expires}. Nothing to do.",
		sessions.Expired: "Nobody finished in time, so no callback is sent. Start a new session for " +
			"this user.",
		sessions.Canceled: "You canceled the session, so no callback is sent. Nothing to do.",
	}
	deliveryAdvice = map[facts.DeliveryState]string{
		facts.DeliveryDue: "The callback is waiting for its next attempt and is sent " +
			"automatically.",
		facts.DeliveryClaimed:   "The callback is being sent at this moment.",
		facts.DeliveryDelivered: "{host} has the result. Nothing to do.",
		facts.DeliveryRejected: "{host} got the callback and refused it, and it is not sent again " +
			"automatically. Fix the receiver, then send it again.",
		facts.DeliveryUnknown: "The callback may or may not have reached {host}, and is not sent " +
			"again automatically. Check there for this webhook-id before you send it again.",
		facts.DeliveryUndeliverable: "Nothing was ever sent to {host}. Fix the cause, then send it " +
			"again.",
	}
)

// unreadableAdvice is about a session whose outcome cannot be read (facts.ErrUnreadable).
const unreadableAdvice = "What is stored as this session's outcome cannot be read, so nobody was " +
	"verified and no callback is sent. Start a new session for this user."

// lostAdvice is about a session whose outcome, or whose destination, a damaged store may have lost.
const lostAdvice = "This service's store was damaged, and this session's outcome may be among what was " +
	"lost. No callback is sent any more. If you received one, it is valid; otherwise start a new " +
	"session for this user."

func advice(s timeline.Report, maySend bool) template.HTML {
	words := sessionAdvice[s.State]
	if s.Reason == sessions.UnreadableReason {
		words = unreadableAdvice
	}
	if s.Reason == sessions.LostReason {
		words = lostAdvice
	}
	if s.Delivery.State != facts.DeliveryNone {
		words = deliveryAdvice[s.Delivery.State]
	}
	if s.Lost && s.Delivery.State != facts.DeliveryDelivered {
		words = lostAdvice
	}
	if !maySend {
		words = strings.ReplaceAll(words, ", then send it again",
			", then ask a developer of this account to send it again")
	}
	return site.Words(strings.NewReplacer("{host}", timeline.Host(s.Session), "{expires}",
		site.Instant(s.ExpiresAt)).Replace(words))
}
