package client

import (
	"context"
	"net/http"
	"time"
)

// SigningKey is a public key that callbacks are checked with, and when they carry its signature.
type SigningKey struct {
	PublicKey string     `json:"public_key"` // "whpk_…", as NewVerifier and NewReceiver take it
	From      time.Time  `json:"from"`
	Until     *time.Time `json:"until"` // the end of a rotation's overlap; nil for the current one
}

// SigningKeys reads the public keys that callbacks of the key's account are checked with now, the current one
// first: two while a rotation goes on. It changes nothing, so a repeat is harmless. Its errors are *Error and
// *NoAnswer.
func (c *Client) SigningKeys(ctx context.Context) ([]SigningKey, error) {
	var answer struct {
		SigningKeys []SigningKey `json:"signing_keys"`
	}
	err := c.call(ctx, http.MethodGet, "/signing-keys", nil, nil, &answer)
	return answer.SigningKeys, err
}
