package client

import (
	"context"
	"net/http"
)

// SigningKeys reads the public keys that callbacks of the key's account are checked with now, "whpk_…" as
// NewVerifier and NewReceiver take them, the current one first: two while the signing secret rotates. It
// changes nothing, so a repeat is harmless. Its errors are *Error and *NoAnswer.
func (c *Client) SigningKeys(ctx context.Context) ([]string, error) {
	var answer struct {
		SigningKeys []struct {
			PublicKey string `json:"public_key"`
		} `json:"signing_keys"`
	}
	if err := c.service.Call(ctx, http.MethodGet, "/signing-keys", nil, &answer); err != nil {
		return nil, err
	}
	keys := make([]string, len(answer.SigningKeys))
	for i, k := range answer.SigningKeys {
		keys[i] = k.PublicKey
	}
	return keys, nil
}
