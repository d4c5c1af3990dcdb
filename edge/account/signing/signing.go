// Package signing has the key pairs that sign callbacks along with the signing secrets: one ed25519 pair for
// each secret, as Standard Webhooks defines it ("v1a"). Anyone who has the public key alone can check a
// callback, but not make one.
//
// The law: a pair is derived from the store's first master key, the account's id and the secret, and stored
// nowhere. All processes of a store have that key, and so derive the same pair, also after the master key was
// changed; a restored or moved store yields it again. It cannot be derived from the secret alone: integrators
// have the secret, and could sign in the service's name. A pair begins and ends with its secret, in rotations
// too.
package signing

import (
	"crypto/ed25519"
	"encoding/base64"
	"time"

	"verifyd/edge/account"
	"verifyd/natsconf/secretbox"
)

// The prefixes that Standard Webhooks defines for the keys of a pair: base64 follows.
const (
	PublicPrefix  = "whpk_"
	PrivatePrefix = "whsk_"
)

// use is the use of the hash that makes the seeds of key pairs.
const use = "callback-ed25519"

// Keys derives the key pairs of accounts. Its methods are safe for concurrent use.
type Keys struct{ seeds *secretbox.Hash }

// New returns the derivation from a store's master keys.
func New(master secretbox.Master) *Keys { return &Keys{seeds: master.Hash(use)} }

// PublicKey is a key that callbacks are checked with, and until when they carry its signature.
type PublicKey struct {
	Value string // "whpk_…"
	From  time.Time
	Until time.Time // zero: the current one; otherwise the end of the overlap
}

// Secrets returns the secrets and keys that sign an account's callbacks at an instant: its signing secrets,
// the current one first, then the private key of each, "whsk_" and the seed (RFC 8032 §5.1.5) in base64.
func (k *Keys) Secrets(a account.Account, now time.Time) []string {
	signing := a.Signing(now)
	all := make([]string, 0, 2*len(signing))
	for _, s := range signing {
		all = append(all, s.Value)
	}
	for _, s := range signing {
		all = append(all, PrivatePrefix+base64.StdEncoding.EncodeToString(k.seed(a, s)))
	}
	return all
}

// Public returns the public keys of an account whose signatures callbacks carry at an instant, the current
// one first.
func (k *Keys) Public(a account.Account, now time.Time) []PublicKey {
	signing := a.Signing(now)
	public := make([]PublicKey, len(signing))
	for i, s := range signing {
		pair := ed25519.NewKeyFromSeed(k.seed(a, s))
		public[i] = PublicKey{
			Value: PublicPrefix + base64.StdEncoding.EncodeToString(pair[ed25519.SeedSize:]), // RFC 8032's A
			From:  s.CreatedAt, Until: s.ExpiresAt,
		}
	}
	return public
}

// seed returns the 32 bytes that a pair is made from. Ids contain no space, so that no two texts are the
// same.
func (k *Keys) seed(a account.Account, s account.Secret) []byte {
	return k.seeds.Bytes([]byte(a.ID + " " + s.Value))
}
