// Package accounts has the commands on what belongs to integrators and operators: accounts and their members,
// login links and secrets, API keys, and who is an operator. What changes anything goes into the audit log.
package accounts

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/table"
	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/signing"
	"verifyd/edge/web"
	"verifyd/sessions/timeline"
)

// Account has the commands on accounts.
type Account struct {
	Create       accountCreateCmd      `cmd:"" help:"Make an account, with a signing secret."`
	Quota        accountQuotaCmd       `cmd:"" help:"Set how many sessions an account may start in a UTC month."`
	Rename       accountRenameCmd      `cmd:"" help:"Give an account another name; it keeps its id and all that belongs to it, and nobody else its old name."`
	Verified     accountVerifiedCmd    `cmd:"" help:"Give an account the mark by which end users read that you know who it is, or take it away."`
	Disable      accountDisableCmd     `cmd:"" help:"Take an account out of service: its keys are refused and its users cannot sign in, until it is enabled."`
	Enable       accountEnableCmd      `cmd:"" help:"Put an account back into service."`
	Delete       accountDeleteCmd      `cmd:"" help:"Take an account out of service and delete it in seven days, with its keys, members, invites, login links and signing secrets."`
	Restore      accountRestoreCmd     `cmd:"" help:"Take back that an account is to be deleted."`
	MoveMember   accountMoveMemberCmd  `cmd:"" name:"move-member" help:"Take somebody out of one account and make them a member of another."`
	List         accountListCmd        `cmd:"" help:"List accounts."`
	Show         accountShowCmd        `cmd:"" help:"Show an account's members, login links, keys, signing secrets without their values, and quota."`
	Secret       accountSecretCmd      `cmd:"" help:"Print an account's callback signing secret alone on standard output."`
	RotateSecret accountRotateCmd      `cmd:"" help:"Give an account a new callback signing secret; the old one signs beside it for a while."`
	EndRotation  accountEndRotationCmd `cmd:"" help:"End a rotation now: the old signing secret signs no more."`
	LoginLink    accountLoginLinkCmd   `cmd:"" help:"Print a link that logs in to an account's dashboard once, within 10 minutes."`
	RevokeLink   accountRevokeLinkCmd  `cmd:"" name:"revoke-login-link" help:"Take a login link back: nobody can use it any more, and who did is logged in no more."`
	ReturnURL    accountReturnURLCmd   `cmd:"" name:"return-url" help:"Set where the end user's page offers to go back to after the end."`
	Colour       accountColourCmd      `cmd:"" help:"Set the colour of an account's sign on the end user's page."`
	Binding      accountBindingCmd     `cmd:"" help:"Set what an account's sessions ask to be proven where their start does not say."`
	Notices      accountNoticesCmd     `cmd:"" help:"Set where notices to an account are posted: a receiver that fails, a quota that runs out, a key that expires."`
	Audit        accountAuditCmd       `cmd:"" help:"Tell who changed what in an account, newest first."`
}

type accountCreateCmd struct {
	command.Managed `embed:""`

	Name     string `arg:"" help:"The account's name, as end users will read it."`
	Grant    bool   `help:"Let it have the name though that is reserved, mixes scripts, or is kept for an account that had it."`
	NewStore bool   `help:"Make the store too, where the data directory has none yet."`
}

// Run makes the account.
func (a accountCreateCmd) Run(ctx context.Context, c command.Console) error {
	if err := a.OnStoreOnly("--new-store", a.NewStore); err != nil {
		return err
	}
	reach := a.Manage
	if a.NewStore {
		reach = a.Begin
	}
	return reach(ctx, c, func(m command.Manager) error {
		acc, err := m.Create(ctx, a.Name, a.Grant)
		if err != nil {
			return command.BadInput(err)
		}
		_, err = fmt.Fprintf(c.Err,
			"Account %s is made. Make a key with: verifyd key create --account %[2]s. Let its owner in "+
				"with: verifyd account login-link --account %[2]s --base-url "+
				"URL\n", acc.ID, strconv.Quote(acc.Name))
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
		accounts, err := m.List(ctx)
		if err != nil {
			return err
		}
		t := table.New("accounts", "NAME", "ID", "CREATED", "MEMBERS", "KEYS", "QUOTA", "STATE")
		for _, a := range accounts {
			quota := table.NewCell(quotaText(a.Quota), table.UnlessZero(a.Quota))
			t.Add(a.Name, a.ID, a.CreatedAt, a.People, a.ActiveKeys, quota, stateText(a.Account))
		}
		return l.Print(c.Out, t)
	})
}

