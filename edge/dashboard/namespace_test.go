package dashboard_test

import (
	"net/http"
	"strings"
	"testing"

	"verifyd/edge/account/access"
	"verifyd/edge/dashboard/logins"
)

// A person with a member's or an operator's subject at another provider, to which the network's id was
// pointed, is neither; earlier logins end; and new members are identified by the new provider.
func TestAnotherProviderDoesNotLogInAsMember(t *testing.T) {
	t.Parallel()
	const namespace = "example~mzxw6ytboi"
	r := newRig(t, setup{namespace: namespace})
	a := r.account("Harbor Guild")
	r.grant("olga")
	b := r.browser()
	b.login("olga")
	if got := b.Get("/dashboard/keys"); got.Status != http.StatusSeeOther ||
		!strings.Contains(got.Header.Get("Location"), "/dashboard/new-account") {
		t.Errorf("another provider's olga: %d to %q", got.Status, got.Header.Get("Location"))
	}
	b.Get("/dashboard/operator").Want(t, http.StatusForbidden, "This page is for operators")
	before, err := r.logins.Begin(t.Context(), logins.Login{
		Network: "example", Subject: "olga", Name: "Olga",
	})
	if err != nil {
		t.Fatal(err)
	}
	old := r.browser()
	q := old.Request(http.MethodGet, "/dashboard/keys", "")
	q.AddCookie(&http.Cookie{Name: "verifyd_login", Value: before})
	if got := old.Do(q); got.Status != http.StatusSeeOther ||
		!strings.Contains(got.Header.Get("Location"), "/dashboard/login") {
		t.Errorf("a login from before: %d to %q", got.Status, got.Header.Get("Location"))
	}
	token, _, err := r.accounts.CreateInvite(t.Context(), access.Operator(""), a.ID, access.RoleOwner, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.post("/dashboard/invite", "token", token); err.Status != http.StatusSeeOther {
		t.Fatalf("accept: %d", err.Status)
	}
	now, err := r.accounts.Account(t.Context(), a.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, is := now.Member(namespace, "olga"); !is || len(now.Members) != 4 {
		t.Errorf("the members are %+v", now.Members)
	}
}
