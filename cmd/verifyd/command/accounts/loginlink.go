package accounts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/table"
	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/grant"
	"verifyd/sessions/timeline"
)

// linkOf returns the URL of a login link, which the dashboard redeems.
func linkOf(base, token string) string {
	return base + "/dashboard/link?token=" + url.QueryEscape(token)
}

// whyLinks explains why no service creates login links, or takes them back, for another machine.
const whyLinks = "what a login link grants is stored where no edge can write; to let somebody in " +
	"from another machine: verifyd member invite"

type accountLoginLinkCmd struct {
	command.Local `embed:""`

	Name    string `arg:"" help:"The account's name, or its id (required if it was created on the dashboard)."`
	Role    string `default:"owner" help:"Role of the person who opens the link: owner, developer or viewer."`
	BaseURL string `name:"base-url" required:"" help:"{base_url} under which users reach the service, as in its own settings."`
}

// Run prints only the link on standard output.
func (a accountLoginLinkCmd) Run(ctx context.Context, c command.Console) error {
	base, err := baseURL(a.BaseURL)
	if err != nil {
		return err
	}
	role, err := access.ParseRole(a.Role)
	if err != nil {
		return config.Usage(fmt.Errorf("--role: %w", err))
	}
	return a.UseAccounts(ctx, c, whyLinks, func(s *accountstore.Store) error {
		acc, err := command.OwnAccount(ctx, s, a.Name)
		if err != nil {
			return err
		}
		token, link, err := s.LoginLink(ctx, command.Operator(), acc.ID, role)
		if err != nil {
			return command.BadInput(err)
		}
		return handOut(c, linkOf(base, token), fmt.Sprintf(
			"The link works once, until %s. Whoever opens it is %s of %s for 12 hours: send it as you "+
				"would a password. To revoke it, even after it was used: verifyd account "+
				"revoke-login-link %s %s",
			table.Instant(link.ExpiresAt), role, acc.Name, strconv.Quote(acc.Name), link.ID), nil)
	})
}

type accountRevokeLinkCmd struct {
	command.Local `embed:""`

	Name string `arg:"" help:"The account's name, or its id (required if it was created on the dashboard)."`
	Link string `arg:"" help:"The login link's id; verifyd account show lists them."`
}

// Run takes the link back.
func (a accountRevokeLinkCmd) Run(ctx context.Context, c command.Console) error {
	return a.UseAccounts(ctx, c, whyLinks, func(s *accountstore.Store) error {
		acc, err := command.OwnAccount(ctx, s, a.Name)
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

// revokeLink takes a login link back and reports what remains: the link's grant ends, and what was created
// with it belongs to the account.
func revokeLink(ctx context.Context, s *accountstore.Store, a account.Account, link string,
	out io.Writer) error {
	if err := s.RevokeLoginLink(ctx, command.Operator(), a.ID, link); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "%s no longer lets anybody into %s, from the next click on. Invites that "+
		"were created with it are void.\n", timeline.Legible(link), a.Name)
	w, err := s.LinkWork(ctx, a.ID, link)
	if err != nil {
		return fmt.Errorf("the link is revoked, but what was created with it cannot be read; see "+
			"verifyd account audit %s: %w", strconv.Quote(a.Name), err)
	}
	return printLinkWork(out, a.Name, w, time.Now())
}

func printLinkWork(out io.Writer, name string, w accountstore.LinkWork, now time.Time) (err error) {
	say := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(out, format+"\n", args...)
		}
	}
	if len(w.Keys) == 0 {
		say("No API key was created with it.")
	} else {
		say("API keys that were created with it, which keep working until they end: verifyd key revoke ID")
	}
	for _, k := range w.Keys {
		say("  %s  %s  %s  created %s, %s", k.ID, command.KeyHint(k), table.OrDash(timeline.Legible(k.Name)),
			table.Instant(k.CreatedAt), k.State(now))
	}
	for _, m := range w.Members {
		say("Became a member by it, as %s: %s (%s), on the members page of the account's owners", m.Role,
			table.OrDash(timeline.Legible(m.Name)), timeline.Legible(m.Network+":"+m.Subject))
	}
	if w.Revealed {
		say("The signing secret was shown to it; to change it: verifyd account rotate-secret %s",
			strconv.Quote(name))
	}
	return err
}
