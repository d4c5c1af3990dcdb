// Package export has the commands that write many of an account's sessions for other programs.
package export

import (
	"context"
	"fmt"
	"strings"
	"time"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/edge/export"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
	"verifyd/sessions/proof"
)

// pageTimeout bounds reading one page. A page that takes longer ends early, and the next one continues there.
const pageTimeout = 30 * time.Second

// Sessions has the commands on sessions.
type Sessions struct {
	Export exportCmd `cmd:"" help:"Write an account's sessions to standard output, newest first, as CSV or JSON lines."`
}

type exportCmd struct {
	command.Local `embed:""`

	Account  string `required:"" placeholder:"NAME" help:"The account whose sessions to export: its name or id."`
	Format   string `enum:"csv,sheet,jsonl" default:"csv" help:"csv, in which no cell is a formula; sheet: CSV for spreadsheets, which keep long ids as they are; or jsonl: one JSON object per line."`
	Q        string `name:"q" placeholder:"TEXT" help:"Search text: a session's id or webhook-id, or the beginning of its user, group, reference or key name."`
	User     string `placeholder:"ID" help:"Only sessions of this platform_user_id."`
	Platform string `help:"Only sessions of this platform." placeholder:"TEXT"`
	Group    string `help:"Only sessions with this guild_id." placeholder:"TEXT"`
	Key      string `name:"key-name" help:"Only sessions that this API key started: its name or id." placeholder:"NAME|ID"`
	Mode     string `enum:",live,test" default:"" help:"Only live or only test sessions: live or test."`
	State    string `enum:",pending,verified,failed,canceled,expired" default:"" help:"Only sessions in this state: pending, verified, failed, canceled or expired."`
	Network  string `help:"Only sessions that this identity network decided." placeholder:"ID"`
	Reason   string `enum:",declined,refused,unconfirmed,canceled,expired,unreadable,outcome_lost" default:"" help:"Only sessions that ended for this reason: declined, refused, unconfirmed, canceled, expired, unreadable or outcome_lost."`
	Binding  string `enum:",link,code,account" default:"" help:"Only sessions that ask for this to be proven: link, code or account."`
	Delivery string `enum:",none,due,claimed,delivered,rejected,unknown,undeliverable" default:"" help:"Only sessions whose callback is in this state: none, due, claimed, delivered, rejected, unknown or undeliverable."`
	From     string `placeholder:"DAY" help:"Only sessions that were started on this UTC day or later, for example 2026-11-21."`
	To       string `placeholder:"DAY" help:"Only sessions that were started on this UTC day or earlier."`
}

// Run writes the sessions. If it fails, the output is incomplete, and the exit code is not 0.
func (e exportCmd) Run(ctx context.Context, c command.Console) error {
	q, err := e.query()
	if err != nil {
		return config.Usage(err)
	}
	return e.Use(ctx, c, command.WhyRecords, func(st *store.Store) error {
		a, err := st.Accounts.AccountByName(ctx, e.Account)
		if err != nil {
			return command.BadInput(err)
		}
		q.Account = a.ID
		if err := e.keys(ctx, st, &q); err != nil {
			return err
		}
		out, err := export.NewWriter(c.Out, export.Format(e.Format))
		if err != nil {
			return err
		}
		reader := st.Reader()
		return export.Pages(ctx, q, func(ctx context.Context, q lists.Query) (lists.Page, error) {
			ctx, cancel := context.WithTimeout(ctx, pageTimeout)
			defer cancel()
			return reader.List(ctx, q)
		}, out.Write)
	})
}

// query reads the flags that need no store.
func (e exportCmd) query() (lists.Query, error) {
	q := lists.Query{
		PlatformUserID: e.User, Platform: e.Platform, Group: e.Group, Networks: one[string](e.Network),
		States: one[sessions.State](e.State), Reasons: one[sessions.Reason](e.Reason),
		Levels: one[proof.Level](e.Binding), Deliveries: one[facts.DeliveryState](e.Delivery),
	}
	q.ID, q.Text = lists.Seek(e.Q)
	if e.Mode != "" {
		test := e.Mode == "test"
		q.Test = &test
	}
	for flag, day := range map[string]string{"--from": e.From, "--to": e.To} {
		if day == "" {
			continue
		}
		at, err := time.Parse(time.DateOnly, day)
		switch {
		case err != nil:
			return q, fmt.Errorf("%s: %q is not a day; for example 2026-11-21", flag, day)
		case flag == "--from":
			q.Since = at
		default:
			q.Until = at.AddDate(0, 0, 1)
		}
	}
	if !q.Until.IsZero() && !q.Since.Before(q.Until) {
		return q, fmt.Errorf("--to: %s is before --from %s; give a later day", e.To, e.From)
	}
	return q, nil
}

// keys returns the account's keys that the query names.
func (e exportCmd) keys(ctx context.Context, st *store.Store, q *lists.Query) error {
	if e.Key == "" && q.Text == "" {
		return nil
	}
	all, err := st.Accounts.Keys(ctx)
	if err != nil {
		return err
	}
	for _, k := range all {
		if k.Account != q.Account {
			continue
		}
		if k.NameBegins(q.Text) {
			q.Named = append(q.Named, k.ID)
		}
		if e.Key != "" && (k.ID == e.Key || strings.EqualFold(k.Name, e.Key)) {
			q.Keys = append(q.Keys, k.ID)
		}
	}
	if e.Key != "" && len(q.Keys) == 0 {
		return config.Usage(fmt.Errorf(
			"--key-name: this account has no key %q; verifyd key list --account %s shows its keys",
			e.Key, q.Account))
	}
	return nil
}

// one returns a value as a query has it; nil if there is none.
func one[T ~string](value string) []T {
	if value == "" {
		return nil
	}
	return []T{T(value)}
}
