package dashboard_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"verifyd/edge/account/access"
)

var loginID = regexp.MustCompile(`name="login" value="([0-9a-f]{64})"`)

// logins returns the ids of the logins on a browser's page about them.
func (b *browser) logins() (ids []string) {
	b.t.Helper()
	page := b.Get("/dashboard/logins")
	page.Want(b.t, http.StatusOK, "Your logins", "this one", "Log out everywhere")
	for _, m := range loginID.FindAllStringSubmatch(page.Body, -1) {
		ids = append(ids, m[1])
	}
	return ids
}

// A person sees their own logins and ends one of them, which nobody else can.
func TestOwnLoginsAreEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.account("Harbor Guild")
	here, there, vera := r.as("olga"), r.as("olga"), r.as("vera")
	if ids := here.logins(); len(ids) != 2 {
		t.Fatalf("logins %q", ids)
	}
	if ids := vera.logins(); len(ids) != 1 {
		t.Fatalf("vera's logins %q", ids)
	}
	this := func(b *browser) string {
		t.Helper()
		_, rest, _ := strings.Cut(b.Get("/dashboard/logins").Body, "this one")
		return loginID.FindStringSubmatch(rest)[1]
	}
	id := this(there)
	vera.Follow(vera.post("/dashboard/logins/end", "login", id)).Want(t, http.StatusOK, "already gone")
	there.Get("/dashboard/keys").Want(t, http.StatusOK)

	here.Follow(here.post("/dashboard/logins/end", "login", id)).Want(t, http.StatusOK, "That login is ended")
	there.Get("/dashboard/keys").Want(t, http.StatusSeeOther)
	there.post("/dashboard/logins/end", "login", this(here)).Want(t, http.StatusSeeOther)
	here.Get("/dashboard/keys").Want(t, http.StatusOK)
	here.Follow(here.post("/dashboard/logins/end", "login", this(here))).
		Want(t, http.StatusOK, "You are logged out", "Log in to the dashboard")
	here.Get("/dashboard/keys").Want(t, http.StatusSeeOther)
	vera.Get("/dashboard/keys").Want(t, http.StatusOK)
}

// Whoever is in no account has logins, too, and so has somebody who came by a login link.
func TestOwnLoginsWithoutAnAccount(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	if ids := r.as("stranger").logins(); len(ids) != 1 {
		t.Errorf("logins %q", ids)
	}
	r.grant("root")
	root := r.as("root")
	root.Get("/dashboard/operator").Want(t, http.StatusOK, "Your logins")
	root.logins()
	token, _, err := r.accounts.LoginLink(t.Context(), access.Operator(""), a.ID, access.RoleViewer)
	if err != nil {
		t.Fatal(err)
	}
	b := r.browser()
	b.post("/dashboard/link", "token", token).Want(t, http.StatusSeeOther)
	if ids := b.logins(); len(ids) != 1 {
		t.Errorf("logins by the link %q", ids)
	}
	b.Get("/dashboard/logins").Want(t, http.StatusOK, "a login link")
	r.browser().Get("/dashboard/logins").Want(t, http.StatusSeeOther)
}
