package accountstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/branding"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/record"
	"verifyd/natsconf"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
)

// signsBeyond is how much longer the secrets of a deleted account sign than its owed outcomes are kept: an
// edge that has not seen the end yet may complete one more session.
const signsBeyond = time.Hour

// Deletion is what was deleted with an account.
type Deletion struct {
	Account                       account.Account // as it was, or its rest if the deletion is repeated
	Members, Invites, Keys, Links int
	SignsUntil                    time.Time // until when its owed outcomes are signed
}

// DeleteAccount ends an account permanently. One write removes its members, its invites and its right to
// everything, and sets an end to its signing secrets: they sign the existing outcomes until none is kept any
// more. Then its keys and its login links are revoked. A repeat, by the account's id, finishes what a crash
// left. With dry nothing is changed. Its errors are ErrNoAccount and ErrNotAllowed for an actor who is not at
// the command line.
func (s *Store) DeleteAccount(ctx context.Context, by access.Actor, id string, dry bool) (Deletion, error) {
	if !by.AtCommandLine() {
		return Deletion{}, fmt.Errorf("%w: only the command line deletes accounts", access.ErrNotAllowed)
	}
	a, err := s.Deleted(ctx, id)
	if errors.Is(err, account.ErrNoAccount) {
		a, err = s.Account(ctx, id)
	}
	if err != nil {
		return Deletion{}, err
	}
	d := Deletion{Account: a, Members: len(a.Members), Invites: len(a.Invites)}
	if d.SignsUntil, err = s.signsUntil(ctx); err != nil {
		return Deletion{}, err
	}
	if a.DeletedAt.IsZero() && !dry {
		strip := func(a *account.Account) (audit.Record, error) { return d.strip(a, s.log.Instant()), nil }
		if _, err := s.change(ctx, by, id, access.ActionOperate, strip); err != nil {
			return Deletion{}, err
		}
	}
	d.Keys, err = s.endKeys(ctx, by, id, dry)
	return d, errors.Join(err, s.endLinks(ctx, by, dry, &d))
}

// strip reduces an account to what its last callbacks need, and its name for people who read about it.
func (d *Deletion) strip(a *account.Account, now time.Time) audit.Record {
	d.Members, d.Invites = len(a.Members), len(a.Invites)
	a.DeletedAt, a.Members, a.Invites, a.Branding = now, nil, nil, branding.Branding{}
	a.NoticeURL = ""
	for i, secret := range a.Secrets {
		if secret.ExpiresAt.IsZero() || secret.ExpiresAt.After(d.SignsUntil) {
			a.Secrets[i].ExpiresAt = d.SignsUntil
		}
	}
	return audit.Record{What: audit.AccountDeleted, Detail: map[string]string{
		"name": a.Name, "asked_at": entry.Stamp(a.DeleteAskedAt), "members": some(d.Members),
		"invites": some(d.Invites), "signs_until": entry.Stamp(d.SignsUntil),
	}}
}

// signsUntil returns when the last existing outcome leaves the store.
func (s *Store) signsUntil(ctx context.Context) (time.Time, error) {
	stream, err := s.conn.JS.Stream(ctx, topology.StreamCompletions)
	if err != nil {
		return time.Time{}, fmt.Errorf("read how long outcomes are kept: %w", natsconf.Kind(err))
	}
	return s.log.Instant().Add(stream.CachedInfo().Config.MaxAge + signsBeyond), nil
}

// grace is the actor that deletes an account at the end of its grace.
var grace = access.Operator("verifyd")

// EndDue deletes the accounts whose grace is over. Their login links stay, but lead nowhere any more: an
// edge's credential cannot revoke them. A repeat is harmless, also at the same time by another process;
// Repair revokes the keys that a crash has left. An account that cannot be deleted, or read, keeps no other
// one from it, unless the store is away. Nothing is deleted by a process that must not judge by the time
// (storetime.ErrClock).
func (s *Store) EndDue(ctx context.Context) error {
	if err := s.conn.Clock.Judge(ctx); err != nil {
		return err
	}
	entries, err := entry.List(ctx, s.conn, topology.BucketAccounts, record.AllAccounts)
	if err != nil {
		return err
	}
	var failed error
	for _, e := range entries {
		a := record.Outline(e.Key, e.Value)
		if a.Name == "" && e.Key != storestate.CheckEntry { // unless it leads to another account
			if _, err := record.DecodeAccount(e.Key, e.Value, s.box); err != nil {
				failed = errors.Join(failed, s.log.LeaveOut(err))
			}
		}
		if !a.Exists() || !a.Due(s.now()) {
			continue
		}
		if s.away(ctx, failed) {
			break
		}
		if err := s.endDue(ctx, a.ID); err != nil {
			failed = errors.Join(failed, fmt.Errorf("delete account %s: %w", a.ID, err))
		}
	}
	return failed
}

