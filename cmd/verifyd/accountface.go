package main

import (
	"context"
	"errors"
	"fmt"

	"verifyd/edge/account"
	"verifyd/edge/signin"
)

type accountReturnURLCmd struct {
	storeCmd `embed:""`
	Account  string `required:"" placeholder:"NAME" help:"The account's name."`
	URL      string `arg:"" optional:"" help:"The https address that the end user's page links to once a session has ended."`
	Clear    bool   `help:"Show no such link any more."`
}

// Run sets the address, or takes it away.
func (a accountReturnURLCmd) Run(ctx context.Context, c console) error {
	return setFace(ctx, c, a.storeCmd, a.Account, a.URL, a.Clear, "a URL, for example https://example.com/verified", (*account.Store).SetReturnURL)
}

type accountColourCmd struct {
	storeCmd `embed:""`
	Account  string `required:"" placeholder:"NAME" help:"The account's name."`
	Colour   string `arg:"" optional:"" help:"The colour of the account's sign on the end user's page, for example #1f5fd0."`
	Clear    bool   `help:"Show no sign any more."`
}

// Run sets the colour, or takes it away.
func (a accountColourCmd) Run(ctx context.Context, c console) error {
	return setFace(ctx, c, a.storeCmd, a.Account, a.Colour, a.Clear, "a colour, for example #1f5fd0", (*account.Store).SetColour)
}

// setFace sets a part of what end users see of an account.
func setFace(
	ctx context.Context, c console, store storeCmd, name, value string, empty bool, want string,
	set func(*account.Store, context.Context, account.Actor, string, string) error,
) error {
	if empty == (value != "") {
		return usageError{errors.New("give " + want + ", or --clear")}
	}
	return store.existing(ctx, c, func(s *account.Store) error {
		acc, err := s.AccountByName(ctx, name)
		if err != nil {
			return badInput(err)
		}
		if err := set(s, ctx, operator(), acc.ID, value); err != nil {
			return badInput(err)
		}
		_, err = fmt.Fprintf(c.err, "The pages of %s show it from now on.\n", acc.Name)
		return err
	})
}

// askers tells the sign-in page how end users know accounts.
type askers struct{ mirror *account.Mirror }

// Asker implements signin.Accounts.
func (a askers) Asker(id string) (signin.Asker, bool) {
	acc, ok := a.mirror.Account(id)
	return askerOf(acc), ok
}

func askerOf(a account.Account) signin.Asker {
	return signin.Asker{Name: a.Name, ReturnURL: a.ReturnURL, Colour: a.Colour}
}
