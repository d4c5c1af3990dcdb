package dashboard

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"verifyd/edge"
	"verifyd/edge/account"
	"verifyd/sessions"
	"verifyd/sessions/told"
)

// line is one entry of a timeline as it is drawn.
type line struct {
	At     time.Time
	Day    bool   // the first of its day
	Tone   string // good, bad, caution or none
	Words  string
	Answer string // the first bytes of the receiver's answer
	Steps  []told.Step
}

type sessionData struct {
	sessions.View

	Lines  []line
	Advice string
	Host   string
	KeyRow *account.Key
	Sent   int // attempts in which bytes left
	Held   int // attempts and tries in which none did
	Last   *sessions.Result
	Again  bool // the callback can be sent again
	Curl   string
}

// WebhookID is what the receiver knows the callback by.
func (d sessionData) WebhookID() string {
	if d.Test {
		return "cbtest_" + string(d.ID)
	}
	return "cb_" + string(d.ID)
}

// showSession answers GET /dashboard/sessions/{session}.
func (h *Handler) showSession(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	s, entries, ok := h.session(ctx, w, r, v)
	if !ok {
		return
	}
	d := h.sessionData(s, entries, v)
	h.draw(w, view{
		page: "session", Title: "Session", Nav: "sessions", visit: &v, Flash: h.takeFlash(w, r), Data: d,
		Live: liveAddress(h, s),
	})
}

// liveAddress is where the changes of a session are told; none once nothing more is to come.
func liveAddress(h *Handler, s sessions.View) string {
	if settled(s) {
		return ""
	}
	return h.prefix + pathOf(pathLive, string(s.ID)) + "?" + query("seen", markOf(s))
}

// settled says whether nothing happens to a session any more by itself.
func settled(s sessions.View) bool {
	return s.State != sessions.Pending && s.Delivery.State != sessions.DeliveryDue && s.Delivery.State != sessions.DeliveryClaimed
}

// session reads the session that a path names, if it is the account's, and answers otherwise.
func (h *Handler) session(ctx context.Context, w http.ResponseWriter, r *http.Request, v visit) (sessions.View, []sessions.Entry, bool) {
	id, err := sessions.ParseID(r.PathValue("session"))
	if err != nil || string(id) != r.PathValue("session") { // never by its token, which would stand in the address
		h.drawProblem(w, &v, problemNotFound)
		return sessions.View{}, nil, false
	}
	edge.LineOf(r.Context()).Session = id
	s, entries, err := h.Sessions.Timeline(ctx, id)
	switch {
	case errors.Is(err, sessions.ErrNotFound), err == nil && s.Account != v.account.ID:
		h.drawProblem(w, &v, problemNotFound)
		return sessions.View{}, nil, false
	case err != nil:
		h.fail(w, r, &v, err)
		return sessions.View{}, nil, false
	}
	return s, entries, true
}

func (h *Handler) sessionData(s sessions.View, entries []sessions.Entry, v visit) sessionData {
	story := told.Story{View: s, Account: v.account.Name}
	d := sessionData{View: s, Host: told.Host(s.Session), Advice: advice(story, v.may(account.ActionSend))}
	day := ""
	for _, e := range entries {
		l := lineOf(story, e)
		if at := e.At.UTC().Format(time.DateOnly); at != day {
			day, l.Day = at, true
		}
		d.Lines = append(d.Lines, l)
		if e.Kind == sessions.EntryEvent && e.Event.Name == sessions.EventNotSent {
			d.Held++
		}
	}
	for i := range s.Delivery.Attempts {
		res := s.Delivery.Attempts[i].Result
		switch {
		case res == nil:
		case res.Verdict == sessions.VerdictReleased, res.Verdict == sessions.VerdictUndeliverable:
			d.Last = res
		default:
			d.Last = res
			d.Sent++
		}
	}
	for _, k := range h.Directory.Keys(v.account.ID) {
		if k.ID == s.Key {
			d.KeyRow = &k
		}
	}
	if v.may(account.ActionSend) {
		d.Again = s.Delivery.State != sessions.DeliveryNone && settled(s)
		d.Curl = h.curl(s, v.account)
	}
	return d
}

// lineOf draws one entry.
func lineOf(story told.Story, e sessions.Entry) line {
	l := line{At: e.At, Words: story.Say(e)}
	switch e.Kind {
	case sessions.EntryCompleted:
		l.Tone = toneOfState(story.State)
	case sessions.EntryExpired:
		l.Tone = "caution"
	case sessions.EntryResult:
		l.Tone, l.Answer, l.Steps = toneOfVerdict(e.Result.Verdict), e.Result.Answer, told.Steps(e.Result.Timing)
	case sessions.EntryEvent:
		if e.Event.Name == sessions.EventNotSent || e.Event.Name == sessions.EventTrouble {
			l.Tone = "caution"
		}
	case sessions.EntryCreated, sessions.EntryAsked, sessions.EntryClaimed:
	}
	return l
}

