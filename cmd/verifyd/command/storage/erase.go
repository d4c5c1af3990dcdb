package storage

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/table"
	"verifyd/edge/account"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/audit"
	"verifyd/edge/rules"
	"verifyd/sessions"
	"verifyd/sessions/erasure"
)

// Erase erases what is stored of one user.
type Erase struct {
	command.Local `embed:""`
	table.Listing `embed:""`

	PlatformUserID string `name:"platform-user-id" required:"" help:"The user's id, as the integrator gave it."`
	Platform       string `help:"Only on this platform. With it, identities are found even if the user's sessions are no longer kept."`
	Guild          string `help:"Only in this guild."`
	Account        string `help:"The account whose user it is."`
	AllAccounts    bool   `help:"Erase the user with this id in all accounts."`
	DryRun         bool   `help:"Report what would be erased, and erase nothing."`
}

// errStillOpen is returned if something of the user is left to erase.
var errStillOpen = errors.New(
	"some sessions have not ended: cancel them, or run this again when they have expired and " +
		"their callbacks have ended")

// Run erases what is stored of a user.
func (e Erase) Run(ctx context.Context, c command.Console) error {
	if (e.Account == "") == !e.AllAccounts {
		return config.Usage(errors.New("--account: name the account whose user it is, or use --all-accounts"))
	}
	if e.Guild != "" && e.Platform == "" {
		return config.Usage(errors.New("--guild: a guild belongs to a platform; name that with --platform"))
	}
	return e.Use(ctx, c, command.WhyRecords, func(st *store.Store) error {
		accounts, unread := e.accounts(ctx, st.Accounts)
		if command.Lists(unread) != nil || unread != nil && !e.AllAccounts {
			return command.BadInput(unread)
		}
		t := table.New("accounts", "ACCOUNT", "SESSIONS", "OF THESE WITH AN OUTCOME:outcomes",
			"IN CLEAR TEXT UNTIL:clear_until", ":clear", "IDENTITIES", "STILL OPEN:open")
		var all erasure.Erasure
		for _, a := range accounts {
			found, err := e.erase(ctx, st, a)
			if err != nil {
				return err
			}
			until := table.NewCell("-", found.Until)
			if !found.Until.IsZero() {
				until.Text = fmt.Sprintf("%s (%d of them)", table.Exactly(found.Until), found.Clear)
			}
			t.Add(a.Name, found.Sessions, found.Outcomes, until, found.Clear, found.Identities, found.Open)
			all.Sessions, all.Clear, all.Open = all.Sessions+found.Sessions, all.Clear+found.Clear,
				all.Open+found.Open
		}
		if err := e.Print(c.Out, t); err != nil {
			return err
		}
		_, _ = fmt.Fprint(c.Err, e.words(all))
		if all.Open > 0 && !e.DryRun {
			unread = errors.Join(unread, errStillOpen)
		}
		return unread
	})
}

// words describe what was done, and what the erasure does not reach.
func (e Erase) words(all erasure.Erasure) string {
	if e.DryRun {
		return fmt.Sprintf("Nothing was erased (--dry-run). Of the counted sessions, %d that have "+
			"not ended would stay.\n", all.Open)
	}
	if all.Sessions == 0 {
		return ""
	}
	text := "The keys of these sessions are destroyed in the store: what is left of them names nobody, " +
		"here and in backups and moves from now on.\n" +
		"Earlier backups still contain the user. On several NATS servers, their logs hold the keys, " +
		"sealed, for about three minutes more.\n"
	if all.Clear > 0 {
		text += fmt.Sprintf("%d of them were not sealed when they were stored, by an older build or "+
			"VERIFYD_PLAIN_SESSIONS: nothing shows them any more,\n"+
			"but their data stays in the store's files until the time above.\n", all.Clear)
	}
	return text
}

func (e Erase) accounts(ctx context.Context, s *accountstore.Store) ([]account.Account, error) {
	if e.AllAccounts {
		return s.EveryAccount(ctx)
	}
	a, err := s.Deleted(ctx, e.Account)
	if errors.Is(err, account.ErrNoAccount) {
		a, err = s.AccountByName(ctx, e.Account)
	}
	return []account.Account{a}, err
}

// holders are the names under which identities may be bound to a session's user; with a guild, only those of
// that guild.
func (e Erase) holders(s sessions.Session) []string {
	platform, guild := rules.Holders(s)
	if e.Guild != "" {
		return []string{guild}
	}
	return []string{platform, guild}
}

// erase erases a user of one account, and records that somebody was erased, not who.
func (e Erase) erase(ctx context.Context, st *store.Store, a account.Account) (erasure.Erasure, error) {
	person := erasure.Person{
		Account: a.ID, PlatformUserID: e.PlatformUserID, Platform: e.Platform, GuildID: e.Guild,
		HoldUsersOf: e.holders,
	}
	if e.Platform != "" {
		for _, test := range []bool{false, true} {
			person.HoldUsers = append(person.HoldUsers,
				e.holders(sessions.Session{Request: sessions.Request{
					Account: a.ID, Test: test, Platform: e.Platform, GuildID: e.Guild,
					PlatformUserID: e.PlatformUserID,
				}})...)
		}
	}
	found, err := st.Reader().Erase(ctx, person, e.DryRun)
	if err != nil || e.DryRun || found.Sessions+found.Identities == 0 {
		return found, err
	}
	return found, st.Accounts.Note(ctx, command.Operator(), a.ID, audit.UserErased, "", map[string]string{
		"sessions": strconv.Itoa(found.Sessions), "identities": strconv.Itoa(found.Identities),
	})
}