// endDue deletes an account if its grace is over.
func (s *Store) endDue(ctx context.Context, id string) (err error) {
	var d Deletion
	if d.SignsUntil, err = s.signsUntil(ctx); err != nil {
		return err
	}
	_, err = s.change(ctx, grace, id, access.ActionOperate, func(a *account.Account) (audit.Record, error) {
		now := s.log.Instant()
		if !a.Due(now) {
			return audit.Record{}, errUnchanged
		}
		return d.strip(a, now), nil
	})
	if errors.Is(err, account.ErrNoAccount) {
		return nil // another process was first, and revokes its keys
	}
	if err == nil {
		_, err = s.endKeys(ctx, grace, id, false)
	}
	return err
}

// away reports whether an error is that of a store which does not answer. A change that others came before
// too often has the same kind, and says nothing of the next one.
func (s *Store) away(ctx context.Context, err error) bool {
	if !errors.Is(err, natsconf.ErrUnavailable) {
		return false
	}
	_, _, err = s.conn.Bounds(ctx, topology.BucketStream(topology.BucketAccounts))
	return err != nil
}

// endKeys revokes the remaining keys of an account and returns how many there were. One that cannot be read,
// or revoked, keeps no other one from it: the error names it. Those of other accounts do not matter.
func (s *Store) endKeys(ctx context.Context, by access.Actor, id string, dry bool) (ended int, err error) {
	entries, err := entry.List(ctx, s.conn, topology.BucketKeys, ">")
	for _, e := range entries {
		_, k, kerr := record.DecodeKey(e.Key, e.Value)
		if kerr != nil && (k.Account == id || k.Account == "") {
			err = errors.Join(err, s.log.LeaveOut(kerr))
		}
		if kerr != nil || k.Account != id || !k.RevokedAt.IsZero() {
			continue
		}
		if ended++; dry || s.away(ctx, err) {
			continue
		}
		if _, kerr := s.RevokeKey(ctx, by, id, k.ID); kerr != nil {
			err = errors.Join(err, fmt.Errorf("revoke %s: %w", k.ID, kerr))
		}
	}
	return ended, err
}

func (s *Store) endLinks(ctx context.Context, by access.Actor, dry bool, d *Deletion) error {
	links, err := s.LoginLinks(ctx, d.Account.ID)
	if err != nil {
		return err
	}
	d.Links = len(links)
	for _, l := range links {
		if dry {
			break
		}
		if lerr := s.RevokeLoginLink(ctx, by, d.Account.ID, l.Link); lerr != nil && !errors.Is(lerr,
			grant.ErrNoLink) {
			err = errors.Join(err, fmt.Errorf("take %s back: %w", l.Link, lerr))
		}
	}
	return err
}

// forget removes the signing secrets of a deleted account from the store once they sign nothing any more.
func (s *Store) forget(ctx context.Context, a record.Account) error {
	if a.DeletedAt.IsZero() || len(a.Secrets) == 0 || len(a.Signing(s.now())) > 0 {
		return nil
	}
	if err := s.conn.Clock.Judge(ctx); err != nil {
		return err
	}
	err := s.rewrite(ctx, a.ID, func(a *record.Account) { a.Secrets = nil })
	if errors.Is(err, natsconf.ErrNewer) {
		return nil // a newer build does it
	}
	return err
}

// rewrite stores an account as edit leaves it, without a record of the change, and keeps no earlier revision.
// The error is natsconf.ErrNewer if a newer build has written the account.
func (s *records) rewrite(ctx context.Context, id string, edit func(*record.Account)) error {
	return natsconf.Retry(ctx, func() error {
		a, e, err := s.readEntry(ctx, id)
		if err != nil {
			return err
		}
		if err := record.AccountRewritable(e.Value); err != nil {
			return err
		}
		edit(&a)
		data, err := a.Encode(s.box)
		if err != nil {
			return err
		}
		return s.putWithoutHistory(ctx, a.ID, data, e.Revision)
	})
}

// Reseal seals the secrets of all accounts anew, under the master key that seals now. An account that cannot
// be read, or that a newer build has written, keeps no other one from it: the error names it. A repeat is
// harmless.
func (s *Store) Reseal(ctx context.Context) error {
	entries, err := entry.List(ctx, s.conn, topology.BucketAccounts, record.AllAccounts)
	for _, e := range entries {
		if e.Key == storestate.CheckEntry {
			continue
		}
		if s.away(ctx, err) {
			break
		}
		if rerr := s.rewrite(ctx, e.Key, func(*record.Account) {}); rerr != nil {
			err = errors.Join(err, fmt.Errorf("seal the secrets of account %s anew: %w", e.Key, rerr))
		}
	}
	return err
}
