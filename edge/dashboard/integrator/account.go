package integrator

import (
	"errors"
	"net/http"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/naming"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
)

// accountPages are those about the account as a whole: usage, quickstart, audit log and settings.
type accountPages struct{ deps }

type quickstartData struct {
	Key, Test *account.Key // the account's newest active ones, live and test; nil: none
	TestKeys  bool         // whether test keys can be made
}

// showQuickstart answers GET /dashboard/quickstart.
func (h accountPages) showQuickstart(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.Draw(w, site.View{
		Page: "quickstart", Title: "Quickstart", Nav: "quickstart", Visit: &v, Flash: h.TakeFlash(w, r),
		Data: quickstartData{h.newestKey(v.Account.ID, false), h.newestKey(v.Account.ID, true), h.TestKeys},
	})
}

// newestKey returns the newest active key, a test key or a live one, or nil.
func (h accountPages) newestKey(id string, test bool) *account.Key {
	var newest *account.Key
	for _, k := range h.Directory.Keys(id) {
		if s := k.State(h.Now()); s == account.KeyActive && k.Test == test {
			newest = &k
		}
	}
	return newest
}

// showAudit answers GET /dashboard/audit, newest first.
func (h accountPages) showAudit(w http.ResponseWriter, r *http.Request, v site.Visit) {
	if d, ok := h.AuditLog(w, r, v.Account.ID, paths.Audit); ok {
		h.Draw(w, site.View{
			Page: "audit", Title: "Audit log", Nav: "audit", Visit: &v, Flash: h.TakeFlash(w, r), Data: d,
		})
	}
}

type settingsData struct {
	Quota   int64
	Own     bool // the quota is the account's own
	Login   logins.Login
	Ends    time.Time
	Allowed bool // the visitor may make another account
}

// showSettings answers GET /dashboard/settings.
func (h accountPages) showSettings(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.drawSettings(w, r, v, nil)
}

func (h accountPages) drawSettings(w http.ResponseWriter, r *http.Request, v site.Visit, f *form.Form) {
	d := settingsData{
		Quota: v.Account.Quota, Own: v.Account.Quota > 0, Login: v.Login,
		Ends:    v.Login.CreatedAt.Add(logins.Lifetime),
		Allowed: h.Allow.Allows(v.Login),
	}
	if !d.Own {
		d.Quota = h.Quota
	}
	status := http.StatusOK
	if f != nil {
		status = http.StatusUnprocessableEntity
	}
	h.Draw(w, site.View{
		Page: "settings", Title: "Settings", Nav: "settings", Visit: &v, Flash: h.TakeFlash(w, r), Form: f,
		Status: status, Data: d,
	})
}

// rename answers POST /dashboard/settings/name.
func (h accountPages) rename(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	if !h.TakeName(w, &v, v.Actor()) {
		return
	}
	f := form.New(r)
	_, err := h.Accounts.RenameAccount(ctx, v.Actor(), v.Account.ID, f.Text("name"), false)
	switch {
	case errors.Is(err, account.ErrAccountExists):
		f.Wrong("name", "Another account has this name, or had it within the last 90 days. Choose another "+
			"one.")
	case !f.Take(err) && err != nil:
		h.Fail(w, r, &v, err)
		return
	}
	if !f.OK() {
		h.drawSettings(w, r, v, f)
		return
	}
	h.Done(w, flashRenamed, paths.Settings)
}

// showDelete answers GET /dashboard/settings/delete: the question.
func (h accountPages) showDelete(w http.ResponseWriter, _ *http.Request, v site.Visit) {
	h.drawDelete(w, v, nil)
}

func (h accountPages) drawDelete(w http.ResponseWriter, v site.Visit, f *form.Form) {
	status := http.StatusOK
	if f != nil {
		status = http.StatusUnprocessableEntity
	}
	h.Draw(w, site.View{
		Page: "deleteaccount", Title: "Delete this account", Nav: "settings", Visit: &v, Form: f,
		Status: status,
		Data:   h.Now().Add(account.DeleteGrace),
	})
}

// askDeletion answers POST /dashboard/settings/delete: the account's name was typed.
func (h accountPages) askDeletion(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	f := form.New(r)
	if naming.Clean(f.Text("name")) != naming.Clean(v.Account.Name) {
		f.Wrong("name", "This is not the account's name. Type it as it is shown above.")
		h.drawDelete(w, v, f)
		return
	}
	if _, err := h.Accounts.AskDeletion(ctx, v.Actor(), v.Account.ID); err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	h.Done(w, flashDeletionAsked, paths.Settings)
}

// restore answers POST /dashboard/settings/restore.
func (h accountPages) restore(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	if _, err := h.Accounts.Restore(ctx, v.Actor(), v.Account.ID); err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	h.Done(w, flashRestored, paths.Settings)
}
