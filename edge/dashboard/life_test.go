package dashboard_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// look expects that a page lacks some texts.
func look(t *testing.T, page answer, lacks ...string) answer {
	t.Helper()
	page.Lacks(t, lacks...)
	return page
}

// An owner renames the account, and sees why a name is refused.
func TestOwnerRenamesTheAccount(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	r.account("Quay Guild")
	b := r.as("olga")
	b.Get("/dashboard/settings").Want(t, http.StatusOK, "New name", "Delete this account")
	const path = "/dashboard/settings/name"
	for name, says := range map[string]string{
		"Discord": "is reserved", "Quay Gui1d": "looks like", "Quay Guild": "Another account has this name",
		"": "printable text", "Pi\u0435r": "one script", "a\u202eb": "printable text", "Pier ✔": "verified",
		"<script>alert(1)</script>" + strings.Repeat("x", 128): "<script>",
	} {
		b.post(path, "account", a.ID, "name", name).Want(t, http.StatusUnprocessableEntity, says)
	}
	b.Follow(b.post(path, "account", a.ID, "name", " Pier \u00a0 Guild ")).
		Want(t, http.StatusOK, "has its new name", "Pier Guild")
	b.Get("/dashboard/audit").Want(t, http.StatusOK, "Account renamed", "from: Harbor Guild")
	b.Follow(b.post(path, "account", a.ID, "name", "Harbor Guild")).Want(t, http.StatusOK, "Harbor Guild")
}

// The names that one person tries are bounded, also those that are refused, for renames and new accounts
// together: each costs a comparison with all accounts.
func TestNamesHaveARate(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.clock.stop()
	a := r.account("Harbor Guild")
	if _, err := r.accounts.AddMember(t.Context(), access.Operator(""), a.ID, account.Member{
		Network: "example", Subject: "oscar", Role: access.RoleOwner,
	}); err != nil {
		t.Fatal(err)
	}
	r.until("the directory knows oscar", func() bool {
		return len(r.mirror.AccountsOf("example", "oscar")) == 1
	})
	b, oscar := r.as("olga"), r.as("oscar")
	rename := func(b *browser) answer {
		return b.post("/dashboard/settings/name", "account", a.ID, "name", "Discord")
	}
	for range 20 {
		rename(b).Want(t, http.StatusUnprocessableEntity, "is reserved")
	}
	refused := rename(b)
	refused.Want(t, http.StatusTooManyRequests, "Many names at once")
	if wait := refused.Header.Get("Retry-After"); wait != "600" {
		t.Errorf("Retry-After: %q", wait)
	}
	b.post("/dashboard/new-account", "name", "Lake Guild").
		Want(t, http.StatusTooManyRequests, "Many names at once")
	rename(oscar).Want(t, http.StatusUnprocessableEntity, "is reserved")
	r.clock.advance(10 * time.Minute)
	b.post("/dashboard/new-account", "name", "Lake Guild").Want(t, http.StatusSeeOther)
}

// The changes that one person makes are bounded, in all accounts together: each leaves a record for good.
func TestChangesHaveARate(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.clock.stop()
	a := r.account("Harbor Guild")
	b := r.as("olga")
	changes := []func() answer{
		func() answer { return b.post("/dashboard/keys/none/roll", "account", a.ID) },
		func() answer { return b.post("/dashboard/invite", "token", "none") },
		func() answer { return b.post("/dashboard/account", "to", a.ID) },
	}
	for i := range 200 {
		if got := changes[i%len(changes)](); got.Status == http.StatusTooManyRequests {
			t.Fatalf("change %d is refused", i)
		}
	}
	for _, change := range changes {
		refused := change()
		refused.Want(t, http.StatusTooManyRequests, "Many changes at once")
		if wait := refused.Header.Get("Retry-After"); wait != "1" {
			t.Errorf("Retry-After: %q", wait)
		}
	}
	for _, path := range []string{
		"/dashboard/keys/none/revoke", "/dashboard/members/withdraw", "/dashboard/members/remove",
		"/dashboard/signing/end", "/dashboard/settings/delete",
	} {
		if got := b.post(path, "account", a.ID); got.Status == http.StatusTooManyRequests {
			t.Errorf("%s, which takes a right away, is refused, too", path)
		}
	}
	r.clock.advance(time.Second)
	if got := changes[0](); got.Status == http.StatusTooManyRequests {
		t.Error("a second later, too")
	}
}

