package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"

	"verifyd/edge/account"
	"verifyd/edge/rules"
	"verifyd/sessions"
)

type eraseCmd struct {
	storeCmd `embed:""`

	PlatformUserID string `env:"-" name:"platform-user-id" required:"" help:"The user, as the integrator named them."`
	Platform       string `env:"-" help:"On this platform alone. With it, identities are found also where the user's sessions are no longer kept."`
	Guild          string `env:"-" help:"In this guild alone."`
	Account        string `env:"-" help:"The account whose user it is."`
	AllAccounts    bool   `env:"-" help:"Users of this name of all accounts."`
	DryRun         bool   `env:"-" help:"Say what would be erased, and erase nothing."`
}

// errStillOpen is returned where something of the user is left to erase.
var errStillOpen = errors.New("sessions are left that are not at their end: cancel them, or run this again when they have expired and their callbacks have ended")

// Run erases what is stored of a user.
func (e eraseCmd) Run(ctx context.Context, c console) error {
	if (e.Account == "") == !e.AllAccounts {
		return usageError{errors.New("--account: name the account whose user it is, or say --all-accounts")}
	}
	if e.Guild != "" && e.Platform == "" {
		return usageError{errors.New("--guild: a guild is one of a platform; name that with --platform")}
	}
	return e.look(ctx, c, func(st *store) error {
		accounts, err := e.accounts(ctx, st.accounts)
		if err != nil {
			return badInput(err)
		}
		t := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(t, "ACCOUNT\tSESSIONS\tOF THESE WITH AN OUTCOME\tKEPT UNREADABLE UNTIL\tIDENTITIES\tSTILL OPEN")
		open := 0
		for _, a := range accounts {
			found, err := e.erase(ctx, st, a)
			if err != nil {
				return err
			}
			until := "-"
			if !found.Until.IsZero() {
				until = exactly(found.Until)
			}
			_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%d\t%d\n", a.Name, found.Sessions, found.Outcomes, until, found.Holds, found.Open)
			open += found.Open
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if e.DryRun {
			_, err := fmt.Fprintln(c.err, "Nothing was erased (--dry-run).")
			return err
		}
		if open > 0 {
			return errStillOpen
		}
		return nil
	})
}

func (e eraseCmd) accounts(ctx context.Context, s *account.Store) ([]account.Account, error) {
	if e.AllAccounts {
		return s.Accounts(ctx)
	}
	a, err := s.AccountByName(ctx, e.Account)
	return []account.Account{a}, err
}

// holders are the names under which identities may stand for a session's user: of one guild, those of that guild alone.
func (e eraseCmd) holders(s sessions.Session) []string {
	platform, guild := rules.Holders(s)
	if e.Guild != "" {
		return []string{guild}
	}
	return []string{platform, guild}
}

// erase erases a user of one account, and writes down that somebody was erased, not who.
func (e eraseCmd) erase(ctx context.Context, st *store, a account.Account) (sessions.Erasure, error) {
	person := sessions.Person{Account: a.ID, PlatformUserID: e.PlatformUserID, Platform: e.Platform, GuildID: e.Guild, HoldsOf: e.holders}
	if e.Platform != "" {
		for _, test := range []bool{false, true} {
			person.Holds = append(person.Holds, e.holders(sessions.Session{
				Account: a.ID, Test: test, Platform: e.Platform, GuildID: e.Guild, PlatformUserID: e.PlatformUserID,
			})...)
		}
	}
	found, err := st.reader().Erase(ctx, person, e.DryRun)
	if err != nil || e.DryRun || found.Sessions+found.Holds == 0 {
		return found, err
	}
	return found, st.accounts.Note(ctx, operator(), a.ID, account.UserErased, "", map[string]string{
		"sessions": strconv.Itoa(found.Sessions), "identities": strconv.Itoa(found.Holds),
	})
}
