package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/supervise"
	"verifyd/cmd/verifyd/table"
	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/audit"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	sessionstore "verifyd/sessions/store"
	"verifyd/sessions/timeline"
)

// ownAccount returns the account that a command is to change, or to hand something out of. Anybody may have
// made one on the dashboard, under whatever name was free: such a one is taken by its id alone, or a key
// that is meant for one customer would be another's.
func ownAccount(ctx context.Context, s *accountstore.Store, name string) (account.Account, error) {
	a, err := s.AccountByName(ctx, name)
	if err != nil || name == a.ID {
		return a, badInput(err)
	}
	by, at, known, err := s.MadeBy(ctx, a.ID)
	switch {
	case err != nil:
		return a, err
	case known && by.Kind == access.ActorOperator, !known && len(a.Members) == 0:
		return a, nil
	case known:
		return a, config.Usage(fmt.Errorf(
			"%s was made on the dashboard by %s on %s, and anybody may take a name there: "+
				"if it is the account that you mean, name it by its id, %s",
			strconv.Quote(a.Name), whoText(by), table.Instant(at), a.ID))
	default:
		return a, config.Usage(fmt.Errorf(
			"%s has members, and its audit log does not reach back to who made it: "+
				"if it is the account that you mean, name it by its id, %s",
			strconv.Quote(a.Name), a.ID))
	}
}

// accountArg names the account that a command changes.
type accountArg struct {
	Name string `arg:"" help:"The account's name; its id where it was made on the dashboard."`
}

type accountQuotaCmd struct {
	storeCmd   `embed:""`
	accountArg `embed:""`
	Sessions   *int64 `arg:"" optional:"" name:"n" help:"Sessions that the account may start in a UTC month."`
	Default    bool   `help:"As many as the service grants to accounts without a quota of their own."`
}

// Run sets the quota.
func (a accountQuotaCmd) Run(ctx context.Context, c console) error {
	quota := int64(0)
	switch {
	case a.Default == (a.Sessions != nil):
		return config.Usage(errors.New("give a number of sessions, for example 5000, or --default"))
	case a.Sessions != nil:
		if quota = *a.Sessions; quota < 1 {
			return config.Usage(fmt.Errorf(
				"%d is no quota; give a number of sessions, for example 5000, or --default; "+
					"an account that is to start none is disabled: verifyd account disable NAME", quota))
		}
	}
	return a.existing(ctx, c, func(s *accountstore.Store) error {
		acc, err := ownAccount(ctx, s, a.Name)
		if err != nil {
			return err
		}
		if err := s.SetQuota(ctx, operator(), acc.ID, quota); err != nil {
			return badInput(err)
		}
		_, err = fmt.Fprintf(c.err, "The quota of %s is %s.\n", acc.Name, monthText(quota))
		return err
	})
}

type accountRenameCmd struct {
	storeCmd   `embed:""`
	accountArg `embed:""`
	To         string `arg:"" help:"The new name, as end users will read it."`
}

// Run renames the account.
func (a accountRenameCmd) Run(ctx context.Context, c console) error {
	return a.existing(ctx, c, func(s *accountstore.Store) error {
		acc, err := ownAccount(ctx, s, a.Name)
		if err != nil {
			return err
		}
		if _, err := s.RenameAccount(ctx, operator(), acc.ID, a.To); err != nil {
			return badInput(err)
		}
		_, err = fmt.Fprintf(c.err,
			"Account %s is called %s now. Nobody else can take its old name while it exists.\n",
			acc.ID, strconv.Quote(a.To))
		return err
	})
}

type accountDisableCmd struct {
	storeCmd   `embed:""`
	accountArg `embed:""`
}

// Run disables the account.
func (a accountDisableCmd) Run(ctx context.Context, c console) error {
	return setDisabled(ctx, c, a.storeCmd, a.Name, true,
		"Account %s is disabled: within a second its keys are refused and nobody signs in for it any more. "+
			"Outcomes that stand are still delivered. To take it back: verifyd account enable %s\n")
}

type accountEnableCmd struct {
	storeCmd   `embed:""`
	accountArg `embed:""`
}

// Run enables the account.
func (a accountEnableCmd) Run(ctx context.Context, c console) error {
	return setDisabled(ctx, c, a.storeCmd, a.Name, false,
		"Account %s is in service: its keys work, and its users can sign in. See: verifyd account show %s\n")
}

