package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	osuser "os/user"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"verifyd/edge"
	"verifyd/edge/account"
	"verifyd/sessions/told"
)

// operator is who runs a command, as the audit log names them: by the name that the machine knows.
func operator() account.Actor {
	u, err := osuser.Current()
	if err != nil {
		return account.Operator("")
	}
	return account.Operator(u.Username)
}

type accountCmd struct {
	Create       accountCreateCmd      `cmd:"" help:"Make an account, with a signing secret."`
	List         accountListCmd        `cmd:"" help:"List accounts."`
	Show         accountShowCmd        `cmd:"" help:"Show an account's members, login links, keys, signing secrets without their values, and quota."`
	Secret       accountSecretCmd      `cmd:"" help:"Print an account's callback signing secret alone on standard output."`
	RotateSecret accountRotateCmd      `cmd:"" help:"Give an account a new callback signing secret; the old one signs beside it for a while."`
	EndRotation  accountEndRotationCmd `cmd:"" help:"End a rotation now: the old signing secret signs no more."`
	LoginLink    accountLoginLinkCmd   `cmd:"" help:"Print a link that logs in to an account's dashboard once, within 10 minutes."`
	RevokeLink   accountRevokeLinkCmd  `cmd:"" name:"revoke-login-link" help:"Take a login link back: nobody can use it any more, and who did is logged in no more."`
	ReturnURL    accountReturnURLCmd   `cmd:"" name:"return-url" help:"Set where the end user's page offers to go back to after the end."`
	Colour       accountColourCmd      `cmd:"" help:"Set the colour of an account's sign on the end user's page."`
	Audit        accountAuditCmd       `cmd:"" help:"Tell who changed what in an account, newest first."`
}

type accountCreateCmd struct {
	storeCmd `embed:""`
	Name     string `arg:"" help:"The account's name, as end users will read it; it cannot be changed."`
}

// Run makes the account.
func (a accountCreateCmd) Run(ctx context.Context, c console) error {
	return a.with(ctx, c, func(s *account.Store) error {
		acc, err := s.CreateAccount(ctx, operator(), a.Name)
		if err != nil {
			return badInput(err)
		}
		_, err = fmt.Fprintf(c.err, "Account %s is made. Let its owner in with: verifyd account login-link --account %s --base-url URL\n", acc.ID, strconv.Quote(acc.Name))
		return err
	})
}

type accountListCmd struct {
	storeCmd `embed:""`
}

// Run lists the accounts by name.
func (a accountListCmd) Run(ctx context.Context, c console) error {
	return a.existing(ctx, c, func(s *account.Store) error {
		accounts, err := s.Accounts(ctx)
		if err != nil {
			return err
		}
		keys, err := s.Keys(ctx)
		if err != nil {
			return err
		}
		now, active := time.Now(), map[string]int{}
		for _, k := range keys {
			if st := k.State(now); st == account.KeyActive || st == account.KeyRolled {
				active[k.Account]++
			}
		}
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(w, "NAME\tID\tCREATED\tMEMBERS\tKEYS\tQUOTA")
		for _, a := range accounts {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\n", a.Name, a.ID, instant(a.CreatedAt), len(a.Members), active[a.ID], quotaText(a.Quota))
		}
		return w.Flush()
	})
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
	storeCmd `embed:""`
	Name     string `arg:"" help:"The account's name."`
}

