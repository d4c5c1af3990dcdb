package account

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"verifyd/natsconf/seal"
	"verifyd/sessions"
)

// recordVersion is carried by every stored record, so that a later build can read an older one's.
const recordVersion = 1

// secretUse is the use of the box that signing secrets are sealed in; their owner is the account id.
const secretUse = "signing-secret"

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// idOf makes an account's id from its name, so that two creations of one name meet in one entry.
func idOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "acc_" + idEncoding.EncodeToString(sum[:])[:20]
}

type accountRecord struct {
	Version   int       `json:"v"`
	Name      string    `json:"name"`
	Quota     int64     `json:"quota,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	Secrets   [][]byte  `json:"secrets"` // sealed, newest first
}

type keyRecord struct {
	Version   int             `json:"v"`
	Account   string          `json:"account"`
	Test      bool            `json:"test,omitempty"`
	Last4     string          `json:"last4"`
	RateLimit Rate            `json:"rate_limit,omitzero"`
	Policy    sessions.Policy `json:"policy,omitempty"`
	CreatedAt time.Time       `json:"created_at"`
	RevokedAt time.Time       `json:"revoked_at,omitzero"`
}

func encodeAccount(a Account, box *seal.Box) ([]byte, error) {
	r := accountRecord{Version: recordVersion, Name: a.Name, Quota: a.Quota, CreatedAt: a.CreatedAt}
	for _, s := range a.Secrets {
		r.Secrets = append(r.Secrets, box.Seal([]byte(s), a.ID))
	}
	return json.Marshal(r)
}

func decodeAccount(id string, data []byte, box *seal.Box) (Account, error) {
	var r accountRecord
	if err := decode(data, &r, &r.Version); err != nil {
		return Account{}, fmt.Errorf("account %s: %w", id, err)
	}
	a := Account{ID: id, Name: r.Name, Quota: r.Quota, CreatedAt: r.CreatedAt}
	for _, sealed := range r.Secrets {
		s, err := box.Open(sealed, id)
		if err != nil {
			return Account{}, fmt.Errorf("signing secret of account %s: %w", id, err)
		}
		a.Secrets = append(a.Secrets, string(s))
	}
	return a, nil
}

func encodeKey(k Key) ([]byte, error) {
	return json.Marshal(keyRecord{
		Version: recordVersion, Account: k.Account, Test: k.Test, Last4: k.Last4, RateLimit: k.RateLimit, Policy: k.Policy,
		CreatedAt: k.CreatedAt, RevokedAt: k.RevokedAt,
	})
}

func decodeKey(entry string, data []byte) (digest, Key, error) {
	var d digest
	if n, err := hex.Decode(d[:], []byte(entry[:min(len(entry), 2*len(d))])); err != nil || n != len(d) {
		return d, Key{}, fmt.Errorf("key entry %q is not a digest", entry)
	}
	var r keyRecord
	if err := decode(data, &r, &r.Version); err != nil {
		return d, Key{}, fmt.Errorf("key %s: %w", d.id(), err)
	}
	return d, Key{
		ID: d.id(), Account: r.Account, Test: r.Test, Last4: r.Last4, RateLimit: r.RateLimit, Policy: r.Policy,
		CreatedAt: r.CreatedAt, RevokedAt: r.RevokedAt,
	}, nil
}

// decode refuses a record of a newer build rather than misread it.
func decode(data []byte, into any, version *int) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	if *version != recordVersion {
		return fmt.Errorf("has version %d, this build reads %d: run the newer verifyd", *version, recordVersion)
	}
	return nil
}
