package manage

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/grant"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// harbor creates an account and returns its path.
func (r *rig) harbor() (a account.Account, at string) {
	r.t.Helper()
	a, err := r.accounts.CreateAccount(r.t.Context(), console, "Harbor")
	if err != nil {
		r.t.Fatal(err)
	}
	return a, pathAccounts + "/" + a.ID
}

// The life of keys over HTTP: the secret is shown once, works, and is refused when it is revoked.
func TestKeysAreManaged(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	token := r.token(grant.KeysWrite)
	a, at := r.harbor()
	made := r.ask(token, "POST", at+"/keys", `{"name":"production","expires_at":"2099-01-31T12:00:00Z",
		"rate_limit":"5/s","policy":"at-least-once"}`)
	secret, _ := made.doc["secret"].(string)
	id, _ := made.doc["id"].(string)
	if made.status != http.StatusCreated || made.doc["rate_limit"] != "5/s" || made.doc["stored"] != true ||
		made.doc["policy"] != "at-least-once" || made.doc["expires_at"] != "2099-01-31T12:00:00.000Z" ||
		!strings.HasSuffix(secret, strings.TrimPrefix(made.doc["hint"].(string), "vfy_…")) {
		t.Fatalf("create: %s", made)
	}
	natstest.Await(t, "the key works", func() bool {
		who, err := r.mirror.Lookup(secret)
		return err == nil && who.Key.ID == id
	})
	rolled := r.ask(token, "POST", at+"/keys/"+id+"/roll", `{"grace_seconds":60}`)
	if rolled.status != http.StatusCreated || rolled.doc["replaces"] != id || rolled.doc["secret"] == secret {
		t.Errorf("roll: %s", rolled)
	}
	if a := r.ask(token, "POST", at+"/keys/"+id+"/roll", `{}`); a.code() != "state_conflict" {
		t.Errorf("roll again: %s", a)
	}
	next, _ := rolled.doc["id"].(string)
	for range 2 { // a repeat is harmless
		if a := r.ask(token, "DELETE", at+"/keys/"+next, ""); a.doc["state"] != "revoked" {
			t.Errorf("revoke: %s", a)
		}
	}
	natstest.Await(t, "the key is refused", func() bool {
		_, err := r.mirror.Lookup(rolled.doc["secret"].(string))
		return err != nil
	})
	list := r.ask(token, "GET", at+"/keys", "")
	if strings.Contains(string(list.body), secret) || !strings.Contains(string(list.body), `"rolled"`) {
		t.Errorf("list: %s", list)
	}
	log, err := r.accounts.Audit(t.Context(), a.ID, "", 0)
	if err != nil || len(log.Records) != 4 || !log.Records[0].Who.IsToken() {
		t.Errorf("the audit log: %+v, %v", log.Records, err)
	}
}

// Pages of keys hold each once, of one account or of all; an id finds its key.
func TestKeysAreListed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	token := r.token(grant.KeysRead)
	a, at := r.harbor()
	other, err := r.accounts.CreateAccount(t.Context(), console, "Pier")
	if err != nil {
		t.Fatal(err)
	}
	const many = 5
	var last account.Key
	for i := range many + 2 {
		id := a.ID
		if i >= many {
			id = other.ID
		}
		if _, last, err = r.accounts.CreateKey(t.Context(), console, id, account.KeyOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]int{at + "/keys": many, pathAllKeys: many + 2} {
		ids := map[string]bool{}
		for next := ""; ; {
			var page keyList
			if err := json.Unmarshal(r.ask(token, "GET", path+"?limit=2&"+next, "").body, &page); err != nil {
				t.Fatal(err)
			}
			for _, k := range page.Keys {
				if ids[k.ID] {
					t.Errorf("%s: %s is there twice", path, k.ID)
				}
				ids[k.ID] = true
			}
			if page.Next == nil {
				break
			}
			next = "cursor=" + *page.Next
		}
		if len(ids) != want {
			t.Errorf("%s: %d keys, want %d", path, len(ids), want)
		}
	}
	found := r.ask(token, "GET", pathAllKeys+"?id="+last.ID, "")
	if !strings.Contains(string(found.body), `"account":"`+other.ID) || strings.Contains(string(found.body),
		a.ID) {
		t.Errorf("by its id: %s", found)
	}
}

func TestHostileKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	token := r.token(grant.KeysWrite)
	_, at := r.harbor()
	other, err := r.accounts.CreateAccount(t.Context(), console, "Pier")
	if err != nil {
		t.Fatal(err)
	}
	secret, theirs, err := r.accounts.CreateKey(t.Context(), console, other.ID, account.KeyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ method, path, body, code, says string }{
		{"POST", at + "/keys", `{"mode":"Test"}`, "invalid_request", "live or test"},
		{"POST", at + "/keys", `{"test":true}`, "invalid_request", "no such field"},
		{"POST", at + "/keys", `{"expires_at":"tomorrow"}`, "invalid_request", "not an instant"},
		{"POST", at + "/keys", `{"expires_at":"2001-01-01T00:00:00Z"}`, "invalid_value", "has passed"},
		{"POST", at + "/keys", `{"expires_at":"9999-01-01T00:00:00Z"}`, "invalid_value", "100 years"},
		{"POST", at + "/keys", `{"rate_limit":"fast"}`, "invalid_request", "not a rate"},
		{"POST", at + "/keys", `{"rate_limit":5}`, "invalid_request", "must be a string"},
		{"POST", at + "/keys", `{"policy":"twice"}`, "invalid_request", "at-least-once"},
		{"POST", at + "/keys", `{"name":" x"}`, "invalid_value", "name"},
		{"POST", filled(pathKeys), `{}`, "account_not_found", "no account"},
		{"GET", filled(pathKeys), ``, "account_not_found", "no account"},
		{"GET", at + "/keys?cursor=YWJj", ``, "invalid_request", "next of an earlier"},
		{"GET", pathAllKeys + "?account=x", ``, "invalid_request", "the parameters are id, limit, cursor"},
		{"DELETE", at + "/keys/" + theirs.ID, ``, "api_key_not_found", "no API key with this id"},
		{"DELETE", at + "/keys/" + secret, ``, "api_key_not_found", "no API key with this id"},
		{"DELETE", at + "/keys/*", ``, "api_key_not_found", "no API key with this id"},
		{"POST", at + "/keys/" + theirs.ID + "/roll", `{}`, "api_key_not_found", "no API key"},
		{"POST", pathAccounts + "/" + other.ID + "/keys/" + theirs.ID + "/roll", `{"grace_seconds":-1}`,
			"invalid_value", "grace"},
		{"POST", pathAccounts + "/" + other.ID + "/keys/" + theirs.ID + "/roll",
			`{"grace_seconds":9223372036854775807}`, "invalid_value", "grace"},
	} {
		got := r.ask(token, c.method, c.path, c.body)
		if got.code() != c.code || !strings.Contains(string(got.body), c.says) {
			t.Errorf("%s %s %s: want %s with %q, got %s", c.method, c.path, c.body, c.code, c.says, got)
		}
	}
	if a := r.ask(token, "DELETE", pathAccounts+"//keys/"+theirs.ID, ""); a.status < 400 {
		t.Errorf("without an account: %s", a)
	}
	natstest.Await(t, "the key works", func() bool {
		_, err := r.mirror.Lookup(secret)
		return err == nil
	})
}

// What a newer build has written is left out of lists, and is not said to be missing.
func TestListsLeaveOutWhatIsNewer(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	token := r.token(grant.AccountsRead, grant.KeysWrite)
	a, at := r.harbor()
	if got := r.ask(token, "POST", at+"/keys", `{"name":"one"}`); got.status != http.StatusCreated {
		t.Fatal(got)
	}
	const newer = `{"v":99}`
	id := "key_" + strings.Repeat("a", 16)
	natstest.Publish(t, r.conn, topology.BucketSubject(topology.BucketAccounts, account.IDOf("Newer")),
		[]byte(newer))
	natstest.Publish(t, r.conn, topology.BucketSubject(topology.BucketKeys, strings.Repeat("a", 64)),
		[]byte(newer))
	for path, list := range map[string]string{
		pathAccounts: "accounts", "/manage/keys": "keys", at + "/keys": "keys",
	} {
		got := r.ask(token, "GET", path, "")
		if all, _ := got.doc[list].([]any); len(all) != 1 || got.status != http.StatusOK {
			t.Errorf("%s of %s: %s", path, a.Name, got)
		}
	}
	if got := r.ask(token, "GET", "/manage/keys?id="+id, ""); got.status != http.StatusServiceUnavailable {
		t.Errorf("a key that may be there: %s", got)
	}
	if !strings.Contains(r.log.String(), "newer build") {
		t.Errorf("the log does not name them: %s", r.log)
	}
}

