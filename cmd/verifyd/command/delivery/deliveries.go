// Package delivery has the commands on callbacks: how they ended, sending them again, their receivers, and
// what happened to a session. None shows the path or the query of a callback URL: they carry the integrators'
// secrets.
package delivery

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

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/table"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/lists"
	sessionstore "verifyd/sessions/store"
	"verifyd/sessions/timeline"
)

const (
	// listTimeout bounds how long reading a list may take; a list that it cuts off says so.
	listTimeout = 30 * time.Second
	// maxDeliveries bounds a list to what fits into memory: each entry holds answers of up to 1 KiB.
	maxDeliveries = 10_000
)

// Deliveries has the commands on callbacks and how they ended.
type Deliveries struct {
	List deliveriesListCmd `cmd:"" help:"List deliveries, newest first."`
	Show deliveriesShowCmd `cmd:"" help:"Show every attempt of a session's delivery."`

	Resend  deliveriesResendCmd  `cmd:"" help:"Send the callback of a session again, with the same webhook-id, if its delivery has ended."`
	Redrive deliveriesRedriveCmd `cmd:"" help:"Send again all callbacks that ended in a given state, with the same webhook-ids."`
}

type deliveriesListCmd struct {
	command.Local `embed:""`
	table.Listing `embed:""`

	State string `enum:",due,claimed,delivered,rejected,unknown,undeliverable" default:"" help:"Only deliveries in this state: due, claimed, delivered, rejected, unknown or undeliverable."`
	Limit int    `default:"50" help:"Maximum number of deliveries."`
}

// Run lists deliveries. It shows a receiver's host and port, never its path and query, which carry the
// integrators' secrets.
func (d deliveriesListCmd) Run(ctx context.Context, c command.Console) error {
	if d.Limit < 1 || d.Limit > maxDeliveries {
		return config.Usage(fmt.Errorf(
			"--limit: %d is not from 1 to %d; give a number of deliveries, for example 50", d.Limit,
			maxDeliveries))
	}
	return d.Use(ctx, c, command.WhyRecords, func(st *store.Store) error {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		found, err := st.Reader().Deliveries(ctx, facts.DeliveryState(d.State), d.Limit)
		if err != nil {
			return err
		}
		if err := d.Print(c.Out, deliveriesTable(found.Views)); err != nil {
			return err
		}
		if !found.BackTo.IsZero() {
			_, err = fmt.Fprintf(c.Err, "Looked back to %s; older ones are shown with a higher --limit.\n",
				table.Instant(found.BackTo))
		} else if len(found.Views) == 0 {
			_, err = fmt.Fprintln(c.Err,
				"No such delivery is kept. A delivery begins when a user completes a session.")
		}
		return err
	})
}

func deliveriesTable(views []facts.View) *table.Table {
	t := table.New("deliveries", "SESSION", "STATE", "DELIVERY", "ATTEMPTS", "HOST", "COMPLETED", "CLASS")
	for _, v := range views {
		d := v.Delivery
		t.Add(v.ID, v.State, d.State, len(d.Attempts), timeline.Host(v.Session), v.CompletedAt, lastClass(v))
	}
	return t
}

// lastClass returns the failure class of the last attempt that has ended.
func lastClass(v facts.View) failure.Class {
	for _, a := range slices.Backward(v.Delivery.Attempts) {
		if a.Result != nil {
			return a.Result.Class
		}
	}
	return failure.None
}

type deliveriesShowCmd struct {
	command.Local `embed:""`
	table.Listing `embed:""`
	sessionArg    `embed:""`
}

// Run shows the attempts.
func (d deliveriesShowCmd) Run(ctx context.Context, c command.Console) error {
	id, err := d.id()
	if err != nil {
		return err
	}
	return d.Use(ctx, c, command.WhyRecords, func(st *store.Store) error {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		v, err := st.Reader().Read(ctx, id)
		if err != nil {
			return noneKept(id, err)
		}
		if d.JSON {
			return d.Print(c.Out, deliveryCard(v), attemptsTable(v))
		}
		return showDelivery(c.Out, v)
	})
}

// deliveryCard and attemptsTable are for programs; showDelivery shows people the same, and leaves out what is
// empty.
func deliveryCard(v facts.View) *table.Table {
	t := table.NewCard("delivery", ":session", ":state", ":completed", ":host", ":delivery")
	t.Add(v.ID, v.State, v.CompletedAt, timeline.Host(v.Session), v.Delivery.State)
	return t
}

func attemptsTable(v facts.View) *table.Table {
	t := table.New("attempts", ":number", ":claimed", ":worker", ":ended", ":by", ":verdict", ":class",
		":status",
		":detail", ":address", ":answer", ":next_from")
	for _, a := range v.Delivery.Attempts {
		r := facts.Result{}
		if a.Result != nil {
			r = *a.Result
		}
		t.Add(a.Claim.Number, exactValue(a.Claim.At), a.Claim.Worker, exactValue(r.At), r.By, r.Verdict,
			r.Class,
			table.UnlessZero(r.Status), r.Detail, r.Address, r.Answer, exactValue(r.Next))
	}
	return t
}

