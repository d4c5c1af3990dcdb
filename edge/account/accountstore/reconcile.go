package accountstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/naming"
	"verifyd/edge/account/record"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// Reconciled is what a damaged store lacked of accounts and keys, according to the audit log.
type Reconciled struct {
	LostKeys     []string // "key_… (name) of acc_…": made according to the log, and no longer there
	LostAccounts []string // ids, the same
	// keys that were revoked or rolled according to the log, and that a damaged store accepted again
	Revoked []string
}

// Reconcile compares accounts and keys with the audit log, after a damaged store was recovered, and revokes
// again the keys that were revoked or rolled according to the log. A repeat is harmless. Its errors are
// natsconf's and those of RevokeKey.
func (s *Store) Reconcile(ctx context.Context, by access.Actor) (r Reconciled, err error) {
	log, err := s.logged(ctx)
	if err != nil {
		return r, err
	}
	keys, err := s.Keys(ctx)
	if err != nil {
		return r, err
	}
	accounts, err := s.Accounts(ctx)
	if err != nil {
		return r, err
	}
	for _, a := range log.accounts {
		if !slices.ContainsFunc(accounts, func(have account.Account) bool { return have.ID == a }) {
			r.LostAccounts = append(r.LostAccounts, a)
		}
	}
	for _, made := range log.keys {
		i := slices.IndexFunc(keys, func(k account.Key) bool { return k.ID == made.On })
		if i < 0 {
			r.LostKeys = append(r.LostKeys,
				strings.TrimSpace(made.On+" "+made.Detail["name"])+" of "+made.Account)
			continue
		}
		if log.ended[made.On] && keys[i].RevokedAt.IsZero() && keys[i].ExpiresAt.IsZero() {
			if _, err := s.RevokeKey(ctx, by, made.Account, made.On); err != nil {
				return r, fmt.Errorf("revoke %s again: %w", made.On, err)
			}
			r.Revoked = append(r.Revoked, made.On)
		}
	}
	return r, nil
}

// logged is what the audit log records about accounts and keys.
type logged struct {
	accounts []string
	keys     []audit.Record
	ended    map[string]bool // keys that were revoked or rolled
}

func (s *Store) logged(ctx context.Context) (l logged, err error) {
	l.ended = map[string]bool{}
	err = s.log.Each(ctx, func(r audit.Record) {
		switch r.What {
		case audit.AccountCreated:
			l.accounts = append(l.accounts, r.Account)
		case audit.KeyCreated:
			l.keys = append(l.keys, r)
		case audit.KeyWasRevoked, audit.KeyWasRolled:
			l.ended[r.On] = true
		}
	})
	return l, err
}

// Doubt is an account whose name users may take for another's: it was made before such names were refused, or
// by an older build, at the same instant as the other one.
type Doubt struct {
	Account account.Account // without its secrets
	Why     string
}

// Doubts reads the names of all accounts and returns those that would be refused today and that no operator
// has granted. It opens no secret. Its errors are natsconf's.
func Doubts(ctx context.Context, c *natsconf.Conn, own ...string) ([]Doubt, error) {
	entries, err := entry.List(ctx, c, topology.BucketAccounts, record.AllAccounts)
	if err != nil {
		return nil, err
	}
	var doubts []Doubt
	first := map[string]account.Account{} // by how its name looks
	for _, e := range entries {
		a := record.Outline(e.Key, e.Value)
		if !a.Exists() || a.Granted {
			continue
		}
		_, err := checkName(access.Operator(""), account.Account{}, a.Name, false, time.Time{}, own)
		if err != nil {
			doubts = append(doubts, Doubt{a, err.Error()})
		}
		for i, look := range naming.LookOf(a.Name) {
			look = fmt.Sprint(i, look)
			if other, known := first[look]; known && other.ID != a.ID {
				doubts = append(doubts, Doubt{a, fmt.Sprintf("it looks like %q (%s)", other.Name, other.ID)})
				break
			}
			first[look] = a
		}
	}
	return doubts, nil
}
