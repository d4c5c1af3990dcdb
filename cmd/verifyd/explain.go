package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/sessions"
	"verifyd/sessions/pauses"
	"verifyd/sessions/told"
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
		story := story{Story: told.Story{View: v, Account: v.Account}}
		if v.Delivery.State == sessions.DeliveryDue {
			if story.pause, err = pauseOf(ctx, st, told.Host(v.Session)); err != nil {
				return err
			}
		}
		for _, a := range accounts {
			if a.ID == v.Account {
				story.Account = a.Name
			}
		}
		return story.tell(c.out, entries)
	})
}

// story is a session as verifyd explain tells it.
type story struct {
	told.Story

	pause *pauses.Pause // of its receiver host; nil: it is not paused
}

// pauseOf gives the pause of a receiver host that is on.
func pauseOf(ctx context.Context, st *store, host string) (*pauses.Pause, error) {
	book, err := pauses.NewStore(ctx, st.conn, nil)
	if err != nil {
		return nil, err
	}
	paused, err := book.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range paused {
		if p.Host == host {
			return &p, nil
		}
	}
	return nil, nil //nolint:nilnil // most are not
}

func (s story) tell(out io.Writer, entries []sessions.Entry) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Session %s: %s\n", s.ID, s.title())
	fmt.Fprintf(&b, "User %s on %s", told.Legible(s.PlatformUserID), told.Legible(s.Platform))
	if s.GuildID != "" {
		fmt.Fprintf(&b, ", group %s", told.Legible(s.GuildID))
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
		fmt.Fprintf(&b, "%s  %s\n", e.At.UTC().Format("15:04:05.000"), s.Say(e))
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

// advice is one sentence or two: what it means and what to do.
func (s story) advice() string {
	words := meanings[s.State]
	if s.Delivery.State != sessions.DeliveryNone {
		words = deliveryMeanings[s.Delivery.State]
	}
	if s.Reason == sessions.UnreadableReason {
		words = unreadableMeaning
	}
	until := ""
	if s.pause != nil {
		words, until = pausedMeaning, exactly(s.pause.Until)
	}
	return strings.NewReplacer(
		"{host}", told.Host(s.Session), "{until}", until, "{account}", told.Legible(s.Account), "{sid}", string(s.ID), "{webhook-id}", callback.ID(s.ID, s.Test), "{expires}", s.ExpiresAt.UTC().Format(time.TimeOnly),
	).Replace(words)
}
