package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/client/manage"
	"verifyd/edge/limit"
	"verifyd/natsconf"
	"verifyd/sessions"
)

// KeyManager is what a Manager does with API keys. A key is named by its id.
type KeyManager interface {
	CreateKey(ctx context.Context, account string, o account.KeyOptions) (secret string, k account.Key,
		err error)
	RollKey(ctx context.Context, id string, grace time.Duration) (secret string, k account.Key, err error)
	RevokeKey(ctx context.Context, id string) (account.Key, error)
	Keys(ctx context.Context) ([]ListedKey, error)
}

// SecretManager is what a Manager does with callback signing secrets.
type SecretManager interface {
	// RotateSecret returns the new secret even with natsconf.ErrUncertain: it may be the one that signs.
	RotateSecret(ctx context.Context, account string, overlap time.Duration) (Rotated, error)
	EndRotation(ctx context.Context, account string) error
}

// Rotated is a new signing secret.
type Rotated struct {
	Secret, PublicKey string
	Until             time.Time // until when the previous one signs, too; zero: it no longer signs
}

// MemberManager is what a Manager does with members and invites.
type MemberManager interface {
	Members(ctx context.Context, account string) ([]account.Member, []account.Invite, error)
	// Invite returns a link that makes somebody a member; base is {base_url}, if the store is used.
	Invite(ctx context.Context, account, base string, role access.Role, whom string) (link string,
		i account.Invite, err error)
	Withdraw(ctx context.Context, account, invite string) error
	// SetRole, Remove and Move take a member's identity or their address (access.Addressed).
	SetRole(ctx context.Context, account string, who access.Identity, role access.Role) error
	Remove(ctx context.Context, account string, who access.Identity) error
	// Move returns the member's role in the other account; empty: as before.
	Move(ctx context.Context, from, to string, who access.Identity, role access.Role) (access.Role, error)
}

// ListedKey is an API key in a list.
type ListedKey struct {
	account.Key

	AccountName string
	LastUsed    time.Time
	Hint        string // how people recognize it
}

// storedKeys are the keys and signing secrets of stored.
type storedKeys struct{ s *accountstore.Store }

// remoteKeys are those of remote.
type remoteKeys struct{ c *manage.Client }

// KeyHint returns the part of a key by which people recognize it: its prefix and last four characters.
func KeyHint(k account.Key) string { return k.Prefix() + "…" + k.Last4 }

func (m storedKeys) CreateKey(ctx context.Context, account string, o account.KeyOptions) (string, account.Key,
	error) {
	return m.s.CreateKey(ctx, Operator(), account, o)
}

func (m storedKeys) RollKey(ctx context.Context, id string, grace time.Duration) (string, account.Key,
	error) {
	return m.s.RollKey(ctx, Operator(), "", id, grace)
}

func (m storedKeys) RevokeKey(ctx context.Context, id string) (account.Key, error) {
	return m.s.RevokeKey(ctx, Operator(), "", id)
}

func (m storedKeys) RotateSecret(ctx context.Context, id string, overlap time.Duration) (Rotated, error) {
	a, err := m.s.RotateSecret(ctx, Operator(), id, overlap)
	if len(a.Secrets) == 0 {
		return Rotated{}, err
	}
	made := Rotated{Secret: a.Secrets[0].Value}
	for i, k := range m.s.PublicKeys(a) {
		if i == 0 {
			made.PublicKey = k.Value
		}
		made.Until = k.Until // of the last one, which is the previous one
	}
	return made, err
}

func (m storedKeys) EndRotation(ctx context.Context, id string) error {
	_, err := m.s.EndRotation(ctx, Operator(), id)
	return err
}

func (m storedKeys) Keys(ctx context.Context) ([]ListedKey, error) {
	accounts, aerr := m.s.EveryAccount(ctx)
	keys, kerr := m.s.Keys(ctx)
	used, uerr := m.s.LastUsed(ctx)
	err := errors.Join(aerr, kerr, uerr)
	if Lists(err) != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, a := range accounts { // including deleted ones
		names[a.ID] = a.Name
	}
	all := make([]ListedKey, len(keys))
	for i, k := range keys {
		all[i] = ListedKey{k, names[k.Account], used[k.ID], KeyHint(k)}
	}
	return all, err
}