// An owner requests the account's deletion by typing its name; all members see it, and an owner takes it
// back.
func TestOwnerDeletesTheAccount(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b, vera := r.as("olga"), r.as("vera")
	const path, banner = "/dashboard/settings/delete", "will be deleted on"
	b.Get(path).Want(t, http.StatusOK, "Delete", "Harbor Guild")
	for _, typed := range []string{"", "harbor guild", "Harbor"} {
		b.post(path, "account", a.ID, "name", typed).
			Want(t, http.StatusUnprocessableEntity, "This is not the account")
	}
	if now, err := r.accounts.Account(t.Context(), a.ID); err != nil || !now.InService() {
		t.Fatalf("%+v, %v", now, err)
	}
	b.Follow(b.post(path, "account", a.ID, "name", "Harbor Guild")).Want(t, http.StatusOK, banner, "Keep "+
		"this account")
	look(t, vera.Get("/dashboard/sessions"), "Keep this account").Want(t, http.StatusOK, banner)
	b.Get("/dashboard/settings").Lacks(t, "New name", "Delete this account")
	b.post("/dashboard/settings/name", "account", a.ID, "name", "Pier Guild").Want(t, http.StatusForbidden)
	vera.post("/dashboard/settings/restore", "account", a.ID).Want(t, http.StatusForbidden)
	look(t, b.Follow(b.post("/dashboard/settings/restore", "account", a.ID)), banner).
		Want(t, http.StatusOK, "in service again")

	// An account that the operator disabled in the meantime cannot be enabled by an owner.
	b.post(path, "account", a.ID, "name", "Harbor Guild").Want(t, http.StatusSeeOther)
	if _, err := r.accounts.Disable(t.Context(), access.Operator(""), a.ID, "<b>spam</b>"); err != nil {
		t.Fatal(err)
	}
	look(t, b.Get("/dashboard/sessions"), "Keep this account").
		Want(t, http.StatusOK, banner, "<b>spam</b>")
	b.post("/dashboard/settings/restore", "account", a.ID).Want(t, http.StatusForbidden)
}

// An operator opens an account and a session of it, sees no secret and no user, and changes what operators
// may change. Nobody else can.
func TestOperatorOpensAnAccount(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	secret, k, err := r.accounts.CreateKey(t.Context(), access.Operator(""), a.ID,
		account.KeyOptions{Name: "bot"})
	if err != nil {
		t.Fatal(err)
	}
	r.until("the key", r.keys(a, 1))
	s := r.session(a, func(q *sessions.Request) {
		q.PlatformUserID, q.Platform, q.GuildID = "sailor_42", "my-platform", "my-guild"
		q.CallbackURL = "https://bot.example.com/verified?planted-secret"
	})
	r.ended(s, sessions.Outcome{State: sessions.Verified, Network: "example"}, facts.Result{
		Verdict: facts.VerdictRejected, Class: failure.Status, Status: 422, Detail: "the receiver " +
			"answered 422", Answer: "sailor_42 is not welcome",
	})
	page, session := "/dashboard/operator/accounts/"+a.ID, "/dashboard/operator/sessions/"+string(s.ID)
	posts := map[string][]string{
		page + "/disable": {"reason", "spam"}, page + "/enable": nil, page + "/restore": nil,
		page + "/move-member": {"to", "x"},
		page + "/delete":      {"name", "Harbor Guild"}, page + "/verified": {"of", "Harbor Guild"},
	}
	olga, root := r.as("olga"), r.as("root")
	for path, form := range posts {
		olga.post(path, form...).Want(t, http.StatusForbidden)
		r.browser().post(path, form...).Want(t, http.StatusSeeOther)
	}
	for _, path := range []string{page, session} {
		olga.Get(path).Want(t, http.StatusForbidden)
		r.browser().Get(path).Want(t, http.StatusSeeOther)
	}
	if now, err := r.accounts.Account(t.Context(), a.ID); err != nil || !now.InService() ||
		!now.VerifiedAt.IsZero() {
		t.Fatalf("%+v, %v", now, err)
	}

	r.grant("root")
	hidden := []string{
		secret, a.Secrets[0].Value, "sailor_42", "my-platform", "my-guild", "planted-secret", "not welcome",
	}
	root.Get("/dashboard/operator/accounts").Holds(t, `href="`+page)
	root.Get("/dashboard/operator/undelivered").Holds(t, `href="`+session, `href="`+page)
	root.Get(page).Holds(t, `href="`+session)
	look(t, root.Get(page), hidden...).
		Want(t, http.StatusOK, k.ID, "olga", "Example Network", string(s.ID), "rejected")
	look(t, root.Get(session), hidden...).Want(t, http.StatusOK, "Harbor Guild", "bot.example.com", "422")
	for _, gone := range []string{"accounts/acc_nobody", "accounts/x", "sessions/x",
		"sessions/" + strings.Repeat("a", 32)} {
		root.Get("/dashboard/operator/"+gone).Want(t, http.StatusNotFound, "There is no such")
	}

	do := func(want string, path string, form ...string) {
		t.Helper()
		root.Follow(root.post(page+path, form...)).Want(t, http.StatusOK, want)
	}
	do("renamed in the meantime", "/verified", "of", "Pier Guild")
	do("Remove the mark", "/verified", "of", "Harbor Guild")
	do("Set the mark", "/verified")
	do("spam & more", "/disable", "reason", "spam & more")
	do("no longer disabled", "/enable")
	root.post(page+"/disable", "reason", strings.Repeat("x", 501)).
		Want(t, http.StatusUnprocessableEntity, "500")
	root.post(page+"/delete", "name", "Harbor").Want(t, http.StatusUnprocessableEntity)
	do("to be deleted", "/delete", "name", "Harbor Guild")
	do("Cancel that first", "/enable")
	do("The deletion was canceled", "/restore")
	olga.Get("/dashboard/audit").Want(t, http.StatusOK, "Verified mark given", "reason: spam", "Deletion "+
		"canceled")

	if _, err := r.accounts.DeleteAccount(t.Context(), access.Operator(""), a.ID, false); err != nil {
		t.Fatal(err)
	}
	look(t, root.Get(page), "Disable", "Set the mark").Want(t, http.StatusOK, "Deleted on")
	root.post(page+"/disable").Want(t, http.StatusNotFound)
}