func setDisabled(ctx context.Context, c console, store storeCmd, name string, disabled bool,
	said string) error {
	return store.existing(ctx, c, func(s *accountstore.Store) error {
		acc, err := ownAccount(ctx, s, name)
		if err != nil {
			return err
		}
		if _, err := s.SetDisabled(ctx, operator(), acc.ID, disabled); err != nil {
			return badInput(err)
		}
		_, err = fmt.Fprintf(c.err, said, acc.ID, strconv.Quote(name))
		return err
	})
}

type accountDeleteCmd struct {
	storeCmd   `embed:""`
	accountArg `embed:""`
	DryRun     bool `help:"Say what would go, and delete nothing."`
}

// Run deletes the account, and cancels its sessions that are open. A repeat, by the account's id, finishes
// what was interrupted.
func (a accountDeleteCmd) Run(ctx context.Context, c console) error {
	return a.look(ctx, c, func(st *store.Store) error {
		id := a.Name
		if _, gone := st.Accounts.Deleted(ctx, id); gone != nil {
			acc, err := ownAccount(ctx, st.Accounts, a.Name)
			if err != nil {
				return err
			}
			id = acc.ID
		}
		d, err := st.Accounts.DeleteAccount(ctx, operator(), id, a.DryRun)
		if err != nil {
			return badInput(err)
		}
		went := fmt.Sprintf("%d keys, %d members, %d invites and %d login links", d.Keys, d.Members,
			d.Invites, d.Links)
		if a.DryRun {
			_, err = fmt.Fprintf(c.err, "Nothing was deleted (--dry-run). With %s (%s) would go %s, "+
				"and its open sessions would be canceled.\n",
				d.Account.Name, id, went)
			return err
		}
		canceled, err := cancelOpen(ctx, st, id)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.err, "Account %s (%s) is deleted, with %s; %d open sessions were canceled. "+
			"Outcomes that stood are still delivered, signed until %s at most; nobody reads them any more.\n",
			d.Account.Name, id, went, canceled, table.Instant(d.SignsUntil))
		return err
	})
}

// cancelOpen cancels the sessions of a deleted account, and writes down how many.
func cancelOpen(ctx context.Context, s *store.Store, account string) (int, error) {
	completions := natsconf.NewWriter(s.Conn, topology.StreamCompletions)
	writing := supervise.Start("command", zerolog.Nop(), supervise.New("completions writer", completions))
	defer writing.Stop()
	ender := sessionstore.New(sessionstore.Config{Conn: s.Conn, Completions: completions, Key: s.Key})
	canceled, err := ender.CancelOpen(ctx, account, sessions.AccountDeletedReason)
	if err != nil || canceled == 0 {
		return canceled, err
	}
	return canceled, noteEnded(ctx, s, account, canceled)
}

func noteEnded(ctx context.Context, s *store.Store, id string, canceled int) error {
	detail := map[string]string{"sessions": strconv.Itoa(canceled)}
	return s.Accounts.Note(ctx, operator(), id, audit.SessionsEnded, "", detail)
}

type accountReturnURLCmd struct {
	storeCmd `embed:""`
	Account  string `required:"" placeholder:"NAME" help:"The account's name."`
	URL      string `arg:"" optional:"" help:"The https address that the end user's page links to once a session has ended."`
	Clear    bool   `help:"Show no such link any more."`
}

// Run sets the address, or takes it away.
func (a accountReturnURLCmd) Run(ctx context.Context, c console) error {
	return setFace(ctx, c, a.storeCmd, a.Account, a.URL, a.Clear,
		"a URL, for example https://example.com/verified", (*accountstore.Store).SetReturnURL)
}

type accountColourCmd struct {
	storeCmd `embed:""`
	Account  string `required:"" placeholder:"NAME" help:"The account's name."`
	Colour   string `arg:"" optional:"" help:"The colour of the account's sign on the end user's page, for example #1f5fd0."`
	Clear    bool   `help:"Show no sign any more."`
}

// Run sets the colour, or takes it away.
func (a accountColourCmd) Run(ctx context.Context, c console) error {
	return setFace(ctx, c, a.storeCmd, a.Account, a.Colour, a.Clear, "a colour, for example #1f5fd0",
		(*accountstore.Store).SetColour)
}

