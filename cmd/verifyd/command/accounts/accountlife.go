package accounts

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

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/table"
	"verifyd/edge/account"
	"verifyd/edge/account/accountstore"
	"verifyd/sessions/proof"
	"verifyd/sessions/timeline"
	"verifyd/sessions/urlpolicy"
)

// accountArg names the account that a command changes.
type accountArg struct {
	Name string `arg:"" help:"The account's name; its id where it was made on the dashboard."`
}

type accountQuotaCmd struct {
	command.Managed `embed:""`
	accountArg      `embed:""`

	Sessions *int64 `arg:"" optional:"" name:"n" help:"Sessions that the account may start in a UTC month."`
	Default  bool   `help:"As many as the service grants to accounts without a quota of their own."`
}

// Run sets the quota.
func (a accountQuotaCmd) Run(ctx context.Context, c command.Console) error {
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
	return a.Manage(ctx, c, func(m command.Manager) error {
		acc, err := m.Own(ctx, a.Name)
		if err != nil {
			return err
		}
		if err := m.SetQuota(ctx, acc.ID, quota); err != nil {
			return command.BadInput(err)
		}
		_, err = fmt.Fprintf(c.Err, "The quota of %s is %s.\n", acc.Name, monthText(quota))
		return err
	})
}

type accountReturnURLCmd struct {
	command.Managed `embed:""`

	Account string `required:"" placeholder:"NAME" help:"The account's name."`
	URL     string `arg:"" optional:"" help:"The https address that the end user's page links to once a session has ended."`
	Clear   bool   `help:"Show no such link any more."`
}

// Run sets the address, or takes it away.
func (a accountReturnURLCmd) Run(ctx context.Context, c command.Console) error {
	return setFace(ctx, c, a.Managed, a.Account, a.URL, a.Clear,
		"a URL, for example https://example.com/verified", command.Manager.SetReturnURL)
}

type accountColourCmd struct {
	command.Managed `embed:""`

	Account string `required:"" placeholder:"NAME" help:"The account's name."`
	Colour  string `arg:"" optional:"" help:"The colour of the account's sign on the end user's page, for example #1f5fd0."`
	Clear   bool   `help:"Show no sign any more."`
}

// Run sets the colour, or takes it away.
func (a accountColourCmd) Run(ctx context.Context, c command.Console) error {
	return setFace(ctx, c, a.Managed, a.Account, a.Colour, a.Clear, "a colour, for example #1f5fd0",
		command.Manager.SetColour)
}

type accountNoticesCmd struct {
	command.Store `embed:""`

	Account string `required:"" placeholder:"NAME" help:"The account's name."`
	URL     string `arg:"" optional:"" help:"The https address that notices are posted to, signed as callbacks are."`
	Clear   bool   `help:"Post them nowhere; members read them on the dashboard all the same."`
}

// Run sets the address, or takes it away.
func (a accountNoticesCmd) Run(ctx context.Context, c command.Console) error {
	if a.Clear == (a.URL != "") {
		return config.Usage(errors.New("give a URL, for example https://bot.example.com/notices, or --clear"))
	}
	var to urlpolicy.URL
	if !a.Clear {
		var err error
		if to, err = urlpolicy.ParseNamed(a.URL); err != nil {
			return config.Usage(fmt.Errorf("URL: %w", err))
		}
	}
	return a.UseAccounts(ctx, c, func(s *accountstore.Store) error {
		acc, err := command.OwnAccount(ctx, s, a.Account)
		if err != nil {
			return err
		}
		if err := s.SetNoticeURL(ctx, command.Operator(), acc.ID, to); err != nil {
			return command.BadInput(err)
		}
		where := "nowhere"
		if !a.Clear {
			where = "to " + to.HostPort()
		}
		_, err = fmt.Fprintf(c.Err, "Notices to %s are posted %s from now on.\n", acc.Name, where)
		return err
	})
}

type accountBindingCmd struct {
	command.Managed `embed:""`

	Account  string `required:"" placeholder:"NAME" help:"The account's name."`
	Binding  string `arg:"" optional:"" help:"link (whoever has the link), code (the account's owner confirms with a code on the platform) or account (the platform account signs in too)."`
	MaxUsers *int   `placeholder:"N" help:"How many platform users one identity may verify, 1 to 10; 0: any number."`
	Clear    bool   `help:"Ask for what the service asks for."`
}

