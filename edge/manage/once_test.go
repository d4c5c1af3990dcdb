package manage

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/edge/account/grant"
	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

const keyHeader = "Idempotency-Key"

// A repeat under one key gets what was created, secret included, and creates nothing; another request under
// it is refused; and a request that created nothing leaves the key free.
func TestRepeatsMakeNothingNew(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	token := r.token(grant.Scopes()...)
	a, at := r.harbor()
	keys := func() int {
		all, err := r.accounts.Keys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	first := r.ask(token, "POST", at+"/keys", `{"name":"one"}`, keyHeader, "k1")
	if first.status != http.StatusCreated || first.header.Get(request.HeaderReplayed) != "" {
		t.Fatalf("the first: %s", first)
	}
	for range 2 {
		again := r.ask(token, "POST", at+"/keys", `{"name":"one"}`, keyHeader, "k1")
		if !bytes.Equal(again.body, first.body) || again.status != first.status ||
			again.header.Get(request.HeaderReplayed) != "true" {
			t.Errorf("a repeat: %s, want %s", again, first)
		}
	}
	if n := keys(); n != 1 {
		t.Errorf("%d keys", n)
	}
	if got := r.ask(token, "POST", at+"/keys", `{"name":"two"}`, keyHeader, "k1"); got.code() !=
		"idempotency_key_reused" {
		t.Errorf("another request: %s", got)
	}
	if got := r.ask(r.token(grant.KeysWrite), "POST", at+"/keys", `{"name":"one"}`, keyHeader,
		"k1"); got.status != http.StatusCreated || got.doc["id"] == first.doc["id"] {
		t.Errorf("another token's key: %s", got)
	}
	if got := r.ask(token, "POST", pathAccounts, `{"name":"Harbor"}`, keyHeader, "k2"); got.code() !=
		"account_exists" {
		t.Errorf("a name that is taken: %s", got)
	}
	if got := r.ask(token, "POST", pathAccounts, `{"name":"Pier"}`, keyHeader, "k2"); got.status !=
		http.StatusCreated {
		t.Errorf("the key is free again: %s", got)
	}
	for _, bad := range []string{strings.Repeat("x", 256), "a b"} {
		if got := r.ask(token, "POST", at+"/keys", `{}`, keyHeader, bad); got.code() != "invalid_request" {
			t.Errorf("the key %.20q: %s", bad, got)
		}
	}
	kv, err := r.conn.JS.KeyValue(t.Context(), topology.BucketIdempotency)
	if err != nil {
		t.Fatal(err)
	}
	names, err := kv.Keys(t.Context())
	if err != nil || len(names) == 0 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names {
		var e jetstream.KeyValueEntry
		if e, err = kv.Get(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(name, "k1") || bytes.Contains(e.Value(), []byte(a.ID)) ||
			bytes.Contains(e.Value(), []byte(first.doc["secret"].(string))) {
			t.Errorf("%s lies open: %s", name, e.Value())
		}
	}
}

// Of many requests under one key one creates something; the others learn that it is in progress, or get its
// answer.
func TestManyUnderOneKeyMakeOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	token := r.token(grant.KeysWrite)
	_, at := r.harbor()
	var all sync.WaitGroup
	for range maxOfAddress {
		all.Go(func() {
			got := r.ask(token, "POST", at+"/keys", `{}`, keyHeader, "same")
			if got.status != http.StatusCreated && got.code() != "idempotency_in_progress" {
				t.Errorf("%s", got)
			}
		})
	}
	all.Wait()
	if keys, err := r.accounts.Keys(t.Context()); err != nil || len(keys) != 1 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
}

// A request that may have created something keeps its key: a repeat would create it twice.
func TestUncertainCreationKeepsItsKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	g, err := r.accounts.Token(t.Context(), r.token(grant.KeysWrite))
	if err != nil {
		t.Fatal(err)
	}
	for cause, want := range map[error]problem.Code{
		natsconf.ErrUncertain: problem.CodeIdempotencyInProgress, natsconf.ErrUnavailable: "",
	} {
		ask := func(do func(call) (answer, *problem.Problem)) *problem.Problem {
			req := requestOf("")
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set(keyHeader, strings.ReplaceAll(cause.Error(), " ", "-"))
			_, p := r.handler.once(call{by: tokenActor(g), http: req}, do)
			return p
		}
		if p := ask(func(call) (answer, *problem.Problem) { return answer{}, refusal(cause) }); p == nil ||
			p.Code != problem.CodeUnavailable {
			t.Errorf("%v: %+v", cause, p)
		}
		var got problem.Code
		if p := ask(func(call) (answer, *problem.Problem) { return answer{status: 201}, nil }); p != nil {
			got = p.Code
		}
		if got != want {
			t.Errorf("a repeat after %v: %q, want %q", cause, got, want)
		}
	}
}

// While the first is in progress, or if its process ended during it, a repeat learns that and creates
// nothing.
func TestRepeatWhileTheFirstIsUnderWay(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	token := r.token(grant.KeysWrite)
	g, err := r.accounts.Token(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	first := requestOf("")
	first.Header.Set("Content-Type", "application/json")
	first.Header.Set(keyHeader, "slow")
	a, p := r.handler.once(call{by: tokenActor(g), http: first}, func(call) (answer, *problem.Problem) {
		if got := r.ask(token, "POST", pathAccounts+"/x/keys", `{}`, keyHeader, "slow"); got.code() !=
			"idempotency_key_reused" {
			t.Errorf("another request: %s", got)
		}
		again := requestOf("")
		again.Header = first.Header
		if _, p := r.handler.once(call{by: tokenActor(g), http: again}, nil); p == nil ||
			p.Code != problem.CodeIdempotencyInProgress {
			t.Errorf("a repeat: %+v", p)
		}
		return answer{status: http.StatusCreated, doc: map[string]string{"made": "once"}}, nil
	})
	if p != nil || a.replayed {
		t.Fatalf("%+v, %+v", a, p)
	}
	again := requestOf("")
	again.Header = first.Header
	kept, p := r.handler.once(call{by: tokenActor(g), http: again}, nil)
	if doc, _ := kept.doc.(json.RawMessage); p != nil || !kept.replayed || string(doc) != `{"made":"once"}` {
		t.Errorf("%+v, %+v", kept, p)
	}
}
