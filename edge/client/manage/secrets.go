package manage

import (
	"context"
	"net/http"
	"time"
)

// Secret is a callback signing secret, never the secret itself.
type Secret struct {
	CreatedAt time.Time  `json:"created_at"`
	EndsAt    *time.Time `json:"ends_at"`    // when it signs no more; nil: it is the current one
	PublicKey string     `json:"public_key"` // checks the signature alongside the secret's
}

// MadeSecret is a signing secret in the one answer that shows it.
type MadeSecret struct {
	Secret

	PreviousEndsAt *time.Time `json:"previous_ends_at"` // until when the one before it signs too; nil: no more
	Value          string     `json:"secret"`
	// Stored is false if the store did not confirm the change. Keep both secrets until Secrets shows which
	// public key signs.
	Stored bool `json:"stored"`
}

// Secrets lists what signs an account's callbacks, the current one first.
func (c *Client) Secrets(ctx context.Context, account string) ([]Secret, error) {
	return secrets(ctx, c, http.MethodGet, accountPath(account)+"/secrets")
}

// RotateSecret puts a new signing secret in the place of the current one; for the overlap callbacks carry a
// signature of the old one too. It is tried again where no answer came; a second call is refused with
// state_conflict during the overlap.
func (c *Client) RotateSecret(ctx context.Context, account string, overlap time.Duration) (s MadeSecret,
	err error) {
	in := map[string]int64{"overlap_seconds": int64(overlap / time.Second)}
	return s, c.service.Create(ctx, accountPath(account)+"/secrets", "", in, &s)
}

// EndRotation ends the overlap of a rotation now. A repeat is refused with state_conflict.
func (c *Client) EndRotation(ctx context.Context, account string) ([]Secret, error) {
	return secrets(ctx, c, http.MethodDelete, accountPath(account)+"/secrets/previous")
}

func secrets(ctx context.Context, c *Client, method, path string) ([]Secret, error) {
	var list struct {
		Secrets []Secret `json:"secrets"`
	}
	err := c.service.Call(ctx, method, path, nil, &list)
	return list.Secrets, err
}
