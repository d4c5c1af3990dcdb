package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/supervise"
	"verifyd/cmd/verifyd/table"
	"verifyd/edge/account/audit"
	"verifyd/edge/redrive"
	"verifyd/natsconf"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/hosts"
	"verifyd/sessions/lists"
	"verifyd/sessions/pauses"
	sessionstore "verifyd/sessions/store"
	"verifyd/sessions/timeline"
	"verifyd/sessions/urlpolicy"
)

type hostsCmd struct {
	List   hostsListCmd   `cmd:"" help:"List the receiver hosts where nobody answers, where callbacks wait, or that are paused."`
	Pause  hostsPauseCmd  `cmd:"" help:"Send nothing to a receiver host for a while."`
	Resume hostsResumeCmd `cmd:"" help:"Send to it again."`
}

type hostsListCmd struct {
	storeCmd      `embed:""`
	table.Listing `embed:""`
}

// Run lists what the dispatchers that run see, what is paused, and what is due in the store; the operator's
// pages show the same.
func (h hostsListCmd) Run(ctx context.Context, c console) error {
	return h.look(ctx, c, func(st *store.Store) error {
		ctx, cancel := context.WithTimeout(ctx, lookFor)
		defer cancel()
		all, err := fleet.Ask(ctx, st.Conn)
		if err != nil {
			return err
		}
		book, err := pauses.NewStore(ctx, st.Conn, nil)
		if err != nil {
			return err
		}
		found, err := hosts.Source{Pauses: book, Sessions: st.Reader()}.Report(ctx, all)
		if err != nil {
			return err
		}
		t := table.New("hosts", "HOST", "STATE", "SINCE", "WAITING", "OLDEST", "WHY")
		for _, h := range found.Hosts {
			since, why := hostWords(h)
			t.Add(timeline.Legible(h.Host.Host), h.State(), since, h.Waits(), h.Oldest, why)
		}
		if err := h.Print(c.out, t); err != nil {
			return err
		}
		if !found.BackTo.IsZero() {
			_, _ = fmt.Fprintf(c.err, "Counted back to %s; there may be older ones that wait.\n",
				table.Instant(found.BackTo))
		}
		if !slices.ContainsFunc(all, func(p fleet.Process) bool {
			return slices.Contains(p.Roles, "dispatcher")
		}) {
			_, err = fmt.Fprintln(c.err, "No dispatcher answers, so nothing is sent to anybody.")
		}
		return err
	})
}

// hostWords returns since when a host stands as it does, and why.
func hostWords(h hosts.Host) (since time.Time, why string) {
	if h.Pause == nil {
		return h.Since, timeline.Legible(table.OrDash(h.Detail))
	}
	why = "until " + table.Instant(h.Pause.Until) + " by " + timeline.Legible(h.Pause.By)
	if h.Pause.Reason != "" {
		why += ": " + timeline.Legible(h.Pause.Reason)
	}
	return h.Pause.At, why
}

type hostsPauseCmd struct {
	storeCmd `embed:""`
	Host     string        `arg:"" help:"The receiver's host, or host:port; the port is 443 where none is named."`
	For      time.Duration `default:"1h" help:"How long, up to 24h; it ends by itself."`
	Reason   string        `placeholder:"TEXT" help:"Why, for those who look at it later."`
}

// Run pauses the host. Every dispatcher honours it within a second.
func (h hostsPauseCmd) Run(ctx context.Context, c console) error {
	return h.look(ctx, c, func(st *store.Store) error {
		book, err := pauses.NewStore(ctx, st.Conn, nil)
		if err != nil {
			return err
		}
		book.Oldest = store.OldestOf(st.Reader())
		p, err := book.Begin(ctx, h.Host, operator().String(), h.Reason, h.For)
		if err != nil {
			return badPause(err)
		}
		detail := map[string]string{"until": table.Instant(p.Until), "reason": p.Reason}
		if err := st.Accounts.Note(ctx, operator(), audit.ServiceLog, audit.HostPaused, p.Host,
			detail); err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.err,
			"Nothing is sent to %s until %s. Callbacks to it wait, and have their whole time after that. End it early with: verifyd hosts resume %s\n", p.Host, table.Instant(p.Until), p.Host)
		return err
	})
}

