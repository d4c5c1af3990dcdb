package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"verifyd/sessions"
)

type explainCmd struct {
	storeCmd   `embed:""`
	sessionArg `embed:""`
}

// Run tells what happened to a session, oldest first, and what to do.
func (e explainCmd) Run(ctx context.Context, c console) error {
	id, err := e.id()
	if err != nil {
		return err
	}
	return e.look(ctx, c, func(st *store) error {
		ctx, cancel := context.WithTimeout(ctx, lookFor)
		defer cancel()
		v, entries, err := st.reader().Timeline(ctx, id)
		if err != nil {
			return noneKept(id, err)
		}
		accounts, err := st.accounts.Accounts(ctx)
		if err != nil {
			return err
		}
		story := story{View: v, account: v.Account}
		for _, a := range accounts {
			if a.ID == v.Account {
				story.account = a.Name
			}
		}
		return story.tell(c.out, entries)
	})
}

// story is a session as it is told. It holds the callback URL, of which only host and port are ever said.
type story struct {
	sessions.View
	account string // its name, or its id where it has none
}

func (s story) tell(out io.Writer, entries []sessions.Entry) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Session %s: %s\n", s.ID, s.title())
	fmt.Fprintf(&b, "User %s on %s", legible(s.PlatformUserID), legible(s.Platform))
	if s.GuildID != "" {
		fmt.Fprintf(&b, ", group %s", legible(s.GuildID))
	}
	if s.Test {
		b.WriteString(", test key")
	}
	b.WriteString("\n")
	day := ""
	for _, e := range entries {
		if d := e.At.UTC().Format("2 January 2006"); d != day {
			day = d
			fmt.Fprintf(&b, "\n%s, UTC\n", day)
		}
		fmt.Fprintf(&b, "%s  %s\n", e.At.UTC().Format("15:04:05.000"), s.say(e))
	}
	fmt.Fprintf(&b, "\n%s\n", s.advice())
	_, err := io.WriteString(out, b.String())
	return err
}

// title is the state, with the delivery's where there is one.
func (s story) title() string {
	if s.Delivery.State == sessions.DeliveryNone {
		return string(s.State)
	}
	return string(s.State) + ", " + string(s.Delivery.State)
}

// say gives the words of one entry.
func (s story) say(e sessions.Entry) string {
	switch e.Kind {
	case sessions.EntryCreated:
		return fmt.Sprintf(sayCreated, legible(s.account), s.ExpiresAt.UTC().Format(time.TimeOnly))
	case sessions.EntryExpired:
		return sayExpired
	case sessions.EntryCompleted:
		return s.outcome()
	case sessions.EntryAsked:
		return fmt.Sprintf(sayAsked, e.Resend.Number, legible(e.Resend.By))
	case sessions.EntryClaimed:
		if e.Claim.GiveUp {
			return fmt.Sprintf(sayGivenUp, e.Claim.Number, legible(e.Claim.Worker))
		}
		return fmt.Sprintf(sayClaimed, e.Claim.Number, legible(e.Claim.Worker))
	case sessions.EntryResult:
		return sayResult(*e.Result)
	case sessions.EntryEvent:
		return sayEvent(*e.Event)
	default:
		return string(e.Kind)
	}
}

func (s story) outcome() string {
	words, ok := outcomes[s.State][s.Reason]
	if !ok {
		words = string(s.State)
	}
	if s.Network != "" {
		words += " (" + legible(s.Network) + ")"
	}
	return words
}

func sayResult(r sessions.Result) string {
	head, ok := verdicts[r.Verdict]
	if !ok {
		head = string(r.Verdict)
	}
	if r.Verdict == sessions.VerdictDelivered {
		return fmt.Sprintf("%s: %d%s", head, r.Status, sayTiming(r.Timing))
	}
	said := head + ": " + why(r.Class, r.Detail) + sayTiming(r.Timing)
	if !r.Next.IsZero() {
		said += fmt.Sprintf(sayNextFrom, r.Next.UTC().Format(time.TimeOnly))
	}
	return said
}

// why prefers the sentence that was written when it happened to the class's.
func why(class sessions.Class, detail string) string {
	if detail != "" {
		return legible(detail)
	}
	if words, ok := classes[class]; ok {
		return words
	}
	return legible(string(class))
}

// sayTiming gives the total and the steps that lead up to the answer; nothing where nothing was measured.
func sayTiming(t sessions.Timing) string {
	if t.Total == 0 {
		return ""
	}
	var steps []string
	for _, s := range stepsOf(sessions.Timing{DNS: t.DNS, Connect: t.Connect, TLS: t.TLS}) {
		name := s.name
		if name == "Connect" {
			name = "connect"
		}
		steps = append(steps, name+" "+took(s.took))
	}
	if len(steps) == 0 {
		return " in " + took(t.Total)
	}
	return fmt.Sprintf(" in %s (%s)", took(t.Total), strings.Join(steps, ", "))
}

func sayEvent(e sessions.Event) string {
	switch e.Name {
	case sessions.EventSignIn:
		return fmt.Sprintf(saySignIn, legible(e.Network))
	case sessions.EventTrouble:
		return fmt.Sprintf(sayTrouble, legible(e.Network), why(e.Class, e.Detail))
	case sessions.EventNotSent:
		if e.Next > 0 {
			return fmt.Sprintf(sayNotSentNext, why(e.Class, e.Detail), took(e.Next))
		}
		return fmt.Sprintf(sayNotSent, why(e.Class, e.Detail))
	default: // of a newer build, or the record's own
		return legible(string(e.Name))
	}
}

// advice is one sentence or two: what it means and what to do.
func (s story) advice() string {
	words := meanings[s.State]
	if s.Delivery.State != sessions.DeliveryNone {
		words = deliveryMeanings[s.Delivery.State]
	}
	return strings.NewReplacer(
		"{host}", hostOf(s.Session), "{account}", legible(s.account), "{sid}", string(s.ID), "{expires}", s.ExpiresAt.UTC().Format(time.TimeOnly),
	).Replace(words)
}
