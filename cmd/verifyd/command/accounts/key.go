package accounts

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/table"
	"verifyd/edge/account"
	"verifyd/edge/client/manage"
	"verifyd/edge/limit"
)

// Key has the commands on API keys.
type Key struct {
	Create keyCreateCmd `cmd:"" help:"Create an API key and print it, this once, as the only text on standard output."`
	Roll   keyRollCmd   `cmd:"" help:"Replace an API key and print the new one, as the only text on standard output; the old one keeps working for a grace period."`
	List   keyListCmd   `cmd:"" help:"List API keys."`
	Revoke keyRevokeCmd `cmd:"" help:"Revoke an API key permanently."`
}

type keyCreateCmd struct {
	command.Managed `embed:""`

	Account   string `required:"" placeholder:"NAME" help:"Account the key belongs to: its name, or its id (required if it was created on the dashboard)."`
	Name      string `help:"What its owners call it, for example production."`
	Expires   string `placeholder:"WHEN" help:"When it ends: a day (2027-01-31, at the end of it in UTC), an instant (2027-01-31T12:00:00Z), or a time from now (90d, 12h); default: never."`
	Test      bool   `help:"Create a test key (vfytest_…)."`
	RateLimit string `placeholder:"R" help:"Sessions this key may start, for example 5/s; default: the service's."`
	Policy    string `placeholder:"P" help:"Policy of its callbacks: once or at-least-once; default: the service's."`
}

// Run creates the key.
func (k keyCreateCmd) Run(ctx context.Context, c command.Console) error {
	o, err := k.options(time.Now())
	if err != nil {
		return config.Usage(err)
	}
	return k.Manage(ctx, c, func(m command.Manager) error {
		a, err := m.Own(ctx, k.Account)
		if errors.Is(err, account.ErrNoAccount) {
			return config.Usage(fmt.Errorf("%w; create it with: verifyd account create %s", err,
				strconv.Quote(k.Account)))
		}
		if err != nil {
			return err
		}
		key, err := m.CreateKey(ctx, a.ID, o)
		unsure := command.Confirmed(key.Stored, err)
		text := fmt.Sprintf("API key %s of %s. It is shown this once; keep it like a password.", key.ID,
			a.Name)
		if k.Test {
			text += "\nIt is a test key: services accept it only if VERIFYD_TEST_KEYS is true, and its " +
				"users sign in at the built-in network."
		}
		if key.ExpiresAt != nil {
			text += fmt.Sprintf("\nIt works until %s.", table.Instant(*key.ExpiresAt))
		}
		if unsure != nil {
			text += "\nIt may not work: the store did not confirm the key. See: verifyd key list"
		}
		return handOut(c, key.Secret, text, unsure)
	})
}

func (k keyCreateCmd) options(now time.Time) (o manage.KeyOptions, err error) {
	o = manage.KeyOptions{Name: k.Name, RateLimit: k.RateLimit}
	if k.Test {
		o.Mode = "test"
	}
	if k.RateLimit != "" {
		if _, err = limit.ParseRate(k.RateLimit); err != nil {
			return o, fmt.Errorf("--rate-limit: %w", err)
		}
	}
	if k.Policy != "" {
		var f config.Faults
		o.Policy = string(config.Policy(&f, "policy", k.Policy))
		if err := f.OwnErr(); err != nil {
			return o, err
		}
	}
	if k.Expires != "" {
		end, err := parseEnd(k.Expires, now)
		if err != nil {
			return o, fmt.Errorf("--expires: %w", err)
		}
		o.ExpiresAt = new(end.UTC())
	}
	return o, nil
}

