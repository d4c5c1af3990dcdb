package manage

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/grant"
)

func tokenActor(g grant.Grant) access.Actor { return access.OperatorToken(g.Token, g.Name) }

// requestOf returns a request whose path names an account.
func requestOf(account string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, pathAccounts, strings.NewReader(`{"name":"Pier"}`))
	r.SetPathValue("account", account)
	return r
}

// The life of an account over HTTP, with its audit log.
func TestAccountsAreManaged(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	token := r.token(grant.AccountsWrite)
	made := r.ask(token, "POST", pathAccounts, `{"name":"Harbor Guild"}`)
	id, _ := made.doc["id"].(string)
	if made.status != http.StatusCreated || id != account.IDOf("Harbor Guild") ||
		made.doc["state"] != "in_service" {
		t.Fatalf("create: %s", made)
	}
	if a := r.ask(token, "POST", pathAccounts, `{"name":"Harbor Guild"}`); a.code() != "account_exists" {
		t.Errorf("a repeat: %s", a)
	}
	at := pathAccounts + "/" + id
	changed := r.ask(token, "PATCH", at, `{"name":"Harbour","verified_name":"Harbour","quota":500,
		"binding":"code","max_users":3,"return_url":"https://harbor.example/done","colour":"#1F5FD0",
		"disabled":true,"disabled_reason":"Its bill is open."}`)
	for name, want := range map[string]any{
		"name": "Harbour", "verified_name": "Harbour", "quota": 500.0, "binding": "code", "max_users": 3.0,
		"return_url": "https://harbor.example/done", "colour": "#1f5fd0", "disabled": true,
		"disabled_reason": "Its bill is open.", "state": "disabled",
	} {
		if changed.doc[name] != want {
			t.Errorf("%s is %v, want %v", name, changed.doc[name], want)
		}
	}
	unset := r.ask(token, "PATCH", at, `{"verified_name":null,"quota":null,"binding":null,"max_users":null,
		"return_url":null,"colour":null,"disabled":false}`)
	for _, name := range []string{
		"verified_name", "verified_at", "quota", "binding", "max_users", "return_url", "colour",
		"disabled_at",
	} {
		if v, given := unset.doc[name]; v != nil || !given {
			t.Errorf("%s is %v (%t), want null", name, v, given)
		}
	}
	if a := r.ask(token, "DELETE", at, ""); a.doc["state"] != "deletion_asked" || a.doc["deletes_at"] == nil {
		t.Errorf("delete: %s", a)
	}
	if a := r.ask(token, "PATCH", at, `{"disabled":false}`); a.code() != "state_conflict" {
		t.Errorf("enable what is deleted: %s", a)
	}
	if a := r.ask(token, "POST", at+"/restore", ""); a.doc["state"] != "in_service" {
		t.Errorf("restore: %s", a)
	}
	read := r.ask(token, "GET", at, "")
	by, _ := read.doc["created_by"].(map[string]any)
	if by["kind"] != "operator" ||
		!strings.HasPrefix(fmt.Sprint(by["name"]), "operator token deploy (optok_") {
		t.Errorf("made by %v", read.doc["created_by"])
	}
	log, err := r.accounts.Audit(t.Context(), id, "", 0)
	if err != nil || len(log.Records) < 12 {
		t.Fatalf("%d records, %v", len(log.Records), err)
	}
	for _, record := range log.Records {
		if !record.Who.IsToken() || record.Who.Name != "deploy" {
			t.Errorf("%s by %+v", record.What, record.Who)
		}
	}
}

// Pages of a list hold each account once, and a name finds its account.
func TestAccountsAreListed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	token := r.token(grant.AccountsRead)
	const many = 7
	for i := range many {
		name := fmt.Sprintf("Guild %d é", i)
		if _, err := r.accounts.CreateAccount(t.Context(), console, name); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for next, pages := "", 0; ; pages++ {
		query := "?limit=3"
		if next != "" {
			query += "&cursor=" + next
		}
		var page accountList
		if err := json.Unmarshal(r.ask(token, "GET", pathAccounts+query, "").body, &page); err != nil {
			t.Fatal(err)
		}
		for _, a := range page.Accounts {
			names = append(names, a.Name)
		}
		if page.Next == nil {
			if pages != 2 {
				t.Errorf("the last page is number %d", pages)
			}
			break
		}
		next = *page.Next
	}
	if len(names) != many || names[0] != "Guild 0 é" || names[many-1] != "Guild 6 é" {
		t.Errorf("%q", names)
	}
	found := r.ask(token, "GET", pathAccounts+"?name="+url.QueryEscape("Guild 4 é"), "")
	if !strings.Contains(string(found.body), account.IDOf("Guild 4 é")) ||
		strings.Contains(string(found.body), "Guild 5") {
		t.Errorf("by name: %s", found)
	}
	if a := r.ask(token, "GET", pathAccounts+"?name=Nobody", ""); a.status != http.StatusOK ||
		len(a.doc["accounts"].([]any)) != 0 {
		t.Errorf("nobody's name: %s", a)
	}
}