func keyFrom(k manage.Key) account.Key {
	rate, _ := limit.ParseRate(or(k.RateLimit)) // a rate with its own burst is not read
	return account.Key{
		ID: k.ID, Account: k.Account, Name: k.Name, Test: k.Mode == "test", RateLimit: rate,
		Policy: sessions.Policy(or(k.Policy)), CreatedAt: k.CreatedAt, ExpiresAt: or(k.ExpiresAt),
		RevokedAt: or(k.RevokedAt), Replaces: or(k.Replaces), ReplacedBy: or(k.ReplacedBy),
	}
}

// madeKey returns a key that the service has created, as package accountstore would.
func madeKey(k manage.MadeKey, err error) (string, account.Key, error) {
	switch {
	case err != nil:
		return "", account.Key{}, kindOf(err)
	case !k.Stored:
		return k.Secret, keyFrom(k.Key), errNotStored
	}
	return k.Secret, keyFrom(k.Key), nil
}

// errNotStored is returned with what the service has created without knowing whether it is stored.
var errNotStored = fmt.Errorf("the service's store did not confirm it: %w", natsconf.ErrUncertain)

func (m remoteKeys) CreateKey(ctx context.Context, id string, o account.KeyOptions) (string, account.Key,
	error) {
	options := manage.KeyOptions{Name: o.Name, Policy: string(o.Policy)}
	if o.Test {
		options.Mode = "test"
	}
	if o.RateLimit != (account.Rate{}) {
		options.RateLimit = limit.RateText(o.RateLimit)
	}
	if !o.ExpiresAt.IsZero() {
		options.ExpiresAt = new(o.ExpiresAt.UTC())
	}
	return madeKey(m.c.CreateKey(ctx, id, options))
}

// holder returns the id of the account that a key belongs to.
func (m remoteKeys) holder(ctx context.Context, id string) (string, error) {
	k, err := m.c.KeyByID(ctx, id)
	if err != nil {
		return "", err
	}
	if k == nil {
		return "", fmt.Errorf("%w: %s; list them with: verifyd key list", account.ErrNoKey, strconv.Quote(id))
	}
	return k.Account, nil
}

func (m remoteKeys) RollKey(ctx context.Context, id string, grace time.Duration) (string, account.Key,
	error) {
	holder, err := m.holder(ctx, id)
	if err != nil {
		return "", account.Key{}, err
	}
	if grace%time.Second != 0 {
		return "", account.Key{}, errors.New("with --server, the grace is in whole seconds")
	}
	return madeKey(m.c.RollKey(ctx, holder, id, grace))
}

func (m remoteKeys) RevokeKey(ctx context.Context, id string) (account.Key, error) {
	holder, err := m.holder(ctx, id)
	if err != nil {
		return account.Key{}, err
	}
	k, err := m.c.RevokeKey(ctx, holder, id)
	return keyFrom(k), kindOf(err)
}

func (m remoteKeys) RotateSecret(ctx context.Context, id string, overlap time.Duration) (Rotated, error) {
	if overlap%time.Second != 0 {
		return Rotated{}, errors.New("with --server, the overlap is in whole seconds")
	}
	s, err := m.c.RotateSecret(ctx, id, overlap)
	if err == nil && !s.Stored {
		err = errNotStored
	}
	return Rotated{s.Value, s.PublicKey, or(s.PreviousEndsAt)}, kindOf(err)
}

func (m remoteKeys) EndRotation(ctx context.Context, id string) error {
	_, err := m.c.EndRotation(ctx, id)
	return kindOf(err)
}

func (m remoteKeys) Keys(ctx context.Context) (all []ListedKey, err error) { return m.keysOf(ctx, "") }

// keysOf lists the keys of an account; all keys, if it is empty.
func (m remoteKeys) keysOf(ctx context.Context, id string) (all []ListedKey, err error) {
	for k, err := range m.c.Keys(ctx, id) {
		if err != nil {
			return nil, BadInput(err)
		}
		all = append(all, ListedKey{keyFrom(k), k.AccountName, or(k.LastUsedAt), k.Hint})
	}
	return all, nil
}
