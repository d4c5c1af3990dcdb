package accounts

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/table"
	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/client/manage"
	"verifyd/sessions"
	sessionstore "verifyd/sessions/store"
	"verifyd/sessions/timeline"
)

type accountRenameCmd struct {
	named `embed:""`

	To    string `arg:"" help:"The new name, as end users will read it."`
	Grant bool   `help:"Allow the name even if it is reserved, mixes scripts, or is kept for another account that had it."`
}

// Run renames the account.
func (a accountRenameCmd) Run(ctx context.Context, c command.Console) error {
	return a.change(ctx, c, func(m command.Manager, acc account.Account) (string, error) {
		if err := m.LearnNames(ctx); err != nil {
			return "", err
		}
		to := manage.Changes{"name": a.To}
		if a.Grant {
			to["grant_name"] = true
		}
		now, err := m.ChangeAccount(ctx, acc.ID, to)
		until := keptUntil(now, acc.Name)
		if err != nil || until.IsZero() {
			return fmt.Sprintf("Account %s is called %s.", acc.ID, strconv.Quote(now.Name)), err
		}
		text := fmt.Sprintf("Account %s is now called %s. Nobody else can take its old name until %s.",
			acc.ID, strconv.Quote(now.Name), table.Instant(until))
		if !acc.VerifiedAt.IsZero() {
			text += fmt.Sprintf(" The verified mark was lost with the old name; to give it to the new one: "+
				"verifyd account verified %s", acc.ID)
		}
		return text, nil
	})
}

// keptUntil returns until when a former name is kept; zero: there is none, or that was not recorded.
func keptUntil(a manage.Account, name string) (until time.Time) {
	for _, f := range a.FormerNames {
		if end := command.Or(f.KeptUntil); f.Name == name && end.After(until) {
			until = end
		}
	}
	return until
}

type accountDisableCmd struct {
	named `embed:""`

	Reason string `placeholder:"TEXT" help:"Why, as the account's members read it on the dashboard."`
}

// Run disables the account.
func (a accountDisableCmd) Run(ctx context.Context, c command.Console) error {
	return a.change(ctx, c, func(m command.Manager, acc account.Account) (string, error) {
		to := manage.Changes{"disabled": true}
		if a.Reason != "" {
			to["disabled_reason"] = a.Reason
		}
		err := set(ctx, m, acc, to)
		return fmt.Sprintf("Account %s is disabled: within a second its keys are refused and nobody can "+
			"sign in for it. Stored outcomes are still delivered. To undo this: verifyd account enable %s",
			acc.ID, strconv.Quote(a.Name)), err
	})
}

type accountEnableCmd struct {
	named `embed:""`
}

// Run enables the account.
func (a accountEnableCmd) Run(ctx context.Context, c command.Console) error {
	return a.change(ctx, c, func(m command.Manager, acc account.Account) (string, error) {
		now, err := m.ChangeAccount(ctx, acc.ID, manage.Changes{"disabled": false})
		if now.DeletesAt != nil {
			return fmt.Sprintf("Account %s is no longer disabled, and is deleted on %s. To cancel the "+
				"deletion: verifyd account restore %s", acc.ID, table.Instant(*now.DeletesAt),
				strconv.Quote(a.Name)), err
		}
		return fmt.Sprintf("Account %s is in service: its keys work, and its users can sign in. See: "+
			"verifyd account show %s", acc.ID, strconv.Quote(a.Name)), err
	})
}

type accountRestoreCmd struct {
	named `embed:""`
}

// Run takes back the request to delete the account.
func (a accountRestoreCmd) Run(ctx context.Context, c command.Console) error {
	return a.change(ctx, c, func(m command.Manager, acc account.Account) (string, error) {
		now, err := m.RestoreAccount(ctx, acc.ID)
		if now.Disabled {
			return fmt.Sprintf("The deletion of account %s was canceled; it is disabled as before. To put "+
				"it back into service: verifyd account enable %s", acc.ID, strconv.Quote(a.Name)), err
		}
		return fmt.Sprintf("The deletion of account %s was canceled; it is in service.", acc.ID), err
	})
}

type accountVerifiedCmd struct {
	named `embed:""`

	Remove bool `help:"Remove the mark."`
}

// Run sets the mark that users see next to the account's name, or removes it.
func (a accountVerifiedCmd) Run(ctx context.Context, c command.Console) error {
	return a.change(ctx, c, func(m command.Manager, acc account.Account) (string, error) {
		name := acc.Name
		if a.Remove {
			name = ""
		}
		err := set(ctx, m, acc, manage.Changes{"verified_name": command.OrNull(name)})
		if a.Remove {
			return fmt.Sprintf("Account %s (%s) has no verified mark.", acc.Name, acc.ID), err
		}
		return fmt.Sprintf("Users read that the operator of this service has verified the name of %s "+
			"(%s). The mark is lost when the name changes.", acc.Name, acc.ID), err
	})
}

