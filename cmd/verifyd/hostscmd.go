package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/account"
	"verifyd/edge/redrive"
	"verifyd/natsconf"
	"verifyd/sessions"
	"verifyd/sessions/pauses"
	"verifyd/sessions/roster"
	"verifyd/sessions/target"
	"verifyd/sessions/told"
)

type hostsCmd struct {
	List   hostsListCmd   `cmd:"" help:"List the receiver hosts where nobody answers, where callbacks wait, or that are paused."`
	Pause  hostsPauseCmd  `cmd:"" help:"Send nothing to a receiver host for a while."`
	Resume hostsResumeCmd `cmd:"" help:"Send to it again."`
}

type hostsListCmd struct {
	storeCmd `embed:""`
}

// Run lists what the dispatchers that run see, and what is paused.
func (h hostsListCmd) Run(ctx context.Context, c console) error {
	return h.look(ctx, c, func(st *store) error {
		ctx, cancel := context.WithTimeout(ctx, lookFor)
		defer cancel()
		all, err := roster.Ask(ctx, st.conn)
		if err != nil {
			return err
		}
		book, err := pauses.NewStore(ctx, st.conn, nil)
		if err != nil {
			return err
		}
		paused, err := book.List(ctx)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(w, "HOST\tBREAKER\tSINCE\tWAITING\tWHY")
		for _, seen := range roster.Hosts(all) {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", told.Legible(seen.Host), seen.Breaker, instant(seen.Since), seen.Waiting, told.Legible(orDash(seen.Detail)))
		}
		_, _ = fmt.Fprintln(w, "\nPAUSED HOST\tUNTIL\tBY\tREASON")
		for _, p := range paused {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", told.Legible(p.Host), instant(p.Until), told.Legible(p.By), told.Legible(orDash(p.Reason)))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if !slices.ContainsFunc(all, func(p roster.Process) bool { return slices.Contains(p.Roles, "dispatcher") }) {
			_, err = fmt.Fprintln(c.err, "No dispatcher answers, so nothing is sent to anybody.")
		}
		return err
	})
}

type hostsPauseCmd struct {
	storeCmd `embed:""`
	Host     string        `arg:"" help:"The receiver's host, or host:port; the port is 443 where none is named."`
	For      time.Duration `default:"1h" help:"How long, up to 24h; it ends by itself."`
	Reason   string        `placeholder:"TEXT" help:"Why, for those who look at it later."`
}

// Run pauses the host. Every dispatcher honours it within a second.
func (h hostsPauseCmd) Run(ctx context.Context, c console) error {
	return h.look(ctx, c, func(st *store) error {
		book, err := pauses.NewStore(ctx, st.conn, nil)
		if err != nil {
			return err
		}
		p, err := book.Begin(ctx, h.Host, operator().String(), h.Reason, h.For)
		if err != nil {
			return badPause(err)
		}
		detail := map[string]string{"until": instant(p.Until), "reason": p.Reason}
		if err := st.accounts.Note(ctx, operator(), account.ServiceLog, account.HostPaused, p.Host, detail); err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.err, "Nothing is sent to %s until %s. Callbacks to it wait, and have their whole time after that. End it early with: verifyd hosts resume %s\n", p.Host, instant(p.Until), p.Host)
		return err
	})
}

// badPause makes what an operator mistyped the fault of the command line that it is.
func badPause(err error) error {
	switch {
	case errors.As(err, new(*target.Fault)):
		return usageError{fmt.Errorf("HOST: %w", err)}
	case errors.Is(err, pauses.ErrTooLong):
		return usageError{fmt.Errorf("--for: %w", err)}
	case errors.Is(err, pauses.ErrReason):
		return usageError{fmt.Errorf("--reason: %w", err)}
	case errors.Is(err, pauses.ErrNotPaused):
		return usageError{fmt.Errorf("HOST: %w; verifyd hosts list shows those that are", err)}
	default:
		return err
	}
}

