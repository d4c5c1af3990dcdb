package manage

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/grant"
	client "verifyd/edge/client/manage"
	"verifyd/edge/limit"
	"verifyd/edge/places"
	"verifyd/edge/problem"
	"verifyd/natsconf/topology"
)

// refusing takes every failure for one too many, once it is on.
type refusing struct{ on atomic.Bool }

func (r *refusing) Fail(netip.Addr, time.Time) limit.Decision {
	return limit.Decision{Allowed: !r.on.Load(), RetryAfter: time.Second}
}

// notGiven are answers that require a store that fails in the middle of a write.
var notGiven = []string{"createKey 202", "rollKey 202", "rotateSecret 202"}

// Every answer that the document describes is given by the running server, and each is as described.
func TestEveryDescribedAnswerIsGiven(t *testing.T) {
	t.Parallel()
	failures := &refusing{}
	r := newRig(t, func(c *Config) { c.FailedKeys = failures })
	doc, err := described()
	if err != nil {
		t.Fatal(err)
	}
	token, broken := r.token(grant.Scopes()...), r.breakToken()
	a, at := r.harbor()
	var slow []operation
	for _, o := range r.handler.operations() {
		path := filled(o.path)
		r.ask("", o.method, path, "")
		r.ask("vfyop_x", o.method, path, "")
		failures.on.Store(true)
		r.ask("", o.method, path, "")
		failures.on.Store(false)
		r.ask(broken, o.method, path, "")
		others := slices.DeleteFunc(grant.Scopes(), func(s grant.Scope) bool {
			return strings.HasPrefix(string(s), strings.SplitN(string(o.scope), ":", 2)[0])
		})
		r.ask(r.token(others...), o.method, path, "")
		r.crowded(func() { r.ask(token, o.method, path, "") })
		if doc.Paths.Value(o.path).GetOperation(o.method).RequestBody == nil {
			continue
		}
		r.ask(token, o.method, path+"?network=a&subject=b", `[]`)
		r.ask(token, o.method, path+"?network=a&subject=b", `{}`, "Content-Type", "text/plain")
		r.ask(token, o.method, path+"?network=a&subject=b", strings.Repeat(" ", 17<<10)+"{}")
		slow = append(slow, o)
		if o.makes {
			r.turnTaken(token, o.method, path)
		}
	}
	var waiting sync.WaitGroup
	for _, o := range slow { // concurrently: each lasts until the server gives up its body
		waiting.Go(func() { r.askSlowly(token, o.method, filled(o.path)+"?network=a&subject=b") })
	}
	waiting.Wait()
	r.give(token, a, at)
	r.answers.NothingMissing(150, notGiven...)
}