// Run shows what the account's owners see of it, without any secret.
func (a accountShowCmd) Run(ctx context.Context, c console) error {
	return a.existing(ctx, c, func(s *account.Store) error {
		acc, err := s.AccountByName(ctx, a.Name)
		if err != nil {
			return badInput(err)
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
		return showAccount(c.out, acc, links, keys, used, time.Now())
	})
}

func showAccount(out io.Writer, a account.Account, links []account.Grant, keys []account.Key, used map[string]time.Time, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "Account\t%s (%s)\nCreated\t%s\nQuota\t%s\n", a.Name, a.ID, instant(a.CreatedAt), monthText(a.Quota))
	for i, s := range a.Signing(now) {
		_, _ = fmt.Fprintf(w, "%s\t%s\n", []string{"Signing secret", "Secret before it"}[min(i, 1)], secretText(s, now))
	}
	_, _ = fmt.Fprintf(w, "Link back\t%s\nColour\t%s\n", orDash(a.ReturnURL), orDash(a.Colour))
	_, _ = fmt.Fprintf(w, "\nMEMBER\tROLE\tIDENTITY\tE-MAIL\tSINCE\n")
	for _, m := range a.Members {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", orDash(m.Name), m.Role, told.Legible(m.Network+":"+m.Subject), orDash(m.Email), instant(m.Since))
	}
	for _, i := range a.Invites {
		if now.Before(i.ExpiresAt) {
			_, _ = fmt.Fprintf(w, "%s\t%s\tinvited by %s, until %s\t\t\n", orDash(i.For), i.Role, told.Legible(i.By), instant(i.ExpiresAt))
		}
	}
	_, _ = fmt.Fprintf(w, "\nLOGIN LINK\tROLE\tSINCE\tUNTIL\tBY\n")
	for _, l := range links {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", l.Link, l.Role, instant(l.Since), instant(l.Until), told.Legible(l.By))
	}
	_, _ = fmt.Fprintf(w, "\nKEY\tNAME\tID\tSTATE\tEXPIRES\tLAST USED\tCALLBACKS\n")
	for _, k := range keys {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", shortKey(k), orDash(k.Name), k.ID, k.State(now), instant(k.ExpiresAt), instant(used[k.ID]), policyText(k.Policy))
	}
	return w.Flush()
}

// secretText tells a secret's age and end, never the secret.
func secretText(s account.Secret, now time.Time) string {
	text := fmt.Sprintf("made %s, %d days ago", instant(s.CreatedAt), int(now.Sub(s.CreatedAt).Hours()/24))
	if !s.ExpiresAt.IsZero() {
		text += ", signs until " + instant(s.ExpiresAt)
	}
	return text
}

type accountSecretCmd struct {
	storeCmd `embed:""`
	Name     string `arg:"" help:"The account's name."`
}

// Run prints the current signing secret on standard output, so that a script can take it, and what else signs beside it.
func (a accountSecretCmd) Run(ctx context.Context, c console) error {
	return a.existing(ctx, c, func(s *account.Store) error {
		acc, err := s.AccountByName(ctx, a.Name)
		if err != nil {
			return badInput(err)
		}
		secrets, err := s.RevealSecrets(ctx, operator(), acc.ID)
		if err != nil {
			return err
		}
		for _, old := range secrets[1:] {
			_, _ = fmt.Fprintf(c.err, "The secret before it signs too, until %s: %s\n", instant(old.ExpiresAt), old.Value)
		}
		_, err = fmt.Fprintln(c.out, secrets[0].Value)
		return err
	})
}

type accountRotateCmd struct {
	storeCmd `embed:""`
	Account  string `required:"" placeholder:"NAME" help:"The account's name."`
	Overlap  string `default:"24h" help:"How long callbacks carry a signature of the old secret too, up to 30d; 0 for none."`
}

// Run rotates the secret and prints the new one alone on standard output.
func (a accountRotateCmd) Run(ctx context.Context, c console) error {
	overlap, err := parseSpan(a.Overlap)
	if err != nil {
		return usageError{fmt.Errorf("--overlap: %q is not a time; for example 24h, 7d, or 0", a.Overlap)}
	}
	return a.existing(ctx, c, func(s *account.Store) error {
		acc, err := s.AccountByName(ctx, a.Account)
		if err != nil {
			return badInput(err)
		}
		if acc, err = s.RotateSecret(ctx, operator(), acc.ID, overlap); err != nil {
			return badInput(err)
		}
		if len(acc.Secrets) > 1 {
			_, _ = fmt.Fprintf(c.err, "Callbacks of %s carry both signatures until %s. Put the new secret into the receiver before then.\n", acc.Name, instant(acc.Secrets[1].ExpiresAt))
		} else {
			_, _ = fmt.Fprintf(c.err, "Callbacks of %s are signed with the new secret alone, from now on.\n", acc.Name)
		}
		_, err = fmt.Fprintln(c.out, acc.Secrets[0].Value)
		return err
	})
}

type accountEndRotationCmd struct {
	storeCmd `embed:""`
	Account  string `required:"" placeholder:"NAME" help:"The account's name."`
}

// Run ends the overlap.
func (a accountEndRotationCmd) Run(ctx context.Context, c console) error {
	return a.existing(ctx, c, func(s *account.Store) error {
		acc, err := s.AccountByName(ctx, a.Account)
		if err != nil {
			return badInput(err)
		}
		if _, err := s.EndRotation(ctx, operator(), acc.ID); err != nil {
			return badInput(err)
		}
		_, err = fmt.Fprintf(c.err, "The old signing secret of %s signs no more.\n", acc.Name)
		return err
	})
}

