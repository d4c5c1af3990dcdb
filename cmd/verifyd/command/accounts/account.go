// Package accounts has the commands on what belongs to integrators and operators: accounts and their members,
// login links and secrets, API keys, and who is an operator. Every change is recorded in the audit log.
package accounts

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/table"
	"verifyd/edge/client/manage"
	"verifyd/sessions/timeline"
)

// Account has the commands on accounts.
type Account struct {
	Create       accountCreateCmd      `cmd:"" help:"Create an account, with a signing secret."`
	Quota        accountQuotaCmd       `cmd:"" help:"Set how many sessions an account may start in a UTC month."`
	Rename       accountRenameCmd      `cmd:"" help:"Rename an account. It keeps its id and all that belongs to it; nobody else can take its old name for 90 days."`
	Verified     accountVerifiedCmd    `cmd:"" help:"Give an account the mark that tells end users that you know who it is, or remove the mark."`
	Disable      accountDisableCmd     `cmd:"" help:"Take an account out of service: its keys are refused and its users cannot sign in, until it is enabled."`
	Enable       accountEnableCmd      `cmd:"" help:"Put an account back into service."`
	Delete       accountDeleteCmd      `cmd:"" help:"Take an account out of service and delete it after seven days, with its keys, members, invites, login links and signing secrets."`
	Restore      accountRestoreCmd     `cmd:"" help:"Cancel the deletion of an account."`
	MoveMember   accountMoveMemberCmd  `cmd:"" name:"move-member" help:"Move a member from one account to another."`
	List         accountListCmd        `cmd:"" help:"List accounts."`
	Show         accountShowCmd        `cmd:"" help:"Show an account's members, login links, keys, signing secrets without their values, and quota."`
	Secret       accountSecretCmd      `cmd:"" help:"Print an account's callback signing secret, and nothing else, on standard output."`
	RotateSecret accountRotateCmd      `cmd:"" help:"Give an account a new callback signing secret; for a while the old one signs as well."`
	EndRotation  accountEndRotationCmd `cmd:"" help:"End a rotation now: the old signing secret stops signing."`
	LoginLink    accountLoginLinkCmd   `cmd:"" help:"Print a link to log in to an account's dashboard; it works once, within 10 minutes."`
	RevokeLink   accountRevokeLinkCmd  `cmd:"" name:"revoke-login-link" help:"Revoke a login link: it no longer works, and whoever logged in with it is logged out."`
	ReturnURL    accountReturnURLCmd   `cmd:"" name:"return-url" help:"Set the address that the end user's page links to once a session has ended."`
	Colour       accountColourCmd      `cmd:"" help:"Set the colour of an account's sign on the end user's page."`
	Binding      accountBindingCmd     `cmd:"" help:"Set what an account's sessions ask to be proven if their start does not say."`
	Notices      accountNoticesCmd     `cmd:"" help:"Set where notices to an account are posted, for example when a receiver fails, a quota runs out or a key expires."`
	Audit        accountAuditCmd       `cmd:"" help:"Show who changed what in an account, newest first."`
}

type accountCreateCmd struct {
	command.Managed `embed:""`

	Name     string `arg:"" help:"The account's name, as end users will read it."`
	Grant    bool   `help:"Allow the name even if it is reserved, mixes scripts, or is kept for an account that had it."`
	NewStore bool   `help:"Create the store too, if the data directory has none yet."`
}

// Run creates the account.
func (a accountCreateCmd) Run(ctx context.Context, c command.Console) error {
	reach := a.Manage
	if a.NewStore {
		if err := a.OnStoreOnly("--new-store", "a running service has its store"); err != nil {
			return err
		}
		reach = a.Begin
	}
	return reach(ctx, c, func(m command.Manager) error {
		if !a.Grant {
			if err := m.LearnNames(ctx); err != nil {
				return err
			}
		}
		acc, err := m.CreateAccount(ctx, a.Name, a.Grant)
		if err != nil {
			return command.BadInput(err)
		}
		_, err = fmt.Fprintf(c.Err,
			"Account %s was created. Create a key with: verifyd key create --account %[2]s. Let its owner "+
				"log in with: verifyd account login-link %[2]s --base-url URL\n",
			acc.ID, strconv.Quote(acc.Name))
		return err
	})
}

type accountListCmd struct {
	command.Managed `embed:""`
	table.Listing   `embed:""`
}

// Run lists the accounts by name.
func (l accountListCmd) Run(ctx context.Context, c command.Console) error {
	return l.Manage(ctx, c, func(m command.Manager) error {
		unread, err := m.Prepare(ctx)
		if err != nil {
			return err
		}
		t := table.New("accounts", "NAME", "ID", "CREATED", "MEMBERS", "KEYS", "QUOTA", "STATE")
		for a, err := range m.Accounts(ctx) {
			if err != nil {
				return command.BadInput(err)
			}
			n := command.Or(a.Quota)
			quota := table.NewCell(quotaText(n), table.UnlessZero(n))
			t.Add(a.Name, a.ID, a.CreatedAt, a.Members, a.Keys, quota, stateText(a))
		}
		return errors.Join(l.Print(c.Out, t), unread)
	})
}