// stateText describes whether the account is in service.
func stateText(a account.Account) string {
	if !a.DeleteAskedAt.IsZero() {
		return "deleted on " + table.Instant(a.DeletesAt())
	}
	if !a.DisabledAt.IsZero() {
		return "disabled since " + table.Instant(a.DisabledAt)
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
	command.Store `embed:""`
	table.Listing `embed:""`

	Name string `arg:"" help:"The account's name."`
}

// Run shows what the account's owners see of it, without any secret.
func (a accountShowCmd) Run(ctx context.Context, c command.Console) error {
	return a.UseAccounts(ctx, c, func(s *accountstore.Store) error {
		acc, err := s.AccountByName(ctx, a.Name)
		if err != nil {
			return command.BadInput(err)
		}
		keys, err := s.Keys(ctx)
		if err != nil {
			return err
		}
		keys = slices.DeleteFunc(keys, func(k account.Key) bool { return k.Account != acc.ID })
		used, err := s.LastUsed(ctx)
		if err != nil {
			return err
		}
		links, err := s.LoginLinks(ctx, acc.ID)
		if err != nil {
			return err
		}
		return a.Print(c.Out, accountTables(acc, s.PublicKeys(acc), links, keys, used, time.Now())...)
	})
}

// accountTables are all that there is to be seen of an account.
func accountTables(
	a account.Account, public []signing.PublicKey, links []grant.Grant, keys []account.Key,
	used map[string]time.Time, now time.Time,
) []*table.Table {
	acc := table.NewCard("account", "Account:name", ":id", "Created", "State", "Reason", "Verified", "Quota",
		"Link back:return_url", "Colour", "Button", "Accent", "Dark accent:accent_dark", "Logo", "Binding",
		"Users of an identity:max_users", "Notices to:notices_host")
	name, quota := table.NewCell(a.Name+" ("+a.ID+")", a.Name),
		table.NewCell(monthText(a.Quota), table.UnlessZero(a.Quota))
	most := table.NewCell("any number", nil)
	if a.MaxUsers > 0 {
		most = table.NewCell(strconv.Itoa(a.MaxUsers), a.MaxUsers)
	}
	logo := table.NewCell("", nil)
	if l := a.Branding.Logo; l != nil {
		logo = table.NewCell(fmt.Sprintf("%d × %d", l.Width, l.Height), l.Digest)
	}
	acc.Add(name, a.ID, a.CreatedAt, stateText(a), a.DisabledReason, a.VerifiedAt, quota,
		a.ReturnURL, a.Colour, a.Branding.Button, a.Branding.Accent, a.Branding.AccentDark, logo,
		string(a.Level), most, noticesHost(a))
	secrets := table.New("signing_secrets", "SIGNING SECRET:use", "AGE:", ":created", ":ends", "PUBLIC KEY")
	for i, s := range a.Signing(now) {
		use := table.NewCell("Current secret", "current")
		if i > 0 {
			use = table.NewCell("Secret before it", "previous")
		}
		key := ""
		if i < len(public) { // fewer when an overlap has ended since
			key = public[i].Value
		}
		secrets.Add(use, table.NewCell(secretText(s, now), nil), s.CreatedAt, s.ExpiresAt, key)
	}
	open := table.New("login_links", "LOGIN LINK:id", "ROLE", "SINCE", "UNTIL", "BY")
	for _, l := range links {
		open.Add(l.Link, l.Role, l.Since, l.Until, timeline.Legible(l.By))
	}
	theirs := table.New("keys", "KEY", "NAME", "ID", "STATE", "EXPIRES", "LAST USED", "RATE",
		"CALLBACKS:policy")
	for _, k := range keys {
		theirs.Add(command.KeyHint(k), k.Name, k.ID, k.State(now), k.ExpiresAt, used[k.ID], rateCell(k),
			policyCell(k))
	}
	return []*table.Table{acc, secrets, memberTable(a.Members), inviteTable(a.Invites, now), open, theirs}
}

// noticesHost is where notices go, without the path and query, which may be secrets.
func noticesHost(a account.Account) string {
	if a.NoticeURL == "" {
		return ""
	}
	return timeline.URLHost(a.NoticeURL)
}

// secretText tells a secret's age and end, never the secret.
func secretText(s account.Secret, now time.Time) string {
	text := fmt.Sprintf("made %s, %d days ago", table.Instant(s.CreatedAt),
		int(now.Sub(s.CreatedAt).Hours()/24))
	if !s.ExpiresAt.IsZero() {
		text += ", signs until " + table.Instant(s.ExpiresAt)
	}
	return text
}

type accountSecretCmd struct {
	command.Store `embed:""`

	Name string `arg:"" help:"The account's name."`
}

// Run prints the current signing secret on standard output, so that a script can take it, and what else signs
// beside it.
func (a accountSecretCmd) Run(ctx context.Context, c command.Console) error {
	return a.UseAccounts(ctx, c, func(s *accountstore.Store) error {
		acc, err := command.OwnAccount(ctx, s, a.Name)
		if err != nil {
			return err
		}
		secrets, err := s.RevealSecrets(ctx, command.Operator(), acc.ID)
		if err != nil {
			return err
		}
		for _, old := range secrets[1:] {
			_, _ = fmt.Fprintf(c.Err, "The secret before it signs too, until %s: %s\n",
				table.Instant(old.ExpiresAt), old.Value)
		}
		tellPublicKey(c, s, acc)
		_, err = fmt.Fprintln(c.Out, secrets[0].Value)
		return err
	})
}

// tellPublicKey says which key checks the signature beside that of the current secret.
func tellPublicKey(c command.Console, s *accountstore.Store, a account.Account) {
	if keys := s.PublicKeys(a); len(keys) > 0 {
		_, _ = fmt.Fprintf(c.Err, "Its public key: %s\n", keys[0].Value)
	}
}

type accountRotateCmd struct {
	command.Store `embed:""`

	Account string `required:"" placeholder:"NAME" help:"The account's name."`
	Overlap string `default:"24h" help:"How long callbacks carry a signature of the old secret too, up to 30d; 0 for none."`
}

// Run rotates the secret and prints the new one alone on standard output.
func (a accountRotateCmd) Run(ctx context.Context, c command.Console) error {
	overlap, err := parseSpan(a.Overlap)
	if err != nil {
		return config.Usage(fmt.Errorf("--overlap: %q is not a time; for example 24h, 7d, or 0", a.Overlap))
	}
	return a.UseAccounts(ctx, c, func(s *accountstore.Store) error {
		acc, err := command.OwnAccount(ctx, s, a.Account)
		if err != nil {
			return err
		}
		if acc, err = s.RotateSecret(ctx, command.Operator(), acc.ID, overlap); err != nil {
			return command.BadInput(err)
		}
		if len(acc.Secrets) > 1 {
			_, _ = fmt.Fprintf(c.Err,
				"Callbacks of %s carry both signatures until %s. Put the new secret into the receiver "+
					"before then.\n", acc.Name, table.Instant(acc.Secrets[1].ExpiresAt))
		} else {
			_, _ = fmt.Fprintf(c.Err, "Callbacks of %s are signed with the new secret alone, from now on.\n",
				acc.Name)
		}
		tellPublicKey(c, s, acc)
		_, err = fmt.Fprintln(c.Out, acc.Secrets[0].Value)
		return err
	})
}

type accountEndRotationCmd struct {
	command.Store `embed:""`

	Account string `required:"" placeholder:"NAME" help:"The account's name."`
}

// Run ends the overlap.
func (a accountEndRotationCmd) Run(ctx context.Context, c command.Console) error {
	return a.UseAccounts(ctx, c, func(s *accountstore.Store) error {
		acc, err := command.OwnAccount(ctx, s, a.Account)
		if err != nil {
			return err
		}
		if _, err := s.EndRotation(ctx, command.Operator(), acc.ID); err != nil {
			return command.BadInput(err)
		}
		_, err = fmt.Fprintf(c.Err, "The old signing secret of %s signs no more.\n", acc.Name)
		return err
	})
}

// linkPath is where the dashboard redeems login links.
const linkPath = "/dashboard/link"

type accountLoginLinkCmd struct {
	command.Store `embed:""`

	Account string `required:"" placeholder:"NAME" help:"The account's name."`
	Role    string `default:"owner" help:"What whoever follows the link may do: owner, developer or viewer."`
	BaseURL string `name:"base-url" required:"" help:"{base_url} under which users reach the service, as the service has it."`
}

// Run prints the link alone on standard output.
func (a accountLoginLinkCmd) Run(ctx context.Context, c command.Console) error {
	base, _, err := web.ParseBaseURL(a.BaseURL)
	if err != nil {
		var f config.Faults
		f.Add("base-url", fmt.Sprintf("%q is %v", a.BaseURL, err), "for example https://verify.example.com")
		return config.Usage(f.OwnErr())
	}
	role, err := access.ParseRole(a.Role)
	if err != nil {
		return config.Usage(fmt.Errorf("--role: %w", err))
	}
	return a.UseAccounts(ctx, c, func(s *accountstore.Store) error {
		acc, err := command.OwnAccount(ctx, s, a.Account)
		if err != nil {
			return err
		}
		token, link, err := s.LoginLink(ctx, command.Operator(), acc.ID, role)
		if err != nil {
			return command.BadInput(err)
		}
		_, _ = fmt.Fprintf(c.Err,
			"The link works once, until %s. Whoever has it is %s of %s for 12 hours: send it as you "+
				"would a password. To take it back, then too: verifyd account revoke-login-link "+
				"--account %s %s\n",
			table.Instant(link.ExpiresAt), role, acc.Name, strconv.Quote(acc.Name), link.ID)
		_, err = fmt.Fprintln(c.Out, base+linkPath+"?token="+url.QueryEscape(token))
		return err
	})
}

type accountRevokeLinkCmd struct {
	command.Store `embed:""`

	Account string `required:"" placeholder:"NAME" help:"The account's name."`
	Link    string `arg:"" help:"The login link's id; verifyd account show lists them."`
}

// Run takes the link back.
func (a accountRevokeLinkCmd) Run(ctx context.Context, c command.Console) error {
	return a.UseAccounts(ctx, c, func(s *accountstore.Store) error {
		acc, err := command.OwnAccount(ctx, s, a.Account)
		if err != nil {
			return err
		}
		err = revokeLink(ctx, s, acc, a.Link, c.Err)
		if errors.Is(err, grant.ErrNoLink) {
			return config.Usage(fmt.Errorf("LINK: %w; list them with: verifyd account show %s", err,
				strconv.Quote(acc.Name)))
		}
		return err
	})
}
