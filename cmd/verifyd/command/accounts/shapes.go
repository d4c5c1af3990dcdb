package accounts

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/client/manage"
	"verifyd/edge/web"
)

// named is a command on one account, which an argument names.
type named struct {
	command.Managed `embed:""`

	Name string `arg:"" help:"The account's name, or its id (required if it was created on the dashboard)."`
}

// ofAccount is a command on one account, which a flag names.
type ofAccount struct {
	command.Managed `embed:""`

	Account string `required:"" placeholder:"NAME" help:"The account's name, or its id (required if it was created on the dashboard)."`
}

// changing changes an account and returns a description of the change.
type changing = func(command.Manager, account.Account) (text string, err error)

func (n named) change(ctx context.Context, c command.Console, do changing) error {
	return change(ctx, c, n.Managed, n.Name, do)
}

func (o ofAccount) change(ctx context.Context, c command.Console, do changing) error {
	return change(ctx, c, o.Managed, o.Account, do)
}

// set makes changes of an account that is not read again.
func set(ctx context.Context, m command.Manager, a account.Account, to manage.Changes) error {
	return errorOf(m.ChangeAccount(ctx, a.ID, to))
}

// errorOf returns the error of a call whose answer is not shown.
func errorOf[T any](_ T, err error) error { return err }

// change calls do to change an account and prints the description.
func change(ctx context.Context, c command.Console, on command.Managed, name string, do changing) error {
	return on.Manage(ctx, c, func(m command.Manager) error {
		acc, err := m.Own(ctx, name)
		if err != nil {
			return err
		}
		text, err := do(m, acc)
		if err != nil {
			return command.BadInput(err)
		}
		_, err = fmt.Fprintln(c.Err, text)
		return err
	})
}

// handOut writes a secret that is shown only once to standard output, so that a script can read it, and notes
// about it to standard error. It does so even if err is natsconf.ErrUncertain: the secret may be the one that
// works. Other errors come without a secret.
func handOut(c command.Console, secret, text string, err error) error {
	if secret == "" {
		return command.BadInput(err)
	}
	_, _ = fmt.Fprintln(c.Err, text)
	_, printed := fmt.Fprintln(c.Out, secret)
	return errors.Join(err, printed)
}

// identityArg names somebody at an identity network.
type identityArg struct {
	Identity string `arg:"" help:"Who, as NETWORK:SUBJECT, for example example:12345; the members page of an account shows both."`
}

// memberArg names a member of an account.
type memberArg struct {
	Identity string `arg:"" help:"Who: the member's id (verifyd member list shows it), or NETWORK:SUBJECT, for example example:12345."`
}

func (a memberArg) parts() (access.Identity, error) {
	if strings.HasPrefix(a.Identity, access.AddressPrefix) && !strings.Contains(a.Identity, ":") {
		return access.Addressed(a.Identity), nil
	}
	return identityArg(a).parts()
}

func (a identityArg) parts() (who access.Identity, err error) {
	network, subject, ok := strings.Cut(a.Identity, ":")
	if !ok || network == "" || subject == "" {
		return who, config.Usage(
			errors.New("IDENTITY: this is not of the form NETWORK:SUBJECT; for example example:12345"))
	}
	return access.Identity{Network: network, Subject: subject}, nil
}

// baseURL reads {base_url} as a flag names it.
func baseURL(text string) (string, error) {
	base, _, err := web.ParseBaseURL(text)
	if err != nil {
		var f config.Faults
		f.Add("base-url", fmt.Sprintf("%q is %v", text, err), "for example https://verify.example.com")
		return "", config.Usage(f.OwnErr())
	}
	return base, nil
}
