package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/table"
	"verifyd/edge/account/audit"
	"verifyd/natsconf/fleet"
	"verifyd/sessions/hosts"
	"verifyd/sessions/pauses"
	"verifyd/sessions/timeline"
	"verifyd/sessions/urlpolicy"
)

// Hosts has the commands on receiver hosts: which do not answer, and which are paused.
type Hosts struct {
	List   hostsListCmd   `cmd:"" help:"List the receiver hosts that do not answer, that have waiting callbacks, or that are paused."`
	Pause  hostsPauseCmd  `cmd:"" help:"Send nothing to a receiver host for a while."`
	Resume hostsResumeCmd `cmd:"" help:"End the pause of a receiver host."`
}

type hostsListCmd struct {
	command.Local `embed:""`
	table.Listing `embed:""`
}

// Run lists what the running dispatchers see, what is paused, and what is due in the store; the operator's
// pages show the same.
func (h hostsListCmd) Run(ctx context.Context, c command.Console) error {
	return h.Use(ctx, c, command.WhyRecords, func(st *store.Store) error {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		all, err := fleet.Ask(ctx, st.Conn)
		if err != nil {
			return err
		}
		book := pauses.NewStore(st.Conn, nil)
		found, err := hosts.NewReport(ctx, all, book, st.Reader())
		if err != nil {
			return err
		}
		t := table.New("hosts", "HOST", "STATE", "SINCE", "WAITING", "OLDEST", "WHY")
		for _, h := range found.Hosts {
			since, why := hostWords(h)
			t.Add(timeline.Legible(h.Host.Host), h.State(), since, h.Waits(), h.Oldest, why)
		}
		if err := h.Print(c.Out, t); err != nil {
			return err
		}
		if !found.BackTo.IsZero() {
			_, _ = fmt.Fprintf(c.Err, "Counted back to %s; older callbacks may be waiting too.\n",
				table.Instant(found.BackTo))
		}
		if !slices.ContainsFunc(all, func(p fleet.Process) bool {
			return slices.Contains(p.Roles, "dispatcher")
		}) {
			_, err = fmt.Fprintln(c.Err, "No dispatcher responds, so no callbacks are sent.")
		}
		return err
	})
}

// hostWords returns since when a host is in its state, and why.
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
	command.Local `embed:""`

	Host   string        `arg:"" help:"The receiver's host, or host:port; the default port is 443."`
	For    time.Duration `default:"1h" help:"How long, up to 24h; the pause ends automatically."`
	Reason string        `placeholder:"TEXT" help:"Why: a note for other operators."`
}

// Run pauses the host. Every dispatcher honours it within a second.
func (h hostsPauseCmd) Run(ctx context.Context, c command.Console) error {
	return h.Use(ctx, c, command.WhyRecords, func(st *store.Store) error {
		book := pauses.NewStore(st.Conn, nil)
		book.Oldest = store.OldestOf(st.Reader())
		p, err := book.Begin(ctx, h.Host, command.Operator().String(), h.Reason, h.For)
		if err != nil {
			return badPause(err)
		}
		detail := map[string]string{"until": table.Instant(p.Until), "reason": p.Reason}
		if err := st.Accounts.Note(ctx, command.Operator(), audit.ServiceLog, audit.HostPaused, p.Host,
			detail); err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.Err,
			"Nothing is sent to %s until %s. Callbacks to it wait, and have their full time after "+
				"that. To end the pause early: verifyd hosts resume %s\n",
			p.Host, table.Instant(p.Until), p.Host)
		return err
	})
}

// badPause turns a mistyped pause into a usage error.
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
		return config.Usage(fmt.Errorf("HOST: %w; verifyd hosts list shows the paused ones", err))
	default:
		return err
	}
}

type hostsResumeCmd struct {
	command.Local `embed:""`

	Host string `arg:"" help:"The receiver's host, or host:port."`
}

// Run ends the pause.
func (h hostsResumeCmd) Run(ctx context.Context, c command.Console) error {
	return h.Use(ctx, c, command.WhyRecords, func(st *store.Store) error {
		book := pauses.NewStore(st.Conn, nil)
		p, err := book.End(ctx, h.Host, command.Operator().String())
		if err != nil {
			return badPause(err)
		}
		if err := st.Accounts.Note(ctx, command.Operator(), audit.ServiceLog, audit.HostResumed, p.Host,
			nil); err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.Err,
			"Callbacks to %s are sent again. Waiting ones go out within half a minute.\n", p.Host)
		return err
	})
}
