package namespace_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/namespace"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
)

const harbor, other = "https://id.harbor.example", "https://id.other.example"

type rig struct {
	conn  *natsconf.Conn
	store *accountstore.Store
}

func start(t *testing.T) rig {
	t.Helper()
	conn := natstest.Start(t)
	store, err := accountstore.New(t.Context(), conn, secretbox.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	return rig{conn, store}
}

func (h rig) bind(t *testing.T, id, issuer string) (theirs, first namespace.Namespace) {
	t.Helper()
	theirs, first, err := namespace.Bind(t.Context(), h.conn, id, issuer, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return theirs, first
}

// The first provider of a network's id has the id for a namespace, as builds before have stored its
// members; another provider has one of its own, whatever subjects it names, and the first has its own
// again when the id is pointed back.
func TestAnotherProviderInheritsNoMembers(t *testing.T) {
	t.Parallel()
	h := start(t)
	operator := access.Operator("")
	a, err := h.store.CreateAccount(t.Context(), operator, "a",
		account.Member{Network: "example", Subject: "12345", Role: access.RoleOwner})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.GrantOperator(t.Context(), operator, "example", "12345"); err != nil {
		t.Fatal(err)
	}
	if theirs, first, err := namespace.LookUp(t.Context(), h.conn, "example", harbor); err != nil ||
		theirs.Name != "example" || first.Issuer != "" {
		t.Errorf("before it was used: %+v, %+v, %v", theirs, first, err)
	}
	theirs, first := h.bind(t, "example", harbor)
	if theirs.Name != "example" || first.Issuer != harbor {
		t.Errorf("the first: %+v, %+v", theirs, first)
	}
	theirs, first = h.bind(t, "example", other)
	if theirs.Name == "example" || !strings.HasPrefix(theirs.Name, "example~") || first.Issuer != harbor {
		t.Errorf("another: %+v, %+v", theirs, first)
	}
	if _, is := a.Member(theirs.Name, "12345"); is {
		t.Error("another provider's 12345 is a member")
	}
	if is, err := h.store.IsOperator(t.Context(), theirs.Name, "12345"); err != nil || is {
		t.Errorf("another provider's 12345 is an operator: %v", err)
	}
	member := account.Member{Network: theirs.Name, Subject: "12345", Role: access.RoleViewer}
	if _, err := h.store.AddMember(t.Context(), operator, a.ID, member); err != nil {
		t.Errorf("both may be members: %v", err)
	}
	again, _ := h.bind(t, "example", other)
	third, _ := h.bind(t, "example", "https://id.third.example")
	back, _ := h.bind(t, "example", harbor)
	if again.Name != theirs.Name || third.Name == theirs.Name || back.Name != "example" {
		t.Errorf("again %q, a third %q, the first again %q", again.Name, third.Name, back.Name)
	}
	people, err := accountstore.PeopleOf(t.Context(), h.conn)
	if err != nil || people["example"] != (accountstore.People{Members: 1, Operators: 1}) ||
		people[theirs.Name] != (accountstore.People{Members: 1}) {
		t.Errorf("%+v, %v", people, err)
	}
}

// Processes that bind an id concurrently, to any providers, agree on the first.
func TestNamespacesAreBoundOnce(t *testing.T) {
	t.Parallel()
	h := start(t)
	issuers := []string{harbor, other}
	var mu sync.Mutex
	firsts, names := map[string]bool{}, map[string]string{}
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			issuer := issuers[i%2]
			theirs, first, err := namespace.Bind(t.Context(), h.conn, "example", issuer, time.Now())
			mu.Lock()
			defer mu.Unlock()
			if known, ok := names[issuer]; err != nil || ok && known != theirs.Name {
				t.Errorf("%s is %q, and was %q: %v", issuer, theirs.Name, known, err)
			}
			firsts[first.Issuer], names[issuer] = true, theirs.Name
		})
	}
	all.Wait()
	if len(firsts) != 1 || names[harbor] == names[other] {
		t.Errorf("first are %v, names %v", firsts, names)
	}
}

// A newer build's record of an id is not misread, and neither is a damaged one.
func TestNewerNamespacesAreNotMisread(t *testing.T) {
	t.Parallel()
	h := start(t)
	data, _ := json.Marshal(map[string]any{"v": 2, "network": "example", "issuer": []string{harbor}})
	for _, stored := range [][]byte{data, data[:len(data)-1], []byte(`{"network":"example"}`)} {
		natstest.Publish(t, h.conn,
			topology.BucketSubject(topology.BucketIdentities, "network.example"), stored)
		theirs, _, err := namespace.Bind(t.Context(), h.conn, "example", harbor, time.Now())
		if newer := &stored[0] == &data[0] && len(stored) == len(data); theirs.Name != "" ||
			!errors.Is(err, namespace.ErrUnreadable) || errors.Is(err, natsconf.ErrNewer) != newer {
			t.Errorf("%s: %+v, %v", stored, theirs, err)
		}
	}
}