// Members and invites over HTTP.
func TestMembersAreManaged(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.BaseURL = "https://verify.example.com" })
	token := r.token(grant.MembersWrite)
	a, at := r.harbor()
	const subject = `a/b?c=d&e%2F ü`
	for _, m := range []account.Member{
		{Network: "example", Subject: subject, Name: "Ann", Role: access.RoleOwner},
		{Network: "example", Subject: "2", Name: "<b>Bob", Role: access.RoleViewer},
	} {
		if _, err := r.accounts.AddMember(t.Context(), console, a.ID, m); err != nil {
			t.Fatal(err)
		}
	}
	ann := at + "/members?network=example&subject=a%2Fb%3Fc%3Dd%26e%252F+%C3%BC"
	if got := r.ask(token, "PATCH", ann, `{"role":"viewer"}`); got.code() != "state_conflict" {
		t.Errorf("the last owner: %s", got)
	}
	if got := r.ask(token, "DELETE", ann, ``); got.code() != "state_conflict" {
		t.Errorf("the last owner goes: %s", got)
	}
	bob := at + "/members?member=" + access.Identity{Network: "example", Subject: "2"}.Address()
	if got := r.ask(token, "PATCH", bob, `{"role":"owner"}`); strings.Count(string(got.body), `"owner"`) != 2 {
		t.Errorf("a second owner: %s", got)
	}
	if got := r.ask(token, "DELETE", ann, ``); len(got.doc["members"].([]any)) != 1 ||
		!strings.HasSuffix(bob, got.doc["members"].([]any)[0].(map[string]any)["id"].(string)) {
		t.Errorf("the first owner goes: %s", got)
	}
	made := r.ask(token, "POST", at+"/invites", `{"role":"developer","for":"Cy"}`)
	link, _ := made.doc["link"].(string)
	secret, ok := strings.CutPrefix(link, "https://verify.example.com/dashboard/invite?token=")
	if made.status != http.StatusCreated || !ok {
		t.Fatalf("invite: %s", made)
	}
	if _, i, err := r.accounts.Invite(t.Context(), secret); err != nil || i.Role != access.RoleDeveloper {
		t.Errorf("the link leads to %+v, %v", i, err)
	}
	if got := r.ask(token, "GET", at+"/members", ""); strings.Contains(string(got.body), secret) ||
		len(got.doc["invites"].([]any)) != 1 {
		t.Errorf("list: %s", got)
	}
	r.isVoid(at)
	invite := at + "/invites/" + made.doc["id"].(string)
	if got := r.ask(token, "DELETE", invite, ""); got.status != http.StatusOK ||
		len(got.doc["invites"].([]any)) != 0 {
		t.Errorf("withdraw: %s", got)
	}
	for _, c := range []struct{ method, path, body, code, says string }{
		{"DELETE", invite, ``, "invite_not_found", "accepted or withdrawn"},
		{"DELETE", at + "/members", ``, "invalid_request", "network: it is required"},
		{"DELETE", at + "/members?network=example", ``, "invalid_request", "subject: it is required"},
		{"DELETE", at + "/members?network=example&subject=9", ``, "member_not_found", "no such member"},
		{"DELETE", at + "/members?member=mem_9", ``, "member_not_found", "no such member"},
		{"DELETE", at + "/members?member=", ``, "invalid_request", "it is empty"},
		{"DELETE", bob + "&subject=2", ``, "invalid_request", "subject: there is no such parameter"},
		{"PATCH", bob, `{"role":"admin"}`, "invalid_value", "owner, developer or viewer"},
		{"PATCH", bob, `{}`, "invalid_request", "role: the field is required"},
		{"POST", at + "/invites", `{"role":"viewer","for":"a\nb"}`, "invalid_value", "for"},
		{"POST", at + "/invites", `{"role":"viewer","link":"x"}`, "invalid_request", "no such field"},
		{"POST", filled(pathInvites), `{"role":"viewer"}`, "account_not_found", "no account"},
	} {
		got := r.ask(token, c.method, c.path, c.body)
		if got.code() != c.code || !strings.Contains(string(got.body), c.says) {
			t.Errorf("%s %s %s: want %s with %q, got %s", c.method, c.path, c.body, c.code, c.says, got)
		}
	}
}

// isVoid makes an invite into an account that has one, with a token that is revoked then: it is not listed.
func (r *rig) isVoid(at string) {
	r.t.Helper()
	_, g, err := r.accounts.CreateToken(r.t.Context(), console, "old", []grant.Scope{grant.MembersWrite},
		r.now().Add(time.Hour))
	if err != nil {
		r.t.Fatal(err)
	}
	id := at[strings.LastIndexByte(at, '/')+1:]
	if _, _, err := r.accounts.CreateInvite(r.t.Context(), access.OperatorToken(g.Token, g.Name), id,
		access.RoleOwner, ""); err != nil {
		r.t.Fatal(err)
	}
	if err := r.accounts.RevokeToken(r.t.Context(), console, g.Token); err != nil {
		r.t.Fatal(err)
	}
	got := r.ask(r.token(grant.MembersRead), "GET", at+"/members", "")
	if len(got.doc["invites"].([]any)) != 1 {
		r.t.Errorf("a void invite is listed: %s", got)
	}
}

func TestNetworksAreListed(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.Networks = func() []Network { return []Network{{ID: "example", Name: "Example", Live: true}} }
	})
	if a := r.ask(r.token(grant.NetworksRead), "GET", pathNetworks, ""); len(a.doc["networks"].([]any)) != 1 {
		t.Errorf("%s", a)
	}
}