// toneOfState is the colour of a state; the word stands beside it.
func toneOfState(s sessions.State) string {
	switch s {
	case sessions.Verified:
		return "good"
	case sessions.Failed:
		return "bad"
	default:
		return ""
	}
}

func toneOfVerdict(v sessions.Verdict) string {
	switch v {
	case sessions.VerdictDelivered:
		return "good"
	case sessions.VerdictRejected, sessions.VerdictUndeliverable:
		return "bad"
	default:
		return "caution"
	}
}

func toneOfDelivery(s sessions.DeliveryState) string {
	switch s {
	case sessions.DeliveryDelivered:
		return "good"
	case sessions.DeliveryRejected, sessions.DeliveryUndeliverable:
		return "bad"
	case sessions.DeliveryUnknown:
		return "caution"
	default:
		return ""
	}
}

// What to do about a session, by where it stands.
var (
	sessionAdvice = map[sessions.State]string{
		sessions.Pending:  "The user has not finished yet and has until {expires} UTC. Nothing to do.",
		sessions.Expired:  "Nobody finished in time, so no callback is sent. Start a new session for this user.",
		sessions.Canceled: "You took the session back, so no callback is sent. Nothing to do.",
	}
	deliveryAdvice = map[sessions.DeliveryState]string{
		sessions.DeliveryDue:           "The callback waits for its next try and is sent by itself.",
		sessions.DeliveryClaimed:       "The callback is being sent at this moment.",
		sessions.DeliveryDelivered:     "{host} has the result. Nothing to do.",
		sessions.DeliveryRejected:      "{host} got the callback and refused it, and it is not sent again by itself. Mend the receiver, then send it again.",
		sessions.DeliveryUnknown:       "The callback may have reached {host} or not, and is not sent again by itself. Look there for this webhook-id before you send it again.",
		sessions.DeliveryUndeliverable: "Nothing was ever sent to {host}. Mend what kept it from being reached, then send it again.",
	}
)

// unreadableAdvice is about a session whose outcome cannot be read (sessions.ErrUnreadable).
const unreadableAdvice = "What is stored as this session's outcome cannot be read, so nobody was verified and no callback is sent. Start a new session for this user."

func advice(s told.Story, maySend bool) string {
	words := sessionAdvice[s.State]
	if s.Reason == sessions.UnreadableReason {
		words = unreadableAdvice
	}
	if s.Delivery.State != sessions.DeliveryNone {
		words = deliveryAdvice[s.Delivery.State]
	}
	if !maySend {
		words = strings.ReplaceAll(words, ", then send it again", ", then ask a developer of this account to send it again")
	}
	return strings.NewReplacer("{host}", told.Host(s.Session), "{expires}", s.ExpiresAt.UTC().Format(time.TimeOnly)).Replace(words)
}

// againRate is how many callbacks an account may send again from here: a person who goes through a list of failed ones is not held up, a
// held-down Enter is. The same endpoint of the API counts towards its key's rate.
var againRate = account.Rate{Count: 1, Per: time.Second, Burst: 30}

// resend answers POST /dashboard/sessions/{session}/resend.
func (h *Handler) resend(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	s, _, ok := h.session(ctx, w, r, v)
	if !ok {
		return
	}
	if d := h.again.Allow(account.Key{ID: v.account.ID}, h.Now()); !d.Allowed {
		w.Header().Set("Retry-After", strconv.Itoa(int((d.RetryAfter+time.Second-1)/time.Second)))
		h.drawProblem(w, &v, problemTooMany)
		return
	}
	to := pathOf(pathSession, string(s.ID))
	_, err := h.Sessions.Resend(ctx, s.ID, v.actor().String())
	switch {
	case errors.Is(err, sessions.ErrDeliveryOpen):
		h.done(w, flashDeliveryOpen, to)
		return
	case errors.Is(err, sessions.ErrNoDelivery):
		h.done(w, flashNothingToSend, to)
		return
	case err != nil:
		h.fail(w, r, &v, err)
		return
	}
	// It is asked for: that the log does not say so yet takes nothing back.
	if err := h.Accounts.Note(ctx, v.actor(), v.account.ID, account.CallbackSent, string(s.ID), nil); err != nil {
		edge.LineOf(r.Context()).Err = err
	}
	h.done(w, flashResent, to)
}
