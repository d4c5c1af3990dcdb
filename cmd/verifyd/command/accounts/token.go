package accounts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/table"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/grant"
	"verifyd/sessions/timeline"
)

// OperatorToken has the commands on operator tokens, with which programs use the management interface.
type OperatorToken struct {
	Create tokenCreateCmd `cmd:"" help:"Create an operator token and print it, this once, as the only text on standard output."`
	List   tokenListCmd   `cmd:"" help:"List operator tokens."`
	Revoke tokenRevokeCmd `cmd:"" help:"Revoke an operator token permanently, and with it the invites that were made with it."`
}

type tokenCreateCmd struct {
	command.Local `embed:""`

	Name    string   `required:"" placeholder:"TEXT" help:"What it is for, for example deploy; the audit log shows it."`
	Scope   []string `required:"" sep:"," placeholder:"SCOPE" help:"What it may do: ${scopes}; write includes read."`
	Expires string   `default:"90d" placeholder:"WHEN" help:"When it ends, in the forms that key create takes; at most 366d from now."`
}

// Run creates the token.
func (t tokenCreateCmd) Run(ctx context.Context, c command.Console) error {
	until, err := parseEnd(t.Expires, time.Now())
	if err != nil {
		return config.Usage(fmt.Errorf("--expires: %w", err))
	}
	scopes := make([]grant.Scope, len(t.Scope))
	for i, s := range t.Scope {
		scopes[i] = grant.Scope(strings.TrimSpace(s))
	}
	return t.UseAccounts(ctx, c, whyOperators, func(s *accountstore.Store) error {
		token, g, err := s.CreateToken(ctx, command.Operator(), t.Name, scopes, until)
		if err != nil {
			return command.BadInput(err)
		}
		return handOut(c, token, fmt.Sprintf("Operator token %s (%s) works until %s. It is shown this once; "+
			"keep it like a password. To end it: verifyd operator token revoke %s", g.Token, scopesText(g),
			table.Instant(g.Until), g.Token), nil)
	})
}

// ScopeList names all scopes, for the help of operator token create.
func ScopeList() string { return joined(grant.Scopes(), ", ") }

func scopesText(g grant.Grant) string { return joined(g.Scopes, " ") }

func joined(scopes []grant.Scope, separator string) string {
	texts := make([]string, len(scopes))
	for i, s := range scopes {
		texts[i] = string(s)
	}
	return strings.Join(texts, separator)
}

type tokenListCmd struct {
	command.Local `embed:""`
	table.Listing `embed:""`
}

// Run lists the tokens, oldest first.
func (t tokenListCmd) Run(ctx context.Context, c command.Console) error {
	return t.UseAccounts(ctx, c, whyOperators, func(s *accountstore.Store) error {
		tokens, err := s.Tokens(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		list := table.New("tokens", "ID", "NAME", "SCOPES", "STATE", "SINCE", "UNTIL", "BY")
		for _, g := range tokens {
			list.Add(g.Token, timeline.Legible(g.Name), scopesText(g), g.State(now), g.Since, g.Until,
				timeline.Legible(g.By))
		}
		return t.Print(c.Out, list)
	})
}

type tokenRevokeCmd struct {
	command.Local `embed:""`

	ID string `arg:"" help:"The token's id (verifyd operator token list shows it)."`
}

// Run ends the token.
func (t tokenRevokeCmd) Run(ctx context.Context, c command.Console) error {
	return t.UseAccounts(ctx, c, whyOperators, func(s *accountstore.Store) error {
		err := s.RevokeToken(ctx, command.Operator(), t.ID)
		if errors.Is(err, grant.ErrNoToken) {
			return config.Usage(fmt.Errorf("ID: %w", err))
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.Err, "Operator token %s is refused from the next request on.\n",
			timeline.Legible(t.ID))
		return err
	})
}