// parseEnd reads when something ends: a day, at the end of it in UTC; an instant; or a time from now on,
// where d is a day of 24 hours.
func parseEnd(text string, now time.Time) (time.Time, error) {
	var end time.Time
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		end = day.AddDate(0, 0, 1)
	} else if at, err := time.Parse(time.RFC3339, text); err == nil {
		end = at
	} else if d, err := parseSpan(text); err == nil {
		end = now.Add(d)
	} else {
		return end, fmt.Errorf("%q is not a time; use a day (2027-01-31), an instant "+
			"(2027-01-31T12:00:00Z), or a time from now (90d, 12h)", text)
	}
	if !end.After(now) {
		return end, fmt.Errorf("%q has passed; give a time in the future", text)
	}
	return end, nil
}

// maxDays is the maximum number of days in a time.Duration.
const maxDays = 100 * 365

// parseSpan reads a duration, in days too.
func parseSpan(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil || n > maxDays {
			return 0, fmt.Errorf("%q is not a number of days", text)
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	return time.ParseDuration(text)
}

type keyRollCmd struct {
	command.Managed `embed:""`

	ID    string `arg:"" name:"key-id" help:"The key's id (verifyd key list shows it)."`
	Grace string `default:"24h" help:"How long the old key keeps working, up to 30d; 0 ends it at once."`
}

// Run rolls the key.
func (k keyRollCmd) Run(ctx context.Context, c command.Console) error {
	grace, err := parseSpan(k.Grace)
	if err != nil {
		return config.Usage(fmt.Errorf("--grace: %q is not a time; for example 24h, 7d, or 0", k.Grace))
	}
	return k.Manage(ctx, c, func(m command.Manager) error {
		key, unsure := m.Roll(ctx, k.ID, grace)
		old := command.Or(key.Replaces)
		text := fmt.Sprintf("API key %s replaces %s. It is shown this once; keep it like a "+
			"password.", key.ID, old)
		switch {
		case unsure != nil:
			text = fmt.Sprintf("The store did not confirm the change. Either this is API key %s, "+
				"and it replaces %s, or %s works as before: keep both until verifyd key list "+
				"shows which.",
				key.ID, old, old)
		case grace == 0:
			text += "\nThe old key is revoked."
		default:
			text += fmt.Sprintf("\nThe old key works for at most %s more.", grace)
		}
		return handOut(c, key.Secret, text, unsure)
	})
}

type keyListCmd struct {
	command.Managed `embed:""`
	table.Listing   `embed:""`
}

// Run lists the keys, oldest first.
func (l keyListCmd) Run(ctx context.Context, c command.Console) error {
	return l.Manage(ctx, c, func(m command.Manager) error {
		unread, err := m.Prepare(ctx)
		if err != nil {
			return err
		}
		t := table.New("keys", "ID", "ACCOUNT", "NAME", "KEY", "STATE", "CREATED", "EXPIRES", "REVOKED",
			"LAST USED", "REPLACED BY", "RATE", "CALLBACKS:policy")
		for k, err := range m.Keys(ctx, "") {
			if err != nil {
				return command.BadInput(err)
			}
			t.Add(k.ID, k.AccountName, k.Name, k.Hint, k.State, k.CreatedAt, command.Or(k.ExpiresAt),
				command.Or(k.RevokedAt), command.Or(k.LastUsedAt), command.Or(k.ReplacedBy),
				defaultCell(k.RateLimit), defaultCell(k.Policy))
		}
		return errors.Join(l.Print(c.Out, t), unread)
	})
}

type keyRevokeCmd struct {
	command.Managed `embed:""`

	ID string `arg:"" help:"The key's id (verifyd key list shows it)."`
}

// Run ends the key.
func (k keyRevokeCmd) Run(ctx context.Context, c command.Console) error {
	return k.Manage(ctx, c, func(m command.Manager) error {
		id, at, err := m.Revoke(ctx, k.ID)
		if err != nil {
			return command.BadInput(err)
		}
		_, err = fmt.Fprintf(c.Err, "API key %s was revoked on %s.\n", id, table.Instant(at))
		return err
	})
}

// defaultCell is null for programs if the service's default applies.
func defaultCell(of *string) table.Cell {
	if of == nil {
		return table.NewCell("the service's default", nil)
	}
	return table.NewCell(*of, *of)
}
