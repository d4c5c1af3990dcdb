package delivery

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/table"
	"verifyd/dispatcher/callback"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/pauses"
	"verifyd/sessions/timeline"
)

// Explain describes in plain words what happened to a session, and what to do.
type Explain struct {
	command.Local `embed:""`
	table.Listing `embed:""`
	sessionArg    `embed:""`
}

// Run describes what happened to a session, oldest first, and what to do.
func (e Explain) Run(ctx context.Context, c command.Console) error {
	id, err := e.id()
	if err != nil {
		return err
	}
	return e.Use(ctx, c, command.WhyRecords, func(st *store.Store) error {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		v, entries, err := st.Reader().Timeline(ctx, id)
		if err != nil {
			return noneKept(id, err)
		}
		accounts, err := st.Accounts.Accounts(ctx)
		if err != nil {
			return err
		}
		explanation := explanation{Report: timeline.Report{View: v, Account: v.Account, Workers: true}}
		if v.Delivery.State == facts.DeliveryDue {
			paused := pauses.NewStore(st.Conn, nil)
			if explanation.pause, err = paused.Of(ctx, timeline.Host(v.Session)); err != nil {
				return err
			}
		}
		for _, a := range accounts {
			if a.ID == v.Account {
				explanation.Account = a.Name
			}
		}
		if e.JSON {
			return e.Print(c.Out, explanation.card(c), explanation.timeline(entries))
		}
		return explanation.write(c, entries)
	})
}

// explanation is a session as verifyd explain describes it.
type explanation struct {
	timeline.Report

	pause *pauses.Pause // of its receiver host; nil: it is not paused
}

func (s explanation) write(c command.Console, entries []timeline.Entry) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Session %s: %s\n", s.ID, s.title())
	fmt.Fprintf(&b, "User %s on %s", timeline.Legible(s.PlatformUserID), timeline.Legible(s.Platform))
	if s.GuildID != "" {
		fmt.Fprintf(&b, ", group %s", timeline.Legible(s.GuildID))
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
		fmt.Fprintf(&b, "%s  %s\n", e.At.UTC().Format("15:04:05.000"), s.Describe(e))
	}
	fmt.Fprintf(&b, "\n%s\n", c.Say(s.advice()))
	_, err := io.WriteString(c.Out, b.String())
	return err
}

// card and timeline are for programs what write is for people.
func (s explanation) card(c command.Console) *table.Table {
	t := table.NewCard("session", ":id", ":test", ":platform", ":platform_user_id", ":guild_id", ":state",
		":reason", ":delivery", ":advice")
	t.Add(s.ID, s.Test, s.Platform, s.PlatformUserID, s.GuildID, s.State, s.Reason, s.Delivery.State,
		c.Say(s.advice()))
	return t
}

func (s explanation) timeline(entries []timeline.Entry) *table.Table {
	t := table.New("timeline", ":at", ":kind", ":text")
	for _, e := range entries {
		t.Add(table.Exactly(e.At), e.Kind, s.Describe(e))
	}
	return t
}

// title returns the state of the session, with that of the delivery if there is one.
func (s explanation) title() string {
	if s.Delivery.State == facts.DeliveryNone {
		return string(s.State)
	}
	return string(s.State) + ", " + string(s.Delivery.State)
}

// advice returns one or two sentences: what the state means and what to do.
func (s explanation) advice() string {
	words := meanings[s.State]
	if s.Delivery.State != facts.DeliveryNone {
		words = deliveryMeanings[s.Delivery.State]
	}
	if s.Reason == sessions.UnreadableReason {
		words = unreadableMeaning
	}
	if s.Reason == sessions.LostReason || s.Lost && s.Delivery.State != facts.DeliveryDelivered {
		words = lostMeaning
	}
	until := ""
	if s.pause != nil {
		words, until = pausedMeaning, table.Exactly(s.pause.Until)
	}
	return strings.NewReplacer(
		"{host}", timeline.Host(s.Session), "{until}", until, "{account}", timeline.Legible(s.Account),
		"{sid}", string(s.ID), "{webhook-id}", callback.ID(s.ID, s.Test), "{expires}", s.ExpiresAt.UTC().
			Format(time.TimeOnly),
	).Replace(words)
}

// meanings say what to do about a session without a callback.
var meanings = map[sessions.State]string{
	sessions.Pending: "The user has not finished yet and has until {expires}. Nothing to do; after " +
		"that, {account} has to start a new session.",
	sessions.Expired: "Nobody finished in time, so no callback is sent. {account} can start a new " +
		"session for this user.",
	sessions.Canceled: "{account} canceled the session, so no callback is sent. Nothing to do.",
}

// deliveryMeanings say what to do about a callback.
var deliveryMeanings = map[facts.DeliveryState]string{
	facts.DeliveryDue: "The callback is waiting for its next attempt and is sent " +
		"automatically. If it keeps waiting, check whether a dispatcher runs and {host} can be reached.",
	facts.DeliveryClaimed:   "A worker is sending the callback at this moment. Check again in a minute.",
	facts.DeliveryDelivered: "{host} has the result. Nothing to do.",
	facts.DeliveryRejected: "{host} got the callback and refused it; it is not sent again " +
		"automatically. Fix the receiver; then send it again with: verifyd deliveries resend {sid}. " +
		"{account} can also read the result with GET /sessions/{sid}.",
	facts.DeliveryUnknown: "The callback may or may not have reached {host}; it is not sent again " +
		"automatically. Look there for webhook-id {webhook-id}; to send it again, with the same " +
		"webhook-id: verifyd deliveries resend {sid}. {account} can also read the result with " +
		"GET /sessions/{sid}.",
	facts.DeliveryUndeliverable: "Nothing was ever sent to {host}. Fix the cause; then send it again " +
		"with: verifyd deliveries resend {sid}. {account} can also read the result with " +
		"GET /sessions/{sid}.",
}

// unreadableMeaning says what to do about a session whose outcome cannot be read.
const unreadableMeaning = "The message stored as this session's outcome was not written by " +
	"verifyd, so nobody was verified and no callback is sent. {account} has to start a new session for " +
	"this user. Check who has the NATS credentials: OPERATING.md, facts that cannot be read."

// lostMeaning says what to do about a session whose outcome a damaged store may have lost.
const lostMeaning = "The store was damaged and recovered (verifyd operator audit shows what was lost). " +
	"Whether this session was completed, and whether its callback was sent, is no longer known; no " +
	"callback is sent. {account} can check the receiver, or start a new session for this user."

// pausedMeaning says what to do about a callback whose receiver host an operator has paused.
const pausedMeaning = "{host} was paused by an operator until {until}, so the callback waits. After " +
	"that it has its full time to be sent. To send it now: verifyd hosts resume {host}"