// linkPath is where the dashboard redeems login links.
const linkPath = "/dashboard/link"

type accountLoginLinkCmd struct {
	storeCmd `embed:""`
	Account  string `required:"" placeholder:"NAME" help:"The account's name."`
	Role     string `default:"owner" help:"What whoever follows the link may do: owner, developer or viewer."`
	BaseURL  string `name:"base-url" required:"" help:"{base_url} under which users reach the service, as the service has it."`
}

// Run prints the link alone on standard output.
func (a accountLoginLinkCmd) Run(ctx context.Context, c console) error {
	base, _, err := edge.ParseBaseURL(a.BaseURL)
	if err != nil {
		var f faults
		f.add("base-url", fmt.Sprintf("%q is %v", a.BaseURL, err), "for example https://verify.example.com")
		return usageError{f.err()}
	}
	role, err := account.ParseRole(a.Role)
	if err != nil {
		return usageError{fmt.Errorf("--role: %w", err)}
	}
	return a.existing(ctx, c, func(s *account.Store) error {
		acc, err := s.AccountByName(ctx, a.Account)
		if err != nil {
			return badInput(err)
		}
		token, link, err := s.LoginLink(ctx, operator(), acc.ID, role)
		if err != nil {
			return badInput(err)
		}
		_, _ = fmt.Fprintf(c.err, "The link works once, until %s. Whoever has it is %s of %s for 12 hours: send it as you would a password. To take it back, then too: verifyd account revoke-login-link --account %s %s\n",
			instant(link.ExpiresAt), role, acc.Name, strconv.Quote(acc.Name), link.ID)
		_, err = fmt.Fprintln(c.out, base+linkPath+"?token="+url.QueryEscape(token))
		return err
	})
}

type accountRevokeLinkCmd struct {
	storeCmd `embed:""`
	Account  string `required:"" placeholder:"NAME" help:"The account's name."`
	Link     string `arg:"" help:"The login link's id; verifyd account show lists them."`
}

// Run takes the link back.
func (a accountRevokeLinkCmd) Run(ctx context.Context, c console) error {
	return a.existing(ctx, c, func(s *account.Store) error {
		acc, err := s.AccountByName(ctx, a.Account)
		if err != nil {
			return badInput(err)
		}
		err = s.RevokeLoginLink(ctx, operator(), acc.ID, a.Link)
		if errors.Is(err, account.ErrNoLink) {
			return usageError{fmt.Errorf("LINK: %w; list them with: verifyd account show %s", err, strconv.Quote(acc.Name))}
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.err, "%s lets nobody into %s any more, from the next click on.\n", told.Legible(a.Link), acc.Name)
		return err
	})
}

type accountAuditCmd struct {
	storeCmd `embed:""`
	Name     string `arg:"" help:"The account's name."`
	Limit    int    `default:"50" help:"How many records, newest first; 0 for all."`
}

// Run lists the records.
func (a accountAuditCmd) Run(ctx context.Context, c console) error {
	return a.existing(ctx, c, func(s *account.Store) error {
		acc, err := s.AccountByName(ctx, a.Name)
		if err != nil {
			return badInput(err)
		}
		return listAudit(ctx, c, s, acc.ID, a.Limit)
	})
}

// listAudit writes out the newest records of a log; all of them where the limit is 0.
func listAudit(ctx context.Context, c console, s *account.Store, log string, limit int) error {
	if limit < 0 {
		return usageError{fmt.Errorf("--limit: %d is below zero; give a number of records, or 0 for all", limit)}
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "AT\tWHO\tWHAT\tON\tDETAIL")
	cursor, left := "", limit
	for {
		page, err := s.Audit(ctx, log, cursor, left)
		if err != nil {
			return err
		}
		for _, r := range page.Records {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", instant(r.At), told.Legible(whoText(r.Who)), r.What, orDash(told.Legible(r.On)), detailText(r.Detail))
		}
		left -= len(page.Records)
		if cursor = page.Next; cursor == "" || limit > 0 && left <= 0 {
			return w.Flush()
		}
	}
}

// whoText names who did something, with the identity of a member beside the name, which may be another's, too.
func whoText(who account.Actor) string {
	if id := who.Identity(); id != "" && id != who.String() {
		return who.String() + " (" + id + ")"
	}
	return who.String()
}

func detailText(detail map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(detail)) {
		parts = append(parts, name+": "+told.Legible(detail[name]))
	}
	return orDash(strings.Join(parts, ", "))
}
