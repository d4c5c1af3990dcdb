package account

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"time"
)

// Secret is a callback signing secret.
type Secret struct {
	Value     string // "whsec_…", as Standard Webhooks writes it
	CreatedAt time.Time
	// zero: the current one; otherwise the end of the overlap in which it signs beside its successor
	ExpiresAt time.Time
}

const (
	// secretBytes of randomness in a signing secret, as Standard Webhooks recommends (24 to 64).
	secretBytes  = 32
	secretPrefix = "whsec_"
	// MaxOverlap bounds an overlap: two secrets that are good for ever would be one too many.
	MaxOverlap = 30 * 24 * time.Hour
)

var (
	// ErrRotating is returned where a rotation is under way: a third secret would put out the one that
	// receivers still hold.
	ErrRotating = errors.New("a rotation of the signing secret is under way; end it first")
	// ErrNotRotating is returned where there is no rotation to end.
	ErrNotRotating = errors.New("no rotation of the signing secret is under way")
)

func newSigningSecret() string {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(b[:])
}

// RotateSecret returns the account a new signing secret. For the time of the overlap callbacks carry a
// signature of the old one too; with none they never do again. Its errors are ErrRotating while an earlier
// overlap goes on, ErrNoAccount, ErrNotAllowed and an *InputError.
func (s *Store) RotateSecret(ctx context.Context, by Actor, account string, overlap time.Duration) (Account,
	error) {
	if err := checkSpan("overlap", overlap, MaxOverlap); err != nil {
		return Account{}, err
	}
	fresh := newSigningSecret()
	return s.change(ctx, by, account, ActionSecrets, func(a *Account, now time.Time) (deed, error) {
		signing := a.Signing(now)
		if len(signing) > 1 {
			return deed{}, fmt.Errorf("%w, or wait until %s", ErrRotating, stamp(signing[1].ExpiresAt))
		}
		a.Secrets = []Secret{{Value: fresh, CreatedAt: now}}
		if overlap > 0 && len(signing) > 0 {
			old := signing[0]
			old.ExpiresAt = now.Add(overlap)
			a.Secrets = append(a.Secrets, old)
		}
		return deed{what: SecretRotated, detail: map[string]string{"until": stamp(now.Add(overlap))}}, nil
	})
}

// EndRotation ends the overlap of a rotation now: the old secret signs no more. Its errors are
// ErrNotRotating, ErrNoAccount and ErrNotAllowed.
func (s *Store) EndRotation(ctx context.Context, by Actor, account string) (Account, error) {
	return s.change(ctx, by, account, ActionSecrets, func(a *Account, now time.Time) (deed, error) {
		if len(a.Signing(now)) < 2 {
			return deed{}, ErrNotRotating
		}
		a.Secrets = a.Secrets[:1]
		return deed{what: RotationEnded}, nil
	})
}

// RevealSecrets returns the secrets that sign now, the current one first, and writes down who asked. Its
// errors are ErrNoAccount and ErrNotAllowed.
func (s *Store) RevealSecrets(ctx context.Context, by Actor, account string) ([]Secret, error) {
	a, _, err := s.account(ctx, account)
	if err != nil {
		return nil, err
	}
	if err := s.permit(ctx, a, by, ActionReveal); err != nil {
		return nil, err
	}
	if err := s.Note(ctx, by, account, SecretRevealed, "", nil); err != nil {
		return nil, err
	}
	return a.Signing(s.now()), nil
}

// stamp writes an instant into the detail of a record; a zero one is left out.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
