package accountstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/input"
	"verifyd/edge/account/secrets"
	"verifyd/natsconf"
	"verifyd/sessions/timeline"
	"verifyd/sessions/urlpolicy"
)

// RotateSecret replaces the account's signing secret. During the overlap, callbacks also carry a signature by
// the old one; without an overlap, they no longer do. Its errors are ErrRotating while an earlier
// overlap goes on, ErrNoAccount, ErrNotAllowed and an *input.Error. Beside natsconf.ErrUncertain the new
// secret is returned too: either it is the current one now, or nothing has changed, and PublicKeys of the
// account as it is stored tell which.
func (s accounts) RotateSecret(ctx context.Context, by access.Actor, id string,
	overlap time.Duration) (account.Account, error) {
	if err := input.Span("overlap", overlap, account.MaxOverlap); err != nil {
		return account.Account{}, err
	}
	fresh := account.Secret{Value: secrets.NewSigning()}
	a, err := s.change(ctx, by, id, access.ActionSecrets, func(a *account.Account) (audit.Record, error) {
		now := s.log.Instant()
		signing := a.Signing(now)
		if len(signing) > 1 {
			return audit.Record{}, fmt.Errorf("%w, or wait until %s", account.ErrRotating,
				entry.Stamp(signing[1].ExpiresAt))
		}
		fresh.CreatedAt = now
		a.Secrets = []account.Secret{fresh}
		if overlap > 0 && len(signing) > 0 {
			old := signing[0]
			old.ExpiresAt = now.Add(overlap)
			a.Secrets = append(a.Secrets, old)
		}
		return audit.Record{What: audit.SecretRotated,
			Detail: map[string]string{"until": entry.Stamp(now.Add(overlap))}}, nil
	})
	switch {
	case err == nil:
		return a, nil
	case a.ID != "": // it is stored; its record is not yet
		return a, fmt.Errorf("%w: %w", natsconf.ErrUncertain, err)
	case errors.Is(err, natsconf.ErrUncertain):
		return account.Account{ID: id, Secrets: []account.Secret{fresh}}, err
	default:
		return a, err
	}
}

// EndRotation ends the overlap of a rotation now: the old secret signs no more. Its errors are
// ErrNotRotating, ErrNoAccount and ErrNotAllowed.
func (s accounts) EndRotation(ctx context.Context, by access.Actor, id string) (account.Account, error) {
	return s.changeNow(ctx, by, id, access.ActionSecrets, func(a *account.Account) (audit.Record, error) {
		now := s.log.Instant()
		if len(a.Signing(now)) < 2 {
			return audit.Record{}, account.ErrNotRotating
		}
		a.Secrets = a.Secrets[:1]
		return audit.Record{What: audit.RotationEnded}, nil
	})
}

// SetNoticeURL sets where the account's notices are posted to; the zero URL: nowhere. They are signed with
// its signing secrets. Its errors are ErrNoAccount and ErrNotAllowed.
func (s accounts) SetNoticeURL(ctx context.Context, by access.Actor, id string, to urlpolicy.URL) error {
	_, err := s.change(ctx, by, id, access.ActionNotices, func(a *account.Account) (audit.Record, error) {
		if a.NoticeURL == to.String() {
			return audit.Record{}, errUnchanged
		}
		d := audit.Record{What: audit.NoticesSet, Detail: map[string]string{"from": hostOf(a.NoticeURL)}}
		if to != (urlpolicy.URL{}) {
			d.Detail["to"] = to.HostPort()
		}
		a.NoticeURL = to.String()
		return d, nil
	})
	return err
}

// hostOf returns what the audit log may show of an address; empty: there is none.
func hostOf(address string) string {
	if address == "" {
		return ""
	}
	return timeline.URLHost(address)
}

// RevealSecrets returns the secrets that sign now, the current one first, and writes down who asked, unless
// that is the last record, of the same day. Its errors are ErrNoAccount and ErrNotAllowed.
func (s accounts) RevealSecrets(ctx context.Context, by access.Actor, id string) ([]account.Secret, error) {
	a, _, err := s.account(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := s.permit(ctx, a.Account, by, access.ActionReveal); err != nil {
		return nil, err
	}
	if err := s.log.NoteOnceADay(ctx, by, id, audit.SecretRevealed); err != nil {
		return nil, err
	}
	return a.Signing(s.now()), nil
}