// stateText describes whether the account is in service.
func stateText(a manage.Account) string {
	if a.DeletesAt != nil {
		return "deleted on " + table.Instant(*a.DeletesAt)
	}
	if a.DisabledAt != nil {
		return "disabled since " + table.Instant(*a.DisabledAt)
	}
	return "in service"
}

func quotaText(quota int64) string {
	if quota == 0 {
		return "default"
	}
	return strconv.FormatInt(quota, 10)
}

func monthText(quota int64) string {
	if quota == 0 {
		return "the service's default"
	}
	return quotaText(quota) + " sessions a month"
}

type accountShowCmd struct {
	command.Managed `embed:""`
	table.Listing   `embed:""`

	Name string `arg:"" help:"The account's name or id."`
}

// Run shows what the account's owners see of it, without any secret.
func (a accountShowCmd) Run(ctx context.Context, c command.Console) error {
	return a.Manage(ctx, c, func(m command.Manager) error {
		id, err := m.Find(ctx, a.Name)
		if err != nil {
			return err
		}
		unread, err := m.Prepare(ctx)
		if err != nil {
			return err
		}
		tables, err := everythingOf(ctx, m, id)
		if tables == nil || command.Lists(err) != nil {
			return command.BadInput(err)
		}
		return errors.Join(a.Print(c.Out, tables...), unread, err)
	})
}

// everythingOf returns what is shown of an account.
func everythingOf(ctx context.Context, m command.Manager, id string) ([]*table.Table, error) {
	a, aerr := m.Account(ctx, id)
	if aerr != nil {
		return nil, aerr
	}
	signing, serr := m.Secrets(ctx, id)
	people, perr := m.Members(ctx, id)
	links, lerr := m.LoginLinks(ctx, id)
	theirs := table.New("keys", "KEY", "NAME", "ID", "STATE", "EXPIRES", "LAST USED", "RATE",
		"CALLBACKS:policy")
	for k, err := range m.Keys(ctx, id) {
		if err != nil {
			return nil, err
		}
		theirs.Add(k.Hint, k.Name, k.ID, k.State, command.Or(k.ExpiresAt), command.Or(k.LastUsedAt),
			defaultCell(k.RateLimit), defaultCell(k.Policy))
	}
	now := time.Now()
	return []*table.Table{
		accountCard(a), secretTable(signing, now), memberTable(people), inviteTable(people, now),
		linkTable(links), theirs,
	}, errors.Join(serr, perr, lerr)
}

func accountCard(a manage.Account) *table.Table {
	acc := table.NewCard("account", "Account:name", ":id", "Created", "State", "Reason", "Verified", "Quota",
		"Link back:return_url", "Colour", "Button", "Accent", "Dark accent:accent_dark", "Logo", "Binding",
		"Users of an identity:max_users", "Notices to:notices_host")
	n := command.Or(a.Quota)
	name, quota := table.NewCell(a.Name+" ("+a.ID+")", a.Name),
		table.NewCell(monthText(n), table.UnlessZero(n))
	maxUsers := table.NewCell("any number", nil)
	if a.MaxUsers != nil {
		maxUsers = table.NewCell(strconv.Itoa(*a.MaxUsers), *a.MaxUsers)
	}
	logo := table.NewCell("", nil)
	if l := a.Logo; l != nil {
		logo = table.NewCell(fmt.Sprintf("%d × %d", l.Width, l.Height), l.Digest)
	}
	acc.Add(name, a.ID, a.CreatedAt, stateText(a), a.DisabledReason, command.Or(a.VerifiedAt), quota,
		command.Or(a.ReturnURL), command.Or(a.Colour), command.Or(a.Button), command.Or(a.Accent),
		command.Or(a.AccentDark), logo, command.Or(a.Binding), maxUsers, command.Or(a.NoticeHost))
	return acc
}

func secretTable(signing []manage.Secret, now time.Time) *table.Table {
	secrets := table.New("signing_secrets", "SIGNING SECRET:use", "AGE:", ":created", ":ends", "PUBLIC KEY")
	for i, k := range signing {
		use := table.NewCell("Current secret", "current")
		if i > 0 {
			use = table.NewCell("Previous secret", "previous")
		}
		secrets.Add(use, table.NewCell(ageText(k, now), nil), k.CreatedAt, command.Or(k.EndsAt), k.PublicKey)
	}
	return secrets
}

func linkTable(links []manage.LoginLink) *table.Table {
	open := table.New("login_links", "LOGIN LINK:id", "ROLE", "SINCE", "UNTIL", "BY")
	for _, l := range links {
		open.Add(l.ID, l.Role, l.CreatedAt, l.EndsAt, timeline.Legible(l.By))
	}
	return open
}

// ageText formats the age and the end of a signing secret.
func ageText(k manage.Secret, now time.Time) string {
	text := fmt.Sprintf("created %s, %d days ago", table.Instant(k.CreatedAt),
		int(now.Sub(k.CreatedAt).Hours()/24))
	if k.EndsAt != nil {
		text += ", signs until " + table.Instant(*k.EndsAt)
	}
	return text
}