// Run sets what the account asks of its sessions.
func (a accountBindingCmd) Run(ctx context.Context, c command.Console) error {
	to := accountstore.Binding{MaxUsers: a.MaxUsers}
	if level := proof.Level(a.Binding); level != "" || a.Clear {
		to.Level = &level
	}
	if a.Clear && a.Binding != "" || to == (accountstore.Binding{}) {
		return config.Usage(errors.New("give link, code or account, or --clear, or --max-users"))
	}
	return a.Manage(ctx, c, func(m command.Manager) error {
		acc, err := m.Own(ctx, a.Account)
		if err != nil {
			return err
		}
		if err := m.SetBinding(ctx, acc.ID, to); err != nil {
			return command.BadInput(err)
		}
		_, err = fmt.Fprintf(c.Err, "New sessions of %s ask for it from now on.\n", acc.Name)
		return err
	})
}

// setFace sets a part of what end users see of an account.
func setFace(
	ctx context.Context, c command.Console, on command.Managed, name, value string, empty bool, want string,
	set func(m command.Manager, ctx context.Context, id, value string) error,
) error {
	if empty == (value != "") {
		return config.Usage(errors.New("give " + want + ", or --clear"))
	}
	return on.Manage(ctx, c, func(m command.Manager) error {
		acc, err := m.Own(ctx, name)
		if err != nil {
			return err
		}
		if err := set(m, ctx, acc.ID, value); err != nil {
			return command.BadInput(err)
		}
		_, err = fmt.Fprintf(c.Err, "The pages of %s show it from now on.\n", acc.Name)
		return err
	})
}

// revokeLink takes a login link back and says what it leaves behind: what the link gave is over, what was
// made with it is the account's.
func revokeLink(ctx context.Context, s *accountstore.Store, a account.Account, link string,
	out io.Writer) error {
	if err := s.RevokeLoginLink(ctx, command.Operator(), a.ID, link); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "%s lets nobody into %s any more, from the next click on. Invites that "+
		"were made with it are void.\n", timeline.Legible(link), a.Name)
	w, err := s.LinkWork(ctx, a.ID, link)
	if err != nil {
		return fmt.Errorf("the link is taken back; what was made with it cannot be read, look into "+
			"verifyd account audit %s: %w", strconv.Quote(a.Name), err)
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
		say("  %s  %s  %s  made %s, %s", k.ID, command.KeyHint(k), table.OrDash(timeline.Legible(k.Name)),
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
	command.Store `embed:""`
	table.Listing `embed:""`

	Name  string `arg:"" help:"The account's name; the id of one that was deleted."`
	Limit int    `default:"50" help:"How many records, newest first; 0 for all."`
}

// Run lists the records.
func (a accountAuditCmd) Run(ctx context.Context, c command.Console) error {
	return a.UseAccounts(ctx, c, func(s *accountstore.Store) error {
		acc, err := s.Deleted(ctx, a.Name)
		if errors.Is(err, account.ErrNoAccount) {
			acc, err = s.AccountByName(ctx, a.Name)
		}
		if err != nil {
			return command.BadInput(err)
		}
		return listAudit(ctx, c, s, acc.ID, a.Limit, a.Listing)
	})
}

// listAudit writes out the newest records of a log; all of them where the limit is 0.
func listAudit(ctx context.Context, c command.Console, s *accountstore.Store, log string, limit int,
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
			t.Add(r.At, timeline.Legible(command.ActorText(r.Who)), r.What, timeline.Legible(r.On),
				table.NewCell(detailText(r.Detail), r.Detail))
		}
		left -= len(page.Records)
		if cursor = page.Next; cursor == "" || limit > 0 && left <= 0 {
			return as.Print(c.Out, t)
		}
	}
}

func detailText(detail map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(detail)) {
		parts = append(parts, name+": "+timeline.Legible(detail[name]))
	}
	return table.OrDash(strings.Join(parts, ", "))
}
