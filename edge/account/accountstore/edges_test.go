package accountstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/record"
	"verifyd/natsconf/topology"
)

// A person who creates accounts owns no more than the bound, however many edges they ask at once. An operator
// may make more for them.
func TestAccountsAreBoundedOverEdges(t *testing.T) {
	t.Parallel()
	h := start(t)
	const before = accountstore.MaxAccounts - 1
	for i := range before {
		if _, err := h.store.CreateAccount(t.Context(), operator, fmt.Sprint("Guild ", i), ada); err != nil {
			t.Fatal(err)
		}
	}
	edges := h.edges(t)
	if made := race(t, 12, func(i int) error {
		return err2(edges[i%len(edges)].CreateAccount(t.Context(), ada.Actor(), fmt.Sprint("Quay ", i), ada))
	}, accountstore.ErrManyAccounts); made != 1 {
		t.Errorf("%d accounts were made beside %d", made, before)
	}
	for who, err := range map[string]error{
		"an operator": err2(h.store.CreateAccount(t.Context(), operator, "Pier", ada)),
		"another":     err2(h.store.CreateAccount(t.Context(), bob.Actor(), "Mole", bob)),
	} {
		if err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
	all, err := h.store.EveryAccount(t.Context())
	if want := accountstore.MaxAccounts + 2; err != nil || len(all) != want {
		t.Errorf("there are %d accounts, want %d: %v", len(all), want, err)
	}
}

// An account gets no more keys in a day than the bound, rolled ones too, however many edges are asked at
// once. What an operator makes counts, and is not refused.
func TestKeysAreBoundedOverEdges(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "Harbor Guild", ada)
	const before = accountstore.MaxKeys - 5
	var keys []account.Key
	for range before {
		_, k, err := h.store.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{})
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	edges := h.edges(t)
	another := func(i int) error {
		if i%2 == 0 {
			return err3(edges[i%len(edges)].CreateKey(t.Context(), ada.Actor(), a.ID, account.KeyOptions{}))
		}
		return err3(edges[i%len(edges)].RollKey(t.Context(), ada.Actor(), a.ID, keys[i].ID, time.Hour))
	}
	if made := race(t, 24, another, accountstore.ErrManyKeys); made != 5 {
		t.Errorf("%d keys were made beside %d", made, before)
	}
	h.key(t, a, account.KeyOptions{}) // by an operator
	if all, err := h.store.Keys(t.Context()); err != nil || len(all) != accountstore.MaxKeys+1 {
		t.Errorf("there are %d keys: %v", len(all), err)
	}
	if err := another(0); !errors.Is(err, accountstore.ErrManyKeys) {
		t.Errorf("one more: %v", err)
	}
	h.at(time.Now().Add(25 * time.Hour))
	if err := another(0); err != nil {
		t.Errorf("a day later: %v", err)
	}
}

// Of names that look alike and are taken at once, by new accounts and by renamed ones, on whatever edges, one
// is.
func TestOneTakesALook(t *testing.T) {
	t.Parallel()
	h := start(t)
	edges := h.edges(t)
	var ids []string
	for i := range edges {
		ids = append(ids, h.account(t, fmt.Sprint("Account ", i)).ID)
	}
	for round := range 5 {
		look := string(rune('A'+round)) + " harbor"
		names := []string{look, strings.ToUpper(look), strings.Replace(look, "o", "0", 1), look + "."}
		var mu sync.Mutex
		var took []string
		var wg sync.WaitGroup
		try := func(a account.Account, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				took = append(took, a.Name)
			} else if !isInput(err) && !errors.Is(err, account.ErrAccountExists) {
				t.Error(err)
			}
		}
		for i, s := range edges {
			wg.Go(func() { try(s.CreateAccount(t.Context(), operator, names[i])) })
			wg.Go(func() {
				try(s.RenameAccount(t.Context(), operator, ids[i], names[(i+1)%len(names)], false))
			})
		}
		wg.Wait()
		if len(took) != 1 {
			t.Errorf("%q are taken, which look alike", took)
		}
	}
}

// The entries in which changes of several edges meet are no accounts, to builds that do not know them either,
// and nobody can tell from them who made one.
func TestMeetingsAreNoAccounts(t *testing.T) {
	t.Parallel()
	h := start(t)
	if _, err := h.store.CreateAccount(t.Context(), ada.Actor(), "Harbor Guild", ada); err != nil {
		t.Fatal(err)
	}
	entries, err := entry.List(t.Context(), h.conn, topology.BucketAccounts, "*.*")
	if err != nil || len(entries) < 2 { // one of its maker, and of its look
		t.Fatalf("there are %d entries beside the account: %v", len(entries), err)
	}
	for _, e := range entries {
		a, err := record.DecodeAccount(e.Key, e.Value, h.master.Box(record.SecretUse))
		if err != nil || a.Name != "" || a.LeadsTo != "" || !a.DeletedAt.IsZero() {
			t.Errorf("%s is read as %+v, %v", e.Key, a, err)
		}
		if strings.Contains(e.Key+string(e.Value), ada.Subject) {
			t.Errorf("%s names its maker", e.Key)
		}
		if _, is := h.mirror.Account(e.Key); is {
			t.Errorf("the mirror has %s as an account", e.Key)
		}
	}
}
