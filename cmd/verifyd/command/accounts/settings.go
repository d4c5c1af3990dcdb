package accounts

import (
	"context"
	"errors"
	"fmt"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/edge/account"
	"verifyd/edge/client/manage"
	"verifyd/sessions/urlpolicy"
)

type accountQuotaCmd struct {
	named `embed:""`

	Sessions *int64 `arg:"" optional:"" name:"n" help:"Sessions that the account may start in a UTC month."`
	Default  bool   `help:"Use the service's default quota."`
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
				"%d is not a quota; give a number of sessions, for example 5000, or --default; "+
					"to let an account start no session, disable it: verifyd account disable NAME", quota))
		}
	}
	return a.change(ctx, c, func(m command.Manager, acc account.Account) (string, error) {
		return fmt.Sprintf("The quota of %s is %s.", acc.Name, monthText(quota)),
			set(ctx, m, acc, manage.Changes{"quota": command.OrNull(quota)})
	})
}

type accountReturnURLCmd struct {
	named `embed:""`

	URL   string `arg:"" optional:"" help:"The https address that the end user's page links to once a session has ended."`
	Clear bool   `help:"Remove the link."`
}

// Run sets the address, or removes it.
func (a accountReturnURLCmd) Run(ctx context.Context, c command.Console) error {
	if err := oneOf(a.URL, a.Clear, "a URL, for example https://example.com/verified"); err != nil {
		return err
	}
	return a.change(ctx, c, func(m command.Manager, acc account.Account) (string, error) {
		return shownBy(acc), set(ctx, m, acc, manage.Changes{"return_url": command.OrNull(a.URL)})
	})
}

type accountColourCmd struct {
	named `embed:""`

	Colour string `arg:"" optional:"" help:"The colour of the account's sign on the end user's page, for example #1f5fd0."`
	Clear  bool   `help:"Remove the sign."`
}

// Run sets the colour, or removes it.
func (a accountColourCmd) Run(ctx context.Context, c command.Console) error {
	if err := oneOf(a.Colour, a.Clear, "a colour, for example #1f5fd0"); err != nil {
		return err
	}
	return a.change(ctx, c, func(m command.Manager, acc account.Account) (string, error) {
		return shownBy(acc), set(ctx, m, acc, manage.Changes{"colour": command.OrNull(a.Colour)})
	})
}

// oneOf returns an error if a command was given both a value and --clear, or neither.
func oneOf(value string, empty bool, want string) error {
	if empty == (value != "") {
		return config.Usage(errors.New("give " + want + ", or --clear"))
	}
	return nil
}

func shownBy(a account.Account) string {
	return fmt.Sprintf("The pages of %s show the change from now on.", a.Name)
}

type accountNoticesCmd struct {
	named `embed:""`

	URL   string `arg:"" optional:"" help:"The https address that notices are posted to, signed as callbacks are."`
	Clear bool   `help:"Stop posting them; members still read them on the dashboard."`
}

// Run sets the address, or removes it.
func (a accountNoticesCmd) Run(ctx context.Context, c command.Console) error {
	if err := oneOf(a.URL, a.Clear, "a URL, for example https://bot.example.com/notices"); err != nil {
		return err
	}
	var to urlpolicy.URL
	where := "nowhere"
	if !a.Clear {
		var err error
		if to, err = urlpolicy.ParseNamed(a.URL); err != nil {
			return config.Usage(fmt.Errorf("URL: %w", err))
		}
		where = "to " + to.HostPort()
	}
	return a.change(ctx, c, func(m command.Manager, acc account.Account) (string, error) {
		return fmt.Sprintf("Notices to %s are posted %s from now on.", acc.Name, where),
			set(ctx, m, acc, manage.Changes{"notice_url": command.OrNull(to.String())})
	})
}

type accountBindingCmd struct {
	named `embed:""`

	Binding  string `arg:"" optional:"" help:"link (whoever has the link), code (the account's owner confirms with a code on the platform) or account (the platform account signs in too)."`
	MaxUsers *int   `placeholder:"N" help:"How many platform users one identity may verify, 1 to 10; 0: any number."`
	Clear    bool   `help:"Use the service's default."`
}

// Run sets what the account requires of its sessions.
func (a accountBindingCmd) Run(ctx context.Context, c command.Console) error {
	to := manage.Changes{}
	if a.MaxUsers != nil {
		to["max_users"] = command.OrNull(*a.MaxUsers)
	}
	if a.Binding != "" || a.Clear {
		to["binding"] = command.OrNull(a.Binding)
	}
	if a.Clear && a.Binding != "" || len(to) == 0 {
		return config.Usage(errors.New("give link, code or account, or --clear, or --max-users"))
	}
	return a.change(ctx, c, func(m command.Manager, acc account.Account) (string, error) {
		return fmt.Sprintf("It applies to new sessions of %s from now on.", acc.Name),
			set(ctx, m, acc, to)
	})
}
