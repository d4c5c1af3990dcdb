package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"verifyd/sessions"
	"verifyd/sessions/told"
)

const (
	// lookFor bounds how long one look at the store may take; a list that is cut off by it says so.
	lookFor = 30 * time.Second
	// mostDeliveries bounds a list to what is held in memory at once without harm: each holds answers of up to 1 KiB.
	mostDeliveries = 10_000
)

type deliveriesCmd struct {
	List deliveriesListCmd `cmd:"" help:"List deliveries, newest first."`
	Show deliveriesShowCmd `cmd:"" help:"Show every attempt of a session's delivery."`

	Resend  deliveriesResendCmd  `cmd:"" help:"Send an outcome again whose delivery has ended, with the same webhook-id."`
	Redrive deliveriesRedriveCmd `cmd:"" help:"Send many again, with the same webhook-ids: those that ended in one way."`
}

type deliveriesListCmd struct {
	storeCmd `embed:""`
	State    string `enum:",due,claimed,delivered,rejected,unknown,undeliverable" default:"" help:"Only deliveries in this state: due, claimed, delivered, rejected, unknown or undeliverable."`
	Limit    int    `default:"50" help:"At most so many."`
}

// Run lists deliveries. It shows a receiver's host and port, never its path and query, which carry the integrators' secrets.
func (d deliveriesListCmd) Run(ctx context.Context, c console) error {
	if d.Limit < 1 || d.Limit > mostDeliveries {
		return usageError{fmt.Errorf("--limit: %d is not from 1 to %d; give a number of deliveries, for example 50", d.Limit, mostDeliveries)}
	}
	return d.look(ctx, c, func(st *store) error {
		ctx, cancel := context.WithTimeout(ctx, lookFor)
		defer cancel()
		found, err := st.reader().Deliveries(ctx, sessions.DeliveryState(d.State), d.Limit)
		if err != nil {
			return err
		}
		if err := listDeliveries(c.out, found.Views); err != nil {
			return err
		}
		if !found.BackTo.IsZero() {
			_, err = fmt.Fprintf(c.err, "Looked back to %s; older ones are shown with a higher --limit.\n", instant(found.BackTo))
		} else if len(found.Views) == 0 {
			_, err = fmt.Fprintln(c.err, "No such delivery is kept. One is made when a user completes a session.")
		}
		return err
	})
}

func listDeliveries(out io.Writer, views []sessions.View) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "SESSION\tSTATE\tDELIVERY\tATTEMPTS\tHOST\tCOMPLETED\tCLASS")
	for _, v := range views {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", v.ID, v.State, v.Delivery.State, len(v.Delivery.Attempts),
			told.Host(v.Session), instant(v.CompletedAt), orDash(string(lastClass(v))))
	}
	return w.Flush()
}

// lastClass says what went wrong in the last attempt that has ended.
func lastClass(v sessions.View) sessions.Class {
	for _, a := range slices.Backward(v.Delivery.Attempts) {
		if a.Result != nil {
			return a.Result.Class
		}
	}
	return sessions.ClassNone
}

type deliveriesShowCmd struct {
	storeCmd   `embed:""`
	sessionArg `embed:""`
}

// Run shows the attempts.
func (d deliveriesShowCmd) Run(ctx context.Context, c console) error {
	id, err := d.id()
	if err != nil {
		return err
	}
	return d.look(ctx, c, func(st *store) error {
		ctx, cancel := context.WithTimeout(ctx, lookFor)
		defer cancel()
		v, err := st.reader().Read(ctx, id)
		if err != nil {
			return noneKept(id, err)
		}
		return showDelivery(c.out, v)
	})
}

func showDelivery(out io.Writer, v sessions.View) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	line("Session", string(v.ID))
	line("State", string(v.State))
	line("Completed", instant(v.CompletedAt))
	line("Host", told.Host(v.Session))
	line("Delivery", string(v.Delivery.State))
	if len(v.Delivery.Attempts) == 0 {
		line("Attempts", "none")
	}
	for _, a := range v.Delivery.Attempts {
		_, _ = fmt.Fprintf(w, "\nAttempt %d\n", a.Claim.Number)
		line("  Claimed", exactly(a.Claim.At)+byWhom(a.Claim.Worker))
		r := a.Result
		if r == nil {
			line("  Verdict", "none yet")
			continue
		}
		line("  Ended", exactly(r.At)+byWhom(r.By))
		line("  Verdict", string(r.Verdict))
		line("  Class", string(r.Class))
		if r.Status != 0 {
			line("  Status", strconv.Itoa(r.Status))
		}
		line("  Detail", told.Legible(r.Detail))
		line("  Address", told.Legible(r.Address))
		for _, s := range told.Steps(r.Timing) {
			line("  "+s.Name, told.Took(s.Took))
		}
		line("  Answer", answerOf(*r))
		if !r.Next.IsZero() {
			line("  Next from", exactly(r.Next))
		}
	}
	return w.Flush()
}

// byWhom names the worker that wrote a fact; of one that cannot be read nobody knows.
func byWhom(worker string) string {
	if worker == "" {
		return ", by nobody knows whom"
	}
	return " by " + told.Legible(worker)
}

// answerOf shows what the receiver said, as one quoted line: it is the receiver's text, and must not reach the terminal as it is.
func answerOf(r sessions.Result) string {
	const most = 1 << 10
	if r.Answer == "" {
		return ""
	}
	return strconv.QuoteToGraphic(strings.ToValidUTF8(r.Answer[:min(len(r.Answer), most)], "")) // the cut may fall into a character
}

// sessionArg names the session that a command is about.
type sessionArg struct {
	Session string `arg:"" help:"The session's id, or its token."`
}

// id reads the argument. Errors never repeat it: it may be a token.
func (a sessionArg) id() (sessions.ID, error) {
	id, err := sessions.ParseID(a.Session)
	if err != nil {
		return "", usageError{fmt.Errorf("SESSION: this is %w; verifyd deliveries list shows the ids", err)}
	}
	return id, nil
}

// noneKept makes an unknown session the fault of the command line that it is.
func noneKept(id sessions.ID, err error) error {
	if errors.Is(err, sessions.ErrNotFound) {
		return usageError{fmt.Errorf("session %s: %w, or its results are no longer kept; verifyd deliveries list shows those that are", id, err)}
	}
	return err
}

// dashed lets the last argument be a session token that begins with a dash, as one in 64 does: the flag library would read it as
// a flag.
func dashed(args []string) []string {
	last := len(args) - 1
	if last < 0 || !strings.HasPrefix(args[last], "-") || slices.Contains(args, "--") {
		return args
	}
	if _, err := sessions.ParseToken(args[last]); err != nil {
		return args
	}
	return append(slices.Clone(args[:last]), "--", args[last])
}

// reader gives the sessions of the store to look at; without writers, nothing can be changed by it.
func (s *store) reader() *sessions.Store {
	return sessions.NewStore(sessions.Config{Conn: s.conn, Key: s.key})
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// exactly writes an instant as the contract does, in UTC with milliseconds.
func exactly(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
