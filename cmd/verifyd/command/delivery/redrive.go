package delivery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/table"
	"verifyd/edge/redrive"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
	sessionstore "verifyd/sessions/store"
	"verifyd/sessions/timeline"
	"verifyd/sessions/urlpolicy"
)

type deliveriesRedriveCmd struct {
	command.Local `embed:""`
	table.Listing `embed:""`

	State   string        `required:"" enum:"undeliverable,rejected,unknown" help:"State in which they ended: undeliverable, rejected or unknown. An unknown callback may have arrived already."`
	Host    string        `placeholder:"HOST" help:"Only callbacks to this receiver host."`
	Account string        `placeholder:"NAME" help:"Only callbacks of this account."`
	Since   time.Duration `default:"72h" help:"Only callbacks of sessions that were completed within this time."`
	Limit   int           `default:"${redrive_most}" help:"Maximum number of callbacks."`
	DryRun  bool          `help:"Show which callbacks would be sent, and send nothing."`
}

// Run sends callbacks that ended in these ways again, newest first. It prints their sessions on standard
// output.
func (d deliveriesRedriveCmd) Run(ctx context.Context, c command.Console) error {
	if d.Limit < 1 || d.Limit > redrive.Max {
		return config.Usage(fmt.Errorf("--limit: %d is not from 1 to %d; for more, run it again", d.Limit,
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
	return d.Use(ctx, c, command.WhyRecords, func(st *store.Store) error {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		of := ""
		if d.Account != "" {
			a, err := st.Accounts.AccountByName(ctx, d.Account)
			if err != nil {
				return command.BadInput(err)
			}
			of = a.ID
		}
		found, err := st.Reader().FindDeliveries(ctx, lists.DeliveryQuery{
			States: []facts.DeliveryState{facts.DeliveryState(d.State)}, Since: st.Conn.Clock.Now().
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
			return d.Print(c.Out, deliveriesTable(found.Views))
		}
		return d.redriveNow(ctx, c, st, ids)
	})
}

func (d deliveriesRedriveCmd) redriveNow(ctx context.Context, c command.Console, st *store.Store,
	ids []sessions.ID) error {
	var done redrive.Done
	err := st.WithFacts(func(sender *sessionstore.Store) (err error) {
		done, err = redrive.Send(ctx, sender, st.Accounts, command.Operator(), ids)
		return err
	})
	if perr := d.printRequested(c.Out, done.Asked); err == nil {
		err = perr
	}
	words := []string{strconv.Itoa(len(done.Asked)) + " are due again, with the same webhook-id"}
	if n := len(done.Skipped); n > 0 {
		words = append(words, strconv.Itoa(n)+" were already due")
	}
	_, _ = fmt.Fprintln(c.Err, strings.Join(words, "; ")+".")
	return err
}

// printRequested prints only the sessions, a line each, for scripts.
func (d deliveriesRedriveCmd) printRequested(w io.Writer, asked []sessions.ID) error {
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