// A malformed request is refused with what is wrong, and changes nothing.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	token := r.token(grant.Scopes()...)
	a, err := r.accounts.CreateAccount(t.Context(), console, "Harbor")
	if err != nil {
		t.Fatal(err)
	}
	at := pathAccounts + "/" + a.ID
	for _, c := range []struct{ method, path, body, code, says string }{
		{"POST", pathAccounts, ``, "unsupported_media", "application/json"},
		{"POST", pathAccounts, `[]`, "invalid_request", "not an object"},
		{"POST", pathAccounts, `{"name":"A"} x`, "invalid_request", "after the object"},
		{"POST", pathAccounts, `{"name":"A","name":"B"}`, "invalid_request", "twice"},
		{"POST", pathAccounts, `{"name":7}`, "invalid_request", "must be a string"},
		{"POST", pathAccounts, `{"Name":"A"}`, "invalid_request",
			"there is no such field; the fields are name, grant_name"},
		{"POST", pathAccounts, `{"name":"A","grant_name":"yes"}`, "invalid_request", "it must be true or false"},
		{"POST", pathAccounts, `{"name":"A","quota":5}`, "invalid_request", "quota: there is no such field"},
		{"POST", pathAccounts, "{\"name\":\"\xff\"}", "invalid_request", "not UTF-8"},
		{"POST", pathAccounts, `{"name":""}`, "invalid_value", "name"},
		{"POST", pathAccounts, `{"name":"` + strings.Repeat("x", 129) + `"}`, "invalid_value", "name"},
		{"POST", pathAccounts, `{"name":"a\u202eb"}`, "invalid_value", "name"},
		{"POST", pathAccounts, `{"name":"` + strings.Repeat("x", 17<<10) + `"}`, "body_too_large", "16384"},
		{"PATCH", at, `{}`, "invalid_request", "changes nothing"},
		{"PATCH", at, `{"quota":0}`, "invalid_request", "1 or more, or null"},
		{"PATCH", at, `{"quota":-5}`, "invalid_request", "1 or more, or null"},
		{"PATCH", at, `{"quota":1.5}`, "invalid_request", "whole number"},
		{"PATCH", at, `{"quota":1e400}`, "invalid_request", "whole number"},
		{"PATCH", at, `{"quota":"5"}`, "invalid_request", "is a string; it must be a whole number"},
		{"PATCH", at, `{"max_users":99999999999999}`, "invalid_value", "max_users"},
		{"PATCH", at, `{"binding":"blood"}`, "invalid_value", "link, code or account"},
		{"PATCH", at, `{"colour":"red"}`, "invalid_value", "#1f5fd0"},
		{"PATCH", at, `{"return_url":"http://a.example/"}`, "invalid_value", "https"},
		{"PATCH", at, `{"verified_name":"Somebody else"}`, "invalid_value", "is now called"},
		{"PATCH", at, `{"disabled_reason":"because"}`, "invalid_request", "disabled: true"},
		{"PATCH", at, `{"grant_name":true}`, "invalid_request", "only allowed with name"},
		{"PATCH", at, `{"disabled":null}`, "invalid_request", "true or false"},
		{"PATCH", pathAccounts + "/Harbor", `{"quota":5}`, "account_not_found", "by their id"},
		{"GET", pathAccounts + "/acc_.*", ``, "account_not_found", "by their id"},
		{"GET", pathAccounts + "/%3E", ``, "account_not_found", "by their id"},
		{"DELETE", filled(pathAccount), ``, "account_not_found", "no account"},
		{"POST", filled(pathRestore), ``, "account_not_found", "no account"},
		{"GET", pathAccounts + "?limit=0", ``, "invalid_request", "from 1 to 500"},
		{"GET", pathAccounts + "?limit=501", ``, "invalid_request", "from 1 to 500"},
		{"GET", pathAccounts + "?cursor=!!", ``, "invalid_request", "next of an earlier answer"},
		{"GET", pathAccounts + "?nam=x", ``, "invalid_request", "the parameters are name, limit, cursor"},
		{"GET", pathAccounts + "?%ff=1", ``, "invalid_request", "the parameters are name, limit, cursor"},
		{"GET", pathAccounts + "/%ff", ``, "account_not_found", "by their id"},
		{"GET", at + "/audit?cursor=%ff", ``, "invalid_request", "next of an earlier answer"},
		{"GET", pathAccounts + "?name=a&name=b", ``, "invalid_request", "send it once"},
		{"GET", pathAccounts + "?name=%zz", ``, "invalid_request", "percent-encoded"},
	} {
		got := r.ask(token, c.method, c.path, c.body)
		if got.code() != c.code || !strings.Contains(strings.ReplaceAll(string(got.body), `\"`, `"`), c.says) {
			t.Errorf("%s %s %.60s: want %s with %q, got %s", c.method, c.path, c.body, c.code, c.says, got)
		}
	}
	if a, err := r.accounts.Account(t.Context(), a.ID); err != nil || a.Quota != 0 || a.Colour != "" {
		t.Errorf("it was changed: %+v, %v", a, err)
	}
	if all, err := r.accounts.Accounts(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%d accounts, %v", len(all), err)
	}
}