// exactValue formats an instant with milliseconds.
func exactValue(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return table.Exactly(t)
}

func showDelivery(out io.Writer, v facts.View) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	line("Session", string(v.ID))
	line("State", string(v.State))
	line("Completed", table.Instant(v.CompletedAt))
	line("Host", timeline.Host(v.Session))
	line("Delivery", string(v.Delivery.State))
	if len(v.Delivery.Attempts) == 0 {
		line("Attempts", "none")
	}
	for _, a := range v.Delivery.Attempts {
		_, _ = fmt.Fprintf(w, "\nAttempt %d\n", a.Claim.Number)
		line("  Claimed", table.Exactly(a.Claim.At)+byWhom(a.Claim.Worker))
		r := a.Result
		if r == nil {
			line("  Verdict", "none yet")
			continue
		}
		line("  Ended", table.Exactly(r.At)+byWhom(r.By))
		line("  Verdict", string(r.Verdict))
		line("  Class", string(r.Class))
		if r.Status != 0 {
			line("  Status", strconv.Itoa(r.Status))
		}
		line("  Detail", timeline.Legible(r.Detail))
		line("  Address", timeline.Legible(r.Address))
		for _, s := range timeline.Phases(r.Timing) {
			line("  "+s.Name, timeline.FormatDuration(s.Took))
		}
		line("  Answer", answerOf(*r))
		if !r.Next.IsZero() {
			line("  Next from", table.Exactly(r.Next))
		}
	}
	return w.Flush()
}

// byWhom names the worker that wrote a fact; it is unknown for a fact that cannot be read.
func byWhom(worker string) string {
	if worker == "" {
		return ", by an unknown worker"
	}
	return " by " + timeline.Legible(worker)
}

// answerOf returns the receiver's answer as one quoted line: it is the receiver's text, and must not reach
// the terminal unescaped.
func answerOf(r facts.Result) string {
	const maxAnswer = 1 << 10
	if r.Answer == "" {
		return ""
	}
	// the cut may be in the middle of a character
	return strconv.QuoteToGraphic(strings.ToValidUTF8(r.Answer[:min(len(r.Answer), maxAnswer)], ""))
}

// sessionArg names the session that a command is about.
type sessionArg struct {
	Session string `arg:"" help:"The session's id or token, or its callback's webhook-id."`
}

// id reads the argument. Errors never repeat it: it may be a token.
func (a sessionArg) id() (sessions.ID, error) {
	if id, _ := lists.Seek(a.Session); id != "" {
		return id, nil
	}
	id, err := sessions.ParseID(a.Session)
	if err != nil {
		return "", config.Usage(fmt.Errorf("SESSION: this is %w; verifyd deliveries list shows the ids", err))
	}
	return id, nil
}

// noneKept turns an unknown session into a usage error.
func noneKept(id sessions.ID, err error) error {
	if errors.Is(err, sessions.ErrNotFound) {
		return config.Usage(fmt.Errorf(
			"session %s: %w, or its results are no longer kept; verifyd deliveries list shows those that are",
			id, err))
	}
	return err
}

// resender is the requester in the facts of an attempt that an operator requested.
const resender = "operator"

type deliveriesResendCmd struct {
	command.Local `embed:""`
	sessionArg    `embed:""`
}

// Run requests one more attempt. A running dispatcher starts it at once; a stopped service sends it at its
// next start.
func (d deliveriesResendCmd) Run(ctx context.Context, c command.Console) error {
	id, err := d.id()
	if err != nil {
		return err
	}
	return d.Use(ctx, c, command.WhyRecords, func(st *store.Store) error {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		var asked facts.Resend
		err := st.WithFacts(func(sender *sessionstore.Store) (err error) {
			asked, err = sender.Resend(ctx, id, resender)
			return err
		})
		switch {
		case errors.Is(err, facts.ErrDeliveryOpen):
			return config.Usage(fmt.Errorf(
				"session %s: the callback is waiting or being sent; see: verifyd explain %s", id, id))
		case errors.Is(err, facts.ErrResentOften):
			return config.Usage(fmt.Errorf("session %s: %w", id, err))
		case errors.Is(err, facts.ErrNoDelivery):
			return config.Usage(fmt.Errorf(
				"session %s has nothing to send: only verified and failed sessions have a callback", id))
		case err != nil:
			return noneKept(id, err)
		}
		_, err = fmt.Fprintf(c.Err,
			"Attempt %d of session %s is due. verifyd explain %s shows how it ends.\n", asked.Number, id, id)
		return err
	})
}