// give causes the answers that depend on stored data.
func (r *rig) give(token string, a account.Account, at string) {
	r.t.Helper()
	ctx := r.t.Context()
	for _, m := range []account.Member{
		{Network: "n", Subject: "1", Role: access.RoleOwner},
		{Network: "n", Subject: "2", Role: access.RoleViewer},
	} {
		if _, err := r.accounts.AddMember(ctx, console, a.ID, m); err != nil {
			r.t.Fatal(err)
		}
	}
	nobody := filled(pathAccount)
	key := r.ask(token, "POST", at+"/keys", `{}`).doc["id"].(string)
	invite := r.ask(token, "POST", at+"/invites", `{"role":"viewer"}`).doc["id"].(string)
	for _, c := range [][3]string{
		{"POST", pathAccounts, `{"name":"Pier"}`}, {"POST", pathAccounts, `{"name":"Pier"}`},
		{"POST", pathAccounts, `{"name":""}`}, {"GET", pathAccounts}, {"GET", pathAccounts + "?x=y"},
		{"GET", at}, {"GET", nobody}, {"PATCH", at, `{"quota":5}`}, {"PATCH", at, `{"name":"Pier"}`},
		{"PATCH", at, `{"colour":"x"}`}, {"PATCH", nobody, `{"quota":5}`}, {"DELETE", at}, {"DELETE", nobody},
		{"PATCH", at, `{"disabled":false}`}, {"POST", at + "/restore"}, {"POST", nobody + "/restore"},
		{"GET", pathAllKeys}, {"GET", pathAllKeys + "?x=y"}, {"GET", at + "/keys"}, {"GET", at + "/keys?x=y"},
		{"GET", nobody + "/keys"}, {"POST", nobody + "/keys", `{}`}, {"POST", at + "/keys", `{"name":" "}`},
		{"POST", at + "/keys/" + key + "/roll", `{"grace_seconds":-1}`},
		{"POST", at + "/keys/" + key + "/roll", `{}`}, {"POST", at + "/keys/" + key + "/roll", `{}`},
		{"POST", at + "/keys/key_x/roll", `{}`}, {"DELETE", at + "/keys/" + key}, {"DELETE", at + "/keys/key_x"},
		{"GET", at + "/members"}, {"GET", nobody + "/members"},
		{"PATCH", at + "/members?network=n&subject=2", `{"role":"developer"}`},
		{"PATCH", at + "/members?network=n&subject=1", `{"role":"viewer"}`},
		{"PATCH", at + "/members?network=n&subject=2", `{"role":"x"}`},
		{"PATCH", at + "/members?network=n&subject=3", `{"role":"viewer"}`},
		{"PATCH", nobody + "/members?network=n&subject=3", `{"role":"viewer"}`},
		{"DELETE", at + "/members?network=n&subject=1"}, {"DELETE", at + "/members?network=n&subject=2"},
		{"DELETE", at + "/members?network=n&subject=3"}, {"DELETE", at + "/members"},
		{"DELETE", at + "/members?member=mem_x"},
		{"DELETE", nobody + "/members?network=n&subject=3"},
		{"POST", nobody + "/invites", `{"role":"viewer"}`}, {"POST", at + "/invites", `{"role":"x"}`},
		{"DELETE", at + "/invites/" + invite}, {"DELETE", at + "/invites/" + invite},
		{"DELETE", nobody + "/invites/" + invite}, {"GET", pathNetworks},
	} {
		r.ask(token, c[0], c[1], c[2])
	}
	r.giveSecretsAndMoves(token, at, nobody)
	// If the account is gone, it has no keys.
	gone := pathAccounts + "/" + account.IDOf("Gone")
	other, err := r.accounts.CreateAccount(ctx, console, "Gone")
	if err != nil {
		r.t.Fatal(err)
	}
	_, k, err := r.accounts.CreateKey(ctx, console, other.ID, account.KeyOptions{})
	if err == nil {
		_, err = r.accounts.DeleteAccount(ctx, console, other.ID, false)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.ask(token, "POST", gone+"/keys/"+k.ID+"/roll", `{}`)
	r.ask(token, "DELETE", gone+"/keys/"+k.ID, "")
	if a := r.ask(token, "GET", gone+"/audit?limit=1", ""); a.status != http.StatusOK ||
		a.doc["next"] == nil {
		r.t.Errorf("the audit log of an account that was deleted: %s", a)
	}
	for range 200 { // as many as there may be
		if got := r.ask(token, "POST", at+"/invites", `{"role":"viewer"}`); got.status == http.StatusConflict {
			return
		}
	}
	r.t.Error("the account is never full")
}

// giveSecretsAndMoves is give for signing secrets, login links and moved members.
func (r *rig) giveSecretsAndMoves(token, at, nobody string) {
	r.t.Helper()
	pier := account.IDOf("Pier")
	for id, roles := range map[string][2]access.Role{
		strings.TrimPrefix(at, pathAccounts+"/"): {access.RoleViewer, access.RoleViewer},
		pier:                                     {access.RoleOwner},
	} {
		for i, role := range roles {
			m := account.Member{Network: "n", Subject: strconv.Itoa(4 + i), Role: role}
			if role == "" {
				continue
			}
			if _, err := r.accounts.AddMember(r.t.Context(), console, id, m); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	move := func(from, subject, to string) [3]string {
		return [3]string{"POST", from + "/members/move?network=n&subject=" + subject, `{"to":"` + to + `"}`}
	}
	for _, c := range [][3]string{
		{"GET", at + "/secrets"}, {"GET", nobody + "/secrets"},
		{"DELETE", at + "/secrets/previous"}, {"DELETE", nobody + "/secrets/previous"},
		{"POST", at + "/secrets", `{"overlap_seconds":-1}`}, {"POST", at + "/secrets", `{}`},
		{"POST", at + "/secrets", `{}`}, {"POST", nobody + "/secrets", `{}`},
		{"DELETE", at + "/secrets/previous"}, {"GET", at + "/audit"}, {"GET", nobody + "/audit"},
		{"GET", at + "/audit?cursor=x"},
		{"GET", at + "/login-links"}, {"GET", nobody + "/login-links"},
		move(at, "4", pier), move(at, "5", pier), move(at, "9", pier), move(nobody, "4", pier),
		{"POST", at + "/members/move?network=n&subject=5", `{"to":"` + pier + `","role":"x"}`},
	} {
		r.ask(token, c[0], c[1], c[2])
	}
}

// breakToken creates a token whose grant cannot be read.
func (r *rig) breakToken() string {
	r.t.Helper()
	kv, err := r.conn.JS.KeyValue(r.t.Context(), topology.BucketOperations)
	if err != nil {
		r.t.Fatal(err)
	}
	before, _ := kv.Keys(r.t.Context())
	token := r.token(grant.Scopes()...)
	after, err := kv.Keys(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, name := range after {
		if slices.Contains(before, name) {
			continue
		}
		if _, err := kv.Put(r.t.Context(), name, []byte("{")); err != nil {
			r.t.Fatal(err)
		}
	}
	return token
}

// maxOfAddress is how many requests of one address may be in progress.
var maxOfAddress = places.Pools.Managing.Each

// crowded runs do while this address has the maximum of concurrent requests.
func (r *rig) crowded(do func()) {
	r.t.Helper()
	for range maxOfAddress {
		release, err := r.handler.places.Acquire(places.Request{
			Of: limit.SiteOf(netip.MustParseAddr("127.0.0.1")),
		})
		if err != nil {
			r.t.Fatal(err)
		}
		defer release()
	}
	do()
}

// askSlowly sends a request whose body does not arrive to a server with a short timeout, which other requests
// could not use.
func (r *rig) askSlowly(token, method, path string) {
	r.t.Helper()
	impatient := httptest.NewUnstartedServer(r.Config.Handler)
	impatient.Config.ReadTimeout = 2 * time.Second
	impatient.StartTLS()
	defer impatient.Close()
	body, held := io.Pipe()
	defer func() { _ = held.Close() }()
	req, err := http.NewRequestWithContext(context.Background(), method, impatient.URL+path, body)
	if err != nil {
		r.t.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.ContentLength = 10
	resp, err := r.Client().Do(req)
	if err != nil {
		r.t.Error(err)
		return
	}
	_ = resp.Body.Close()
}

// turnTaken sends a request while the first with the same key is in progress, and one with a key of another
// request.
func (r *rig) turnTaken(token, method, path string) {
	r.t.Helper()
	g, err := r.accounts.Token(r.t.Context(), token)
	if err != nil {
		r.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, path, strings.NewReader(`{"x":1}`))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(keyHeader, "taken"+strings.ReplaceAll(path, "/", "-"))
	_, _ = r.handler.once(call{by: tokenActor(g), http: req}, func(call) (answer, *problem.Problem) {
		r.ask(token, method, path, `{"x":1}`, keyHeader, req.Header.Get(keyHeader))
		r.ask(token, method, path, `{"x":2}`, keyHeader, req.Header.Get(keyHeader))
		return answer{status: http.StatusOK}, nil
	})
}

// The Go client returns every member of every answer, and has none that no answer has.
func TestGoClientHasEveryMember(t *testing.T) {
	doc, err := described()
	if err != nil {
		t.Fatal(err)
	}
	schema := func(name string) *openapi3.Schema { return doc.Components.Schemas[name].Value }
	part := func(s *openapi3.Schema, name string) *openapi3.Schema {
		if p := s.Properties[name].Value; p.Items == nil {
			return p
		}
		return s.Properties[name].Value.Items.Value
	}
	for of, s := range map[reflect.Type]*openapi3.Schema{
		reflect.TypeFor[client.Account]():    schema("Account"),
		reflect.TypeFor[client.MadeKey]():    schema("MadeKey"),
		reflect.TypeFor[client.Key]():        schema("ListedKey"),
		reflect.TypeFor[client.People]():     schema("People"),
		reflect.TypeFor[client.Invite]():     schema("MadeInvite"),
		reflect.TypeFor[client.Field]():      part(schema("Problem"), "errors"),
		reflect.TypeFor[client.Member]():     part(schema("People"), "members"),
		reflect.TypeFor[client.Network]():    part(schema("Networks"), "networks"),
		reflect.TypeFor[client.Former]():     part(schema("Account"), "former_names"),
		reflect.TypeFor[client.Creator]():    part(schema("Account"), "created_by"),
		reflect.TypeFor[client.Logo]():       part(schema("Account"), "logo"),
		reflect.TypeFor[client.LoginLink]():  schema("LoginLink"),
		reflect.TypeFor[client.Secret]():     schema("Secret"),
		reflect.TypeFor[client.Record]():     schema("Record"),
		reflect.TypeFor[client.MadeSecret](): schema("MadeSecret"),
	} {
		have := map[string]bool{}
		for _, f := range reflect.VisibleFields(of) {
			if name := f.Tag.Get("json"); name != "" {
				have[name] = true
			}
		}
		if of == reflect.TypeFor[client.MadeKey]() {
			delete(have, "last_used_at") // of lists
		}
		want := map[string]bool{}
		for name := range s.Properties {
			want[name] = true
		}
		if !maps.Equal(have, want) {
			t.Errorf("%s has %v, the document %v", of, slices.Sorted(maps.Keys(have)),
				slices.Sorted(maps.Keys(want)))
		}
	}
}
