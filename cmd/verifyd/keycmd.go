package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/limit"
	"verifyd/sessions"
)

type keyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Make an API key and print it, this once, alone on standard output."`
	Roll   keyRollCmd   `cmd:"" help:"Put a new API key in the place of another, which goes on working for a while, and print it alone on standard output."`
	List   keyListCmd   `cmd:"" help:"List API keys."`
	Revoke keyRevokeCmd `cmd:"" help:"End an API key for good."`
}

type keyCreateCmd struct {
	storeCmd  `embed:""`
	Account   string `required:"" placeholder:"NAME" help:"Account the key belongs to; made, with a signing secret, when it is new."`
	Name      string `help:"What its owners call it, for example production."`
	Expires   string `placeholder:"WHEN" help:"When it ends: a day (2027-01-31, at the end of it in UTC), an instant (2027-01-31T12:00:00Z), or from now on (90d, 12h); default: never."`
	Test      bool   `help:"Make a test key (vfytest_…)."`
	RateLimit string `placeholder:"R" help:"Sessions this key may start, for example 5/s; default: the service's."`
	Policy    string `placeholder:"P" help:"Of its callbacks: once or at-least-once; default: the service's."`
	Quota     int64  `placeholder:"N" help:"Sessions the account may start in a UTC month; default: the service's."`
}

// Run makes the key.
func (k keyCreateCmd) Run(ctx context.Context, c console) error {
	o, err := k.options(time.Now())
	if err != nil {
		return usageError{err}
	}
	return k.with(ctx, c, func(s *account.Store) error {
		a, err := s.EnsureAccount(ctx, operator(), k.Account)
		if err != nil {
			return badInput(err)
		}
		if k.Quota > 0 {
			if err := s.SetQuota(ctx, operator(), a.ID, k.Quota); err != nil {
				return err
			}
		}
		secret, key, err := s.CreateKey(ctx, operator(), a.ID, o)
		if err != nil {
			return badInput(err)
		}
		_, _ = fmt.Fprintf(c.err, "API key %s of %s. It is shown this once; keep it like a password.\n", key.ID, a.Name)
		if key.Test {
			_, _ = fmt.Fprintln(c.err, "It is a test key: services take it where VERIFYD_TEST_KEYS is true, and sign in by the built-in network.")
		}
		if !key.ExpiresAt.IsZero() {
			_, _ = fmt.Fprintf(c.err, "It works until %s.\n", instant(key.ExpiresAt))
		}
		_, err = fmt.Fprintln(c.out, secret)
		return err
	})
}

func (k keyCreateCmd) options(now time.Time) (o account.KeyOptions, err error) {
	o = account.KeyOptions{Name: k.Name, Test: k.Test}
	if k.RateLimit != "" {
		if o.RateLimit, err = limit.ParseRate(k.RateLimit); err != nil {
			return o, fmt.Errorf("--rate-limit: %w", err)
		}
	}
	if k.Policy != "" {
		var f faults
		o.Policy = policy(&f, "policy", k.Policy)
		if err := f.err(); err != nil {
			return o, err
		}
	}
	if k.Quota < 0 {
		return o, fmt.Errorf("--quota: %d is below zero; give a number of sessions, for example 5000", k.Quota)
	}
	if k.Expires != "" {
		if o.ExpiresAt, err = parseEnd(k.Expires, now); err != nil {
			return o, fmt.Errorf("--expires: %w", err)
		}
	}
	return o, nil
}

// parseEnd reads when something ends: a day, at the end of it in UTC; an instant; or a time from now on, where d is a day of 24 hours.
func parseEnd(text string, now time.Time) (time.Time, error) {
	var end time.Time
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		end = day.AddDate(0, 0, 1)
	} else if at, err := time.Parse(time.RFC3339, text); err == nil {
		end = at
	} else if d, err := parseSpan(text); err == nil {
		end = now.Add(d)
	} else {
		return end, fmt.Errorf("%q is not a time; use a day (2027-01-31), an instant (2027-01-31T12:00:00Z), or a time from now on (90d, 12h)", text)
	}
	if !end.After(now) {
		return end, fmt.Errorf("%q is over; give a time to come", text)
	}
	return end, nil
}

