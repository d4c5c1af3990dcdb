// Package told puts the course of a session into words: what happened, entry by entry. Short and plain, and nobody is blamed. What to
// do about it is said by who shows it, since that depends on who looks. The words are in words.go.
package told

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"verifyd/sessions"
	"verifyd/sessions/target"
)

// Story is a session as it is told. It holds the callback URL, of which only host and port are ever said.
type Story struct {
	sessions.View

	Account string // its name, or its id where it has none
}

// Say gives the words of one entry.
func (s Story) Say(e sessions.Entry) string {
	switch e.Kind {
	case sessions.EntryCreated:
		return fmt.Sprintf(sayCreated, Legible(s.Account), s.ExpiresAt.UTC().Format(time.TimeOnly))
	case sessions.EntryExpired:
		if s.Reason == sessions.UnreadableReason {
			return sayUnreadable
		}
		return sayExpired
	case sessions.EntryCompleted:
		return s.OutcomeWords()
	case sessions.EntryAsked:
		return fmt.Sprintf(sayAsked, e.Resend.Number, Legible(e.Resend.By))
	case sessions.EntryClaimed:
		return sayClaim(*e.Claim)
	case sessions.EntryResult:
		return ResultWords(*e.Result)
	case sessions.EntryEvent:
		return sayEvent(*e.Event)
	default:
		return string(e.Kind)
	}
}

func sayClaim(c sessions.Claim) string {
	switch {
	case c.Unreadable:
		return fmt.Sprintf(sayNoClaim, c.Number)
	case c.GiveUp:
		return fmt.Sprintf(sayGivenUp, c.Number, Legible(c.Worker))
	default:
		return fmt.Sprintf(sayClaimed, c.Number, Legible(c.Worker))
	}
}

// OutcomeWords says how the session was completed.
func (s Story) OutcomeWords() string {
	words, ok := outcomes[s.State][s.Reason]
	if !ok {
		words = string(s.State)
	}
	if s.Rule != sessions.NoRule {
		words += ": " + Legible(string(s.Rule))
	}
	if s.Network != "" {
		words += " (" + Legible(s.Network) + ")"
	}
	return words
}

// ResultWords says how an attempt ended.
func ResultWords(r sessions.Result) string {
	head, ok := verdicts[r.Verdict]
	if !ok {
		head = string(r.Verdict)
	}
	if r.Verdict == sessions.VerdictDelivered {
		return fmt.Sprintf("%s: %d%s", head, r.Status, sayTiming(r.Timing))
	}
	said := head + ": " + Why(r.Class, r.Detail) + sayTiming(r.Timing)
	if !r.Next.IsZero() {
		said += fmt.Sprintf(sayNextFrom, r.Next.UTC().Format(time.TimeOnly))
	}
	return said
}

// Why prefers the sentence that was written when it happened to the class's.
func Why(class sessions.Class, detail string) string {
	if detail != "" {
		return Legible(detail)
	}
	if words, ok := Classes[class]; ok {
		return words
	}
	return Legible(string(class))
}

// sayTiming gives the total and the steps that lead up to the answer; nothing where nothing was measured.
func sayTiming(t sessions.Timing) string {
	if t.Total == 0 {
		return ""
	}
	var steps []string
	for _, s := range Steps(sessions.Timing{DNS: t.DNS, Connect: t.Connect, TLS: t.TLS}) {
		name := s.Name
		if name == "Connect" {
			name = "connect"
		}
		steps = append(steps, name+" "+Took(s.Took))
	}
	if len(steps) == 0 {
		return " in " + Took(t.Total)
	}
	return fmt.Sprintf(" in %s (%s)", Took(t.Total), strings.Join(steps, ", "))
}

func sayEvent(e sessions.Event) string {
	switch e.Name {
	case sessions.EventOpened:
		return sayOpened
	case sessions.EventReturned:
		return fmt.Sprintf(sayReturned, Legible(e.Network))
	case sessions.EventFinished:
		return sayFinished
	case sessions.EventSignIn:
		return fmt.Sprintf(saySignIn, Legible(e.Network))
	case sessions.EventTrouble:
		return fmt.Sprintf(sayTrouble, Legible(e.Network), Why(e.Class, e.Detail))
	case sessions.EventNotSent:
		if e.Next > 0 {
			return fmt.Sprintf(sayNotSentNext, Why(e.Class, e.Detail), Took(e.Next))
		}
		return fmt.Sprintf(sayNotSent, Why(e.Class, e.Detail))
	default: // of a newer build, or the record's own
		return Legible(string(e.Name))
	}
}

// Step is one step of an attempt that took place.
type Step struct {
	Name string
	Took time.Duration
}

// Steps gives the steps of an attempt that took place, in their order.
func Steps(t sessions.Timing) []Step {
	all := []Step{{"DNS", t.DNS}, {"Connect", t.Connect}, {"TLS", t.TLS}, {"First byte", t.FirstByte}, {"Total", t.Total}}
	return slices.DeleteFunc(all, func(s Step) bool { return s.Took == 0 })
}

// Took writes a duration for people.
func Took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "under 1 ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	default:
		return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	}
}

// Host gives the receiver's host and port. The rest of a callback URL carries the integrator's secrets.
func Host(s sessions.Session) string { return URLHost(s.CallbackURL) }

// URLHost gives a callback URL's host and port as target.URL.HostPort does, however they are written in it: operators' pauses and
// filters name them so.
func URLHost(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return "-"
	}
	if host, err := target.Destination(u.Host); err == nil {
		return host
	}
	if u.Port() == "" {
		return Legible(u.Host + ":443")
	}
	return Legible(u.Host)
}

// Legible shows text that others chose: as it is where every character of it is visible, quoted with escapes where one is not.
func Legible(s string) string {
	quoted := strconv.QuoteToGraphic(s)
	if quoted == `"`+s+`"` {
		return s
	}
	return quoted
}