// badPause makes what an operator mistyped the fault of the command line that it is.
func badPause(err error) error {
	fault, isFault := errors.AsType[*urlpolicy.Fault](err)
	switch {
	case isFault:
		return config.Usage(errors.New("HOST: " + fault.Detail)) // its code is a callback_url's
	case errors.Is(err, pauses.ErrTooLong):
		return config.Usage(fmt.Errorf("--for: %w", err))
	case errors.Is(err, pauses.ErrReason):
		return config.Usage(fmt.Errorf("--reason: %w", err))
	case errors.Is(err, pauses.ErrNotPaused):
		return config.Usage(fmt.Errorf("HOST: %w; verifyd hosts list shows those that are", err))
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
	return h.look(ctx, c, func(st *store.Store) error {
		book, err := pauses.NewStore(ctx, st.Conn, nil)
		if err != nil {
			return err
		}
		p, err := book.End(ctx, h.Host, operator().String())
		if err != nil {
			return badPause(err)
		}
		if err := st.Accounts.Note(ctx, operator(), audit.ServiceLog, audit.HostResumed, p.Host,
			nil); err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.err,
			"Callbacks to %s are sent again. Those that wait come within half a minute.\n", p.Host)
		return err
	})
}

type deliveriesRedriveCmd struct {
	storeCmd      `embed:""`
	table.Listing `embed:""`
	State         string        `required:"" enum:"undeliverable,rejected,unknown" help:"How they ended: undeliverable, rejected or unknown. An unknown one may have arrived already."`
	Host          string        `placeholder:"HOST" help:"Only those to this receiver host."`
	Account       string        `placeholder:"NAME" help:"Only those of this account."`
	Since         time.Duration `default:"72h" help:"Only those whose session was completed within this time."`
	Limit         int           `default:"${redrive_most}" help:"At most so many."`
	DryRun        bool          `help:"Tell which would be sent, and send nothing."`
}

// Run sends again what ended so, newest first. It says which sessions these are, on standard output.
func (d deliveriesRedriveCmd) Run(ctx context.Context, c console) error {
	if d.Limit < 1 || d.Limit > redrive.Max {
		return config.Usage(fmt.Errorf("--limit: %d is not from 1 to %d; run it again for more", d.Limit,
			redrive.Max))
	}
	host := ""
	if d.Host != "" {
		var err error
		host, err = urlpolicy.Destination(d.Host)
		if fault, isFault := errors.AsType[*urlpolicy.Fault](err); isFault {
			return config.Usage(errors.New("--host: " + fault.Detail))
		}
	}
	return d.look(ctx, c, func(st *store.Store) error {
		ctx, cancel := context.WithTimeout(ctx, lookFor)
		defer cancel()
		of := ""
		if d.Account != "" {
			a, err := st.Accounts.AccountByName(ctx, d.Account)
			if err != nil {
				return badInput(err)
			}
			of = a.ID
		}
		found, err := st.Reader().FindDeliveries(ctx, lists.DeliveryQuery{
			States: []facts.DeliveryState{facts.DeliveryState(d.State)}, Since: time.Now().
				Add(-d.Since), Limit: d.Limit,
			Wants: func(v facts.View) bool {
				return (of == "" || v.Account == of) && (host == "" || timeline.Host(v.Session) == host)
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
			return d.Print(c.out, deliveriesTable(found.Views))
		}
		return d.redriveNow(ctx, c, st, ids)
	})
}

func (d deliveriesRedriveCmd) redriveNow(ctx context.Context, c console, st *store.Store,
	ids []sessions.ID) error {
	completions := natsconf.NewWriter(st.Conn, topology.StreamCompletions)
	writing := supervise.Start("command", zerolog.Nop(), supervise.New("completions writer", completions))
	defer writing.Stop()
	sender := sessionstore.New(sessionstore.Config{Conn: st.Conn, Completions: completions, Key: st.Key})
	done, err := redrive.Send(ctx, sender, st.Accounts, operator(), ids)
	if perr := d.tellAsked(c.out, done.Asked); err == nil {
		err = perr
	}
	words := []string{strconv.Itoa(len(done.Asked)) + " are due again, with the same webhook-id"}
	if n := len(done.Skipped); n > 0 {
		words = append(words, strconv.Itoa(n)+" were due already")
	}
	_, _ = fmt.Fprintln(c.err, strings.Join(words, "; ")+".")
	return err
}

// tellAsked writes the sessions alone, a line each, for scripts.
func (d deliveriesRedriveCmd) tellAsked(w io.Writer, asked []sessions.ID) error {
	if d.JSON {
		t := table.New("asked", "SESSION")
		for _, id := range asked {
			t.Add(id)
		}
		return d.Print(w, t)
	}
	for _, id := range asked {
		if _, err := fmt.Fprintln(w, id); err != nil {
			return err
		}
	}
	return nil
}
