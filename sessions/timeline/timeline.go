// Package timeline describes the course of a session: what happened, entry by entry, in short plain
// sentences that blame nobody. What to do about it depends on the reader, so the caller adds it. The texts
// are in texts.go.
package timeline

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/proof"
	"verifyd/sessions/urlpolicy"
)

// Report is a session to be described. It holds the callback URL, of which only host and port are ever
// shown.
type Report struct {
	facts.View

	Account  string              // its name, or its id if it has none
	Networks func(string) string // what people call an identity network; nil: its id
	Workers  bool                // processes of the service are named, for the people who run it
	// Instant formats an instant in a text; nil: its time of day in UTC
	Instant func(time.Time) string
}

// network names an identity network.
func (s Report) network(id string) string {
	if s.Networks != nil {
		id = s.Networks(id)
	}
	return Legible(id)
}

// instant formats an instant in a text.
func (s Report) instant(t time.Time) string {
	if s.Instant != nil {
		return s.Instant(t)
	}
	return t.UTC().Format(time.TimeOnly)
}

// Describe returns the text of one entry.
func (s Report) Describe(e Entry) string {
	switch e.Kind {
	case EntryCreated:
		text := fmt.Sprintf(textCreated, Legible(s.Account), s.instant(s.ExpiresAt))
		if s.Level.Or(proof.Link) != proof.Link {
			text += fmt.Sprintf(textLevel, s.Level)
		}
		return text
	case EntryExpired:
		if s.Reason == sessions.UnreadableReason {
			return textUnreadable
		}
		return textExpired + s.reached()
	case EntryCompleted:
		return s.DescribeOutcome()
	case EntryResendRequested:
		return fmt.Sprintf(textResendRequested, e.Resend.Number, Legible(e.Resend.By))
	case EntryClaimed:
		return s.describeClaim(*e.Claim)
	case EntryResult:
		return s.describeResult(*e.Result)
	case EntryEvent:
		return s.describeEvent(*e.Event)
	default:
		return string(e.Kind)
	}
}

func (s Report) describeClaim(c facts.Claim) string {
	by := ""
	if s.Workers {
		by = fmt.Sprintf(textWorker, Legible(c.Worker))
	}
	switch {
	case c.Unreadable:
		return fmt.Sprintf(textNoClaim, c.Number)
	case c.GiveUp:
		return fmt.Sprintf(textGivenUp, c.Number, by)
	default:
		return fmt.Sprintf(textClaimed, c.Number, by)
	}
}

// DescribeOutcome describes how the session was completed.
func (s Report) DescribeOutcome() string {
	if s.Reason == sessions.LostReason {
		return textLost
	}
	text, ok := outcomes[s.State][s.Reason]
	if !ok {
		text = string(s.State)
	}
	if s.Rule != failure.NoRule {
		text += ": " + Legible(string(s.Rule))
	}
	if s.Network != "" {
		text += " (" + s.network(s.Network) + ")"
	}
	return text + s.reached()
}

// reached describes what was proven, if the session asks for more than a link.
func (s Report) reached() string {
	if s.Level.Or(proof.Link) == proof.Link || s.Reached == "" {
		return ""
	}
	return fmt.Sprintf(textReached, s.Reached)
}

func (s Report) describeResult(r facts.Result) string {
	head, ok := verdicts[r.Verdict]
	if !ok {
		head = string(r.Verdict)
	}
	if r.Verdict == facts.VerdictDelivered {
		return fmt.Sprintf("%s: %d%s", head, r.Status, formatTiming(r.Timing))
	}
	text := head + ": " + Cause(r.Class, r.Detail)
	if showsTiming(r) {
		text += formatTiming(r.Timing)
	}
	if !r.Next.IsZero() {
		text += fmt.Sprintf(textNextFrom, s.instant(r.Next))
	}
	return text
}

// showsTiming reports whether a time is of use, as that of an answer is. The time of a refused connection or
// of a time-out is not, and the text of a time-out contains it.
func showsTiming(r facts.Result) bool {
	return r.Class != failure.Timeout && r.Verdict != facts.VerdictUndeliverable &&
		r.Verdict != facts.VerdictReleased
}

// Cause returns the sentence that was recorded when it happened or, if there is none, that of the class.
func Cause(class failure.Class, detail string) string {
	if detail != "" {
		return Legible(detail)
	}
	if text, ok := Classes[class]; ok {
		return text
	}
	return Legible(string(class))
}

// formatTiming returns the total and the steps that lead up to the answer; empty if nothing was measured.
func formatTiming(t facts.Timing) string {
	if t.Total == 0 {
		return ""
	}
	var steps []string
	for _, s := range Phases(facts.Timing{DNS: t.DNS, Connect: t.Connect, TLS: t.TLS}) {
		name := s.Name
		if name == "Connect" {
			name = "connect"
		}
		steps = append(steps, name+" "+FormatDuration(s.Took))
	}
	if len(steps) == 0 {
		return " in " + FormatDuration(t.Total)
	}
	return fmt.Sprintf(" in %s (%s)", FormatDuration(t.Total), strings.Join(steps, ", "))
}

func (s Report) describeEvent(e Event) string {
	switch e.Name {
	case EventOpened:
		return textOpened
	case EventReturned:
		return fmt.Sprintf(textReturned, s.network(e.Network))
	case EventFinished:
		return textFinished
	case EventPlatform:
		return fmt.Sprintf(textPlatform, s.network(e.Network))
	case EventCode:
		return fmt.Sprintf(textCode, s.network(e.Network))
	case EventWrongCode:
		return fmt.Sprintf(textWrongCode, Legible(e.Detail))
	case EventSignIn:
		return fmt.Sprintf(textSignIn, s.network(e.Network))
	case EventNetworkError:
		return fmt.Sprintf(textNetworkError, s.network(e.Network), Cause(e.Class, e.Detail))
	case EventNotSent:
		if e.Next > 0 {
			return fmt.Sprintf(textNotSentNext, Cause(e.Class, e.Detail), FormatDuration(e.Next))
		}
		return fmt.Sprintf(textNotSent, Cause(e.Class, e.Detail))
	default: // of a newer build, or the record's own
		return Legible(string(e.Name))
	}
}

// Phase is one step of an attempt that took place.
type Phase struct {
	Name string
	Took time.Duration
}

// Phases returns the steps of an attempt that took place, in their order.
func Phases(t facts.Timing) []Phase {
	all := []Phase{
		{"DNS", t.DNS}, {"Connect", t.Connect}, {"TLS", t.TLS}, {"First byte", t.FirstByte},
		{"Total", t.Total},
	}
	return slices.DeleteFunc(all, func(s Phase) bool { return s.Took == 0 })
}

// FormatDuration formats a duration for people.
func FormatDuration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "under 1 ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	default:
		return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	}
}

// Host returns the receiver's host and port. The rest of a callback URL carries the integrator's secrets.
func Host(s sessions.Session) string { return URLHost(s.CallbackURL) }

// URLHost returns a callback URL's host and port as urlpolicy.URL.HostPort does, however they are written in
// it: operators' pauses and filters use that form.
func URLHost(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return "-"
	}
	if host, err := urlpolicy.Destination(u.Host); err == nil {
		return host
	}
	if u.Port() == "" {
		return Legible(u.Host + ":443")
	}
	return Legible(u.Host)
}

// Legible shows text that others chose: as it is if every character is visible, quoted with escapes if one is
// not.
func Legible(s string) string {
	quoted := strconv.QuoteToGraphic(s)
	if quoted == `"`+s+`"` {
		return s
	}
	return quoted
}