// setFace sets a part of what end users see of an account.
func setFace(
	ctx context.Context, c console, store storeCmd, name, value string, empty bool, want string,
	set func(*accountstore.Store, context.Context, access.Actor, string, string) error,
) error {
	if empty == (value != "") {
		return config.Usage(errors.New("give " + want + ", or --clear"))
	}
	return store.existing(ctx, c, func(s *accountstore.Store) error {
		acc, err := ownAccount(ctx, s, name)
		if err != nil {
			return err
		}
		if err := set(s, ctx, operator(), acc.ID, value); err != nil {
			return badInput(err)
		}
		_, err = fmt.Fprintf(c.err, "The pages of %s show it from now on.\n", acc.Name)
		return err
	})
}

// revokeLink takes a login link back and says what it leaves behind: what the link gave is over, what was
// made with it is the account's.
func revokeLink(ctx context.Context, s *accountstore.Store, a account.Account, link string,
	out io.Writer) error {
	if err := s.RevokeLoginLink(ctx, operator(), a.ID, link); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "%s lets nobody into %s any more, from the next click on. Invites that were made with it are void.\n", timeline.Legible(link), a.Name)
	w, err := s.LinkWork(ctx, a.ID, link)
	if err != nil {
		return fmt.Errorf("the link is taken back; what was made with it cannot be read, look into verifyd account audit %s: %w", strconv.Quote(a.Name), err)
	}
	return tellLinkWork(out, a.Name, w, time.Now())
}

func tellLinkWork(out io.Writer, name string, w accountstore.LinkWork, now time.Time) (err error) {
	say := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(out, format+"\n", args...)
		}
	}
	if len(w.Keys) == 0 {
		say("It made no API key.")
	} else {
		say("API keys that it made, which work on until they end: verifyd key revoke ID")
	}
	for _, k := range w.Keys {
		say("  %s  %s  %s  made %s, %s", k.ID, shortKey(k), table.OrDash(timeline.Legible(k.Name)),
			table.Instant(k.CreatedAt), k.State(now))
	}
	for _, m := range w.Members {
		say("A member by it, %s: %s (%s), on the members page of the account's owners", m.Role,
			table.OrDash(timeline.Legible(m.Name)), timeline.Legible(m.Network+":"+m.Subject))
	}
	if w.Revealed {
		say("The signing secret was seen by it; to change it: verifyd account rotate-secret --account %s",
			strconv.Quote(name))
	}
	return err
}

type accountAuditCmd struct {
	storeCmd      `embed:""`
	table.Listing `embed:""`
	Name          string `arg:"" help:"The account's name; the id of one that was deleted."`
	Limit         int    `default:"50" help:"How many records, newest first; 0 for all."`
}

// Run lists the records.
func (a accountAuditCmd) Run(ctx context.Context, c console) error {
	return a.existing(ctx, c, func(s *accountstore.Store) error {
		acc, err := s.Deleted(ctx, a.Name)
		if errors.Is(err, account.ErrNoAccount) {
			acc, err = s.AccountByName(ctx, a.Name)
		}
		if err != nil {
			return badInput(err)
		}
		return listAudit(ctx, c, s, acc.ID, a.Limit, a.Listing)
	})
}

// listAudit writes out the newest records of a log; all of them where the limit is 0.
func listAudit(ctx context.Context, c console, s *accountstore.Store, log string, limit int,
	as table.Listing) error {
	if limit < 0 {
		return config.Usage(fmt.Errorf("--limit: %d is below zero; give a number of records, or 0 for all",
			limit))
	}
	t := table.New("records", "AT", "WHO", "WHAT", "ON", "DETAIL")
	cursor, left := "", limit
	for {
		page, err := s.Audit(ctx, log, cursor, left)
		if err != nil {
			return err
		}
		for _, r := range page.Records {
			t.Add(r.At, timeline.Legible(whoText(r.Who)), r.What, timeline.Legible(r.On),
				table.NewCell(detailText(r.Detail), r.Detail))
		}
		left -= len(page.Records)
		if cursor = page.Next; cursor == "" || limit > 0 && left <= 0 {
			return as.Print(c.out, t)
		}
	}
}

// whoText names who did something, with the identity of a member beside the name, which may be another's,
// too.
func whoText(who access.Actor) string {
	if id := who.Identity(); id != "" && id != who.String() {
		return who.String() + " (" + id + ")"
	}
	return who.String()
}

func detailText(detail map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(detail)) {
		parts = append(parts, name+": "+timeline.Legible(detail[name]))
	}
	return table.OrDash(strings.Join(parts, ", "))
}