type accountMoveMemberCmd struct {
	command.Managed `embed:""`
	memberArg       `embed:""`

	From string `required:"" placeholder:"NAME" help:"The account that they are in."`
	To   string `required:"" placeholder:"NAME" help:"The account that they move to."`
	Role string `placeholder:"ROLE" help:"Their role there: owner, developer or viewer; default: the same as before."`
}

// Run moves the member.
func (a accountMoveMemberCmd) Run(ctx context.Context, c command.Console) error {
	who, err := a.parts()
	if err != nil {
		return err
	}
	return change(ctx, c, a.Managed, a.From, func(m command.Manager, from account.Account) (string, error) {
		to, err := m.Own(ctx, a.To)
		if err != nil {
			return "", err
		}
		role := a.Role
		there, err := m.MoveMember(ctx, from.ID, to.ID, who.Network, who.Subject, role)
		for _, p := range there.Members {
			if (access.Identity{Network: p.Network, Subject: p.Subject}).Is(who) {
				role = p.Role
			}
		}
		return fmt.Sprintf("%s is no longer a member of %s, and is now %s of %s.",
			timeline.Legible(a.Identity), from.Name, role, to.Name), err
	})
}

type accountDeleteCmd struct {
	named `embed:""`

	Now    bool `help:"Delete it at once, without the seven days in which it can be restored."`
	DryRun bool `help:"Report what would be deleted, and delete nothing."`
}

// Run requests the deletion of the account.
func (a accountDeleteCmd) Run(ctx context.Context, c command.Console) error {
	if a.Now || a.DryRun {
		err := a.OnStoreOnly("--now or --dry-run", "what is deleted at once cannot be restored")
		if err != nil {
			return err
		}
		return a.end(ctx, c)
	}
	return a.change(ctx, c, func(m command.Manager, acc account.Account) (string, error) {
		now, err := m.DeleteAccount(ctx, acc.ID)
		return fmt.Sprintf("Account %s (%s) is out of service and is deleted on %s, with its keys and "+
			"members. To cancel the deletion: verifyd account restore %s",
			acc.Name, acc.ID, table.Instant(command.Or(now.DeletesAt)), strconv.Quote(a.Name)), err
	})
}

// end deletes the account, and cancels its open sessions. A repeat, by the account's id, finishes what was
// interrupted.
func (a accountDeleteCmd) end(ctx context.Context, c command.Console) error {
	return a.Use(ctx, c, func(st *store.Store) error {
		id := a.Name
		if _, gone := st.Accounts.Deleted(ctx, id); gone != nil {
			acc, err := command.OwnAccount(ctx, st.Accounts, a.Name)
			if err != nil {
				return err
			}
			id = acc.ID
		}
		d, err := st.Accounts.DeleteAccount(ctx, command.Operator(), id, a.DryRun)
		if err != nil {
			return command.BadInput(err)
		}
		went := fmt.Sprintf("%d keys, %d members, %d invites and %d login links", d.Keys, d.Members,
			d.Invites, d.Links)
		if a.DryRun {
			_, err = fmt.Fprintf(c.Err, "Nothing was deleted (--dry-run). %s (%s) would be deleted with %s, "+
				"and its open sessions would be canceled.\n",
				d.Account.Name, id, went)
			return err
		}
		canceled, err := cancelOpen(ctx, st, id)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.Err, "Account %s (%s) is deleted, with %s; %d open sessions were canceled. "+
			"Stored outcomes are still delivered, signed until %s at the latest; nobody can read them any "+
			"more. Nobody else can take its name for 90 days.\n",
			d.Account.Name, id, went, canceled, table.Instant(d.SignsUntil))
		return err
	})
}

// cancelOpen cancels the sessions of a deleted account, and records how many.
func cancelOpen(ctx context.Context, s *store.Store, account string) (canceled int, err error) {
	err = s.WithFacts(func(ender *sessionstore.Store) (err error) {
		canceled, err = ender.CancelOpen(ctx, account, sessions.AccountDeletedReason)
		return err
	})
	if err != nil || canceled == 0 {
		return canceled, err
	}
	return canceled, noteEnded(ctx, s, account, canceled)
}

func noteEnded(ctx context.Context, s *store.Store, id string, canceled int) error {
	detail := map[string]string{"sessions": strconv.Itoa(canceled)}
	return s.Accounts.Note(ctx, command.Operator(), id, audit.SessionsEnded, "", detail)
}
