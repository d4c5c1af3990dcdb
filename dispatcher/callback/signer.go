package callback

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// The prefixes of signing secrets and keys (Standard Webhooks, "Signature scheme").
const (
	secretPrefix     = "whsec_"
	privateKeyPrefix = "whsk_"
)

// signer signs a callback by one secret, and returns the signature with its version before it.
type signer interface {
	Sign(id string, at time.Time, body []byte) (string, error)
}

// privateKey signs with ed25519: version "v1a". The official library does not support it.
type privateKey ed25519.PrivateKey

// Sign implements signer: the content is that of version 1 (Standard Webhooks, "Signature scheme").
func (k privateKey) Sign(id string, at time.Time, body []byte) (string, error) {
	content := make([]byte, 0, len(id)+len("..")+len("1795266694")+len(body))
	content = append(append(content, id...), '.')
	content = append(strconv.AppendInt(content, at.Unix(), 10), '.')
	signature := ed25519.Sign(ed25519.PrivateKey(k), append(content, body...))
	return "v1a," + base64.StdEncoding.EncodeToString(signature), nil
}

// maxSigners bounds how many decoded secrets are kept; each is some 100 bytes, and an account has two.
const maxSigners = 8192

// signers keeps the decoded signing secrets: decoding one costs as much as signing with it.
type signers struct {
	mu       sync.RWMutex
	bySecret map[string]signer
}

func (s *signers) of(secret string) (signer, error) {
	s.mu.RLock()
	known := s.bySecret[secret]
	s.mu.RUnlock()
	if known != nil {
		return known, nil
	}
	made, err := newSigner(secret)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bySecret == nil || len(s.bySecret) >= maxSigners {
		s.bySecret = map[string]signer{} // rotated ones go with the rest
	}
	s.bySecret[secret] = made
	return made, nil
}

// newSigner decodes a secret.
func newSigner(secret string) (signer, error) {
	if text, ok := strings.CutPrefix(secret, privateKeyPrefix); ok {
		seed, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(seed) != ed25519.SeedSize {
			return nil, errors.New(`sign callback: a private key is not "whsk_" and 32 bytes of base64`)
		}
		return privateKey(ed25519.NewKeyFromSeed(seed)), nil
	}
	if strings.TrimPrefix(secret, secretPrefix) == "" {
		return nil, errors.New("sign callback: empty signing secret")
	}
	hook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return nil, errors.New(`sign callback: a signing secret is not "whsec_" and base64`)
	}
	return hook, nil
}
