package account

import (
	"errors"
	"time"
)

// Secret is a callback signing secret.
type Secret struct {
	Value     string    `json:"-"` // "whsec_…", as Standard Webhooks writes it
	CreatedAt time.Time `json:"created_at"`
	// zero: the current one; otherwise the end of the overlap in which it signs along with its successor
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// MaxOverlap bounds an overlap: two secrets that are valid forever would be one too many.
const MaxOverlap = 30 * 24 * time.Hour

var (
	// ErrRotating is returned if a rotation is under way: a third secret would displace the one that
	// receivers still hold.
	ErrRotating = errors.New("a rotation of the signing secret is in progress; end it first")
	// ErrNotRotating is returned if there is no rotation to end.
	ErrNotRotating = errors.New("no rotation of the signing secret is in progress")
)

// Signing returns the secrets that sign callbacks at an instant, the current one first: two while one rotates
// out.
func (a Account) Signing(now time.Time) []Secret {
	signing := make([]Secret, 0, len(a.Secrets))
	for _, s := range a.Secrets {
		if s.ExpiresAt.IsZero() || now.Before(s.ExpiresAt) {
			signing = append(signing, s)
		}
	}
	return signing
}