// mostDays keeps a number of days within a time.Duration.
const mostDays = 100 * 365

// parseSpan reads a duration, in days too.
func parseSpan(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil || n > mostDays {
			return 0, fmt.Errorf("%q is not a number of days", text)
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	return time.ParseDuration(text)
}

type keyRollCmd struct {
	storeCmd `embed:""`
	ID       string `arg:"" name:"key-id" help:"The key's id (verifyd key list shows it)."`
	Grace    string `default:"24h" help:"How long the old key goes on working, up to 30d; 0 ends it at once."`
}

// Run rolls the key.
func (k keyRollCmd) Run(ctx context.Context, c console) error {
	grace, err := parseSpan(k.Grace)
	if err != nil {
		return usageError{fmt.Errorf("--grace: %q is not a time; for example 24h, 7d, or 0", k.Grace)}
	}
	return k.existing(ctx, c, func(s *account.Store) error {
		secret, key, err := s.RollKey(ctx, operator(), "", k.ID, grace)
		if err != nil {
			return badInput(err)
		}
		_, _ = fmt.Fprintf(c.err, "API key %s takes the place of %s. It is shown this once; keep it like a password.\n", key.ID, key.Replaces)
		if grace == 0 {
			_, _ = fmt.Fprintln(c.err, "The old key is revoked.")
		} else {
			_, _ = fmt.Fprintf(c.err, "The old key works for %s more at most.\n", grace)
		}
		_, err = fmt.Fprintln(c.out, secret)
		return err
	})
}

type keyListCmd struct {
	storeCmd `embed:""`
}

// Run lists the keys, oldest first.
func (k keyListCmd) Run(ctx context.Context, c console) error {
	return k.existing(ctx, c, func(s *account.Store) error {
		accounts, err := s.Accounts(ctx)
		if err != nil {
			return err
		}
		names := map[string]string{}
		for _, a := range accounts {
			names[a.ID] = a.Name
		}
		keys, err := s.Keys(ctx)
		if err != nil {
			return err
		}
		used, err := s.LastUsed(ctx)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(w, "ID\tACCOUNT\tNAME\tKEY\tSTATE\tCREATED\tEXPIRES\tREVOKED\tLAST USED\tREPLACED BY")
		now := time.Now()
		for _, k := range keys {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, names[k.Account], orDash(k.Name), shortKey(k), k.State(now),
				instant(k.CreatedAt), instant(k.ExpiresAt), instant(k.RevokedAt), instant(used[k.ID]), orDash(k.ReplacedBy))
		}
		return w.Flush()
	})
}

// shortKey shows a key as people tell it from others: its prefix and last four characters.
func shortKey(k account.Key) string { return k.Prefix() + "…" + k.Last4 }

func instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format(time.RFC3339)
}

type keyRevokeCmd struct {
	storeCmd `embed:""`
	ID       string `arg:"" help:"The key's id (verifyd key list shows it)."`
}

// Run ends the key.
func (k keyRevokeCmd) Run(ctx context.Context, c console) error {
	return k.existing(ctx, c, func(s *account.Store) error {
		key, err := s.RevokeKey(ctx, operator(), "", k.ID)
		if err != nil {
			return badInput(err)
		}
		_, err = fmt.Fprintf(c.err, "API key %s is revoked since %s.\n", key.ID, instant(key.RevokedAt))
		return err
	})
}

// wrongInput are the refusals that a person mends at the command line, by naming something else.
var wrongInput = []error{
	account.ErrNoKey, account.ErrNoAccount, account.ErrAccountExists, account.ErrRolled, account.ErrKeyEnded, account.ErrRotating, account.ErrNotRotating,
}

// badInput marks such a refusal as a fault of the command line.
func badInput(err error) error {
	if _, ok := errors.AsType[*account.InputError](err); ok {
		return usageError{err}
	}
	for _, wrong := range wrongInput {
		if errors.Is(err, wrong) {
			return usageError{err}
		}
	}
	return err
}

// policyText shows the policy of a key.
func policyText(p sessions.Policy) string {
	if p == "" {
		return "the service's default"
	}
	return string(p)
}