// The operator moves a member from one account to another, which is chosen by its id: names can look alike.
func TestOperatorMovesAMember(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a, lake := r.account("Harbor Guild"), r.account("Lake Guild")
	empty, err := r.accounts.CreateAccount(t.Context(), access.Operator(""), "Quay Guild")
	if err != nil {
		t.Fatal(err)
	}
	r.until("the directory knows all", func() bool {
		all, _ := r.mirror.Accounts("", "", 10)
		return len(all) == 3
	})
	r.grant("root")
	root := r.as("root")
	page := "/dashboard/operator/accounts/" + a.ID
	move := page + "/move-member"
	who := "?member=" + address("dev")
	root.Get(page).Holds(t, `href="`+move+who+`"`)
	look := root.Get(move + who + "&q=guild")
	look.Want(t, http.StatusOK, "is developer of Harbor Guild", "Quay Guild", empty.ID, "Lake Guild")
	if strings.Contains(look.Body, `value="`+a.ID+`"`) {
		t.Error("the account that they are in is offered")
	}
	root.Get(move+who+"&q=nowhere").Want(t, http.StatusOK, "No other account has this")
	root.Follow(root.Get(move+"?member="+address("nobody"))).Want(t, http.StatusOK, "already gone")

	do := func(subject string, form ...string) answer {
		return root.post(move, append(form, "member", address(subject))...)
	}
	do("dev", "q", "quay").Want(t, http.StatusUnprocessableEntity, "Choose the account")
	do("dev", "q", "quay", "to", a.ID).Want(t, http.StatusUnprocessableEntity, "in that account")
	do("dev", "q", "lake", "to", lake.ID).Want(t, http.StatusUnprocessableEntity, "already")
	do("olga", "q", "quay", "to", empty.ID).Want(t, http.StatusUnprocessableEntity, "last owner")
	do("dev", "q", "quay", "to", "acc_x").
		Want(t, http.StatusUnprocessableEntity, "no longer exists")
	do("dev", "q", "quay", "to", empty.ID, "role", "king").Want(t, http.StatusUnprocessableEntity)
	root.Follow(do("dev", "q", "quay", "to", empty.ID, "role", "owner")).
		Want(t, http.StatusOK, "They are now a member of this account", "Quay Guild", "dev", "owner")
	root.Follow(do("dev", "q", "quay", "to", empty.ID)).Want(t, http.StatusOK, "already gone")
	now, err := r.accounts.Account(t.Context(), a.ID)
	if _, still := now.Member("example", "dev"); err != nil || still {
		t.Errorf("%+v, %v", now.Members, err)
	}
	r.as("olga").Get("/dashboard/audit").Want(t, http.StatusOK, "Member moved to another account")
}
