package accounts

import (
	"context"
	"fmt"
	"strings"
	"time"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/table"
	"verifyd/edge/account"
	"verifyd/edge/account/accountstore"
)

type accountSecretCmd struct {
	command.Local `embed:""`

	Name string `arg:"" help:"The account's name, or its id (required if it was created on the dashboard)."`
}

// Run prints the current signing secret on standard output, so that a script can read it, and what else
// signs.
func (a accountSecretCmd) Run(ctx context.Context, c command.Console) error {
	const why = "over HTTP a signing secret is only in the answer that created it; rotate it with verifyd " +
		"account rotate-secret"
	return a.UseAccounts(ctx, c, why, func(s *accountstore.Store) error {
		acc, err := command.OwnAccount(ctx, s, a.Name)
		if err != nil {
			return err
		}
		secrets, err := s.RevealSecrets(ctx, command.Operator(), acc.ID)
		if err != nil {
			return err
		}
		var text strings.Builder
		for _, old := range secrets[1:] {
			_, _ = fmt.Fprintf(&text, "The previous secret still signs, until %s: %s\n",
				table.Instant(old.ExpiresAt), old.Value)
		}
		if keys := s.PublicKeys(acc); len(keys) > 0 {
			_, _ = fmt.Fprintf(&text, "Its public key: %s", keys[0].Value)
		}
		return handOut(c, secrets[0].Value, text.String(), nil)
	})
}

type accountRotateCmd struct {
	named `embed:""`

	Overlap string `default:"24h" help:"How long callbacks also carry a signature by the old secret, up to 30d; 0 for none."`
}

// Run rotates the secret and prints only the new one on standard output.
func (a accountRotateCmd) Run(ctx context.Context, c command.Console) error {
	overlap, err := parseSpan(a.Overlap)
	if err != nil || overlap%time.Second != 0 {
		return config.Usage(fmt.Errorf(
			"--overlap: %q is not a time in whole seconds; for example 24h, 7d, or 0", a.Overlap))
	}
	return a.Manage(ctx, c, func(m command.Manager) error {
		acc, err := m.Own(ctx, a.Name)
		if err != nil {
			return err
		}
		made, err := m.RotateSecret(ctx, acc.ID, overlap)
		err = command.Confirmed(made.Stored, err)
		text := fmt.Sprintf("Callbacks of %s are signed with only the new secret from now on.", acc.Name)
		switch {
		case err != nil:
			text = fmt.Sprintf("The store did not confirm the change. Keep both secrets until "+
				"verifyd account show %s shows which public key signs.", acc.ID)
		case made.PreviousEndsAt != nil:
			text = fmt.Sprintf("Callbacks of %s carry both signatures until %s. Put the new secret into the "+
				"receiver before then.", acc.Name, table.Instant(*made.PreviousEndsAt))
		}
		return handOut(c, made.Value, text+"\nIts public key: "+made.PublicKey, err)
	})
}

type accountEndRotationCmd struct {
	named `embed:""`
}

// Run ends the overlap.
func (a accountEndRotationCmd) Run(ctx context.Context, c command.Console) error {
	return a.change(ctx, c, func(m command.Manager, acc account.Account) (string, error) {
		return fmt.Sprintf("The old signing secret of %s no longer signs.", acc.Name),
			errorOf(m.EndRotation(ctx, acc.ID))
	})
}