type hostsResumeCmd struct {
	storeCmd `embed:""`
	Host     string `arg:"" help:"The receiver's host, or host:port."`
}

// Run ends the pause.
func (h hostsResumeCmd) Run(ctx context.Context, c console) error {
	return h.look(ctx, c, func(st *store) error {
		book, err := pauses.NewStore(ctx, st.conn, nil)
		if err != nil {
			return err
		}
		p, err := book.End(ctx, h.Host, operator().String())
		if err != nil {
			return badPause(err)
		}
		if err := st.accounts.Note(ctx, operator(), account.ServiceLog, account.HostResumed, p.Host, nil); err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.err, "Callbacks to %s are sent again. Those that wait come within half a minute.\n", p.Host)
		return err
	})
}

type deliveriesRedriveCmd struct {
	storeCmd `embed:""`
	State    string        `required:"" enum:"undeliverable,rejected,unknown" help:"How they ended: undeliverable, rejected or unknown. An unknown one may have arrived already."`
	Host     string        `placeholder:"HOST" help:"Only those to this receiver host."`
	Account  string        `placeholder:"NAME" help:"Only those of this account."`
	Since    time.Duration `default:"72h" help:"Only those whose session was completed within this time."`
	Limit    int           `default:"${redrive_most}" help:"At most so many."`
	DryRun   bool          `help:"Tell which would be sent, and send nothing."`
}

// Run sends again what ended so, newest first. It says which sessions these are, on standard output.
func (d deliveriesRedriveCmd) Run(ctx context.Context, c console) error {
	if d.Limit < 1 || d.Limit > redrive.Most {
		return usageError{fmt.Errorf("--limit: %d is not from 1 to %d; run it again for more", d.Limit, redrive.Most)}
	}
	host := ""
	if d.Host != "" {
		var err error
		if host, err = target.Destination(d.Host); err != nil {
			return usageError{fmt.Errorf("--host: %w", err)}
		}
	}
	return d.look(ctx, c, func(st *store) error {
		ctx, cancel := context.WithTimeout(ctx, lookFor)
		defer cancel()
		of := ""
		if d.Account != "" {
			a, err := st.accounts.AccountByName(ctx, d.Account)
			if err != nil {
				return badInput(err)
			}
			of = a.ID
		}
		found, err := st.reader().FindDeliveries(ctx, sessions.DeliveryQuery{
			States: []sessions.DeliveryState{sessions.DeliveryState(d.State)}, Since: time.Now().Add(-d.Since), Limit: d.Limit,
			Wants: func(v sessions.View) bool {
				return (of == "" || v.Account == of) && (host == "" || told.Host(v.Session) == host)
			},
		})
		if err != nil {
			return err
		}
		ids := make([]sessions.ID, len(found.Views))
		for i, v := range found.Views {
			ids[i] = v.ID
		}
		if d.DryRun {
			return listDeliveries(c.out, found.Views)
		}
		return redriveNow(ctx, c, st, ids)
	})
}

func redriveNow(ctx context.Context, c console, st *store, ids []sessions.ID) error {
	completions := natsconf.NewWriter(st.conn, natsconf.StreamCompletions)
	writing := startLayer("command", zerolog.Nop(), newActor("completions writer", completions))
	defer writing.stop()
	sender := sessions.NewStore(sessions.Config{Conn: st.conn, Completions: completions, Key: st.key})
	done, err := redrive.Send(ctx, sender, st.accounts, operator(), ids)
	for _, id := range done.Asked {
		_, _ = fmt.Fprintln(c.out, id)
	}
	words := []string{strconv.Itoa(len(done.Asked)) + " are due again, with the same webhook-id"}
	if n := len(done.Skipped); n > 0 {
		words = append(words, strconv.Itoa(n)+" were due already")
	}
	_, _ = fmt.Fprintln(c.err, strings.Join(words, "; ")+".")
	return err
}
