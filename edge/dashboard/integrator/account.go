package integrator

import (
	"net/http"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
)

// accountPages are those about the account as a whole: usage, quickstart, audit log and settings.
type accountPages struct{ deps }

type quickstartData struct {
	Key      *account.Key // the account's newest that is taken; nil: none
	Snippets []Snippet
}

// showQuickstart answers GET /dashboard/quickstart.
func (h accountPages) showQuickstart(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.Draw(w, site.View{
		Page: "quickstart", Title: "Quickstart", Nav: "quickstart", Visit: &v, Flash: h.TakeFlash(w, r),
		Data: quickstartData{h.newestKey(v.Account.ID), h.Snippets},
	})
}

// newestKey returns the newest key that is taken, or nil.
func (h accountPages) newestKey(id string) *account.Key {
	var newest *account.Key
	for _, k := range h.Directory.Keys(id) {
		if s := k.State(h.Now()); s == account.KeyActive {
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
	d := settingsData{
		Quota: v.Account.Quota, Own: v.Account.Quota > 0, Login: v.Login,
		Ends:    v.Login.CreatedAt.Add(logins.Lifetime),
		Allowed: h.Allow.Allows(v.Login),
	}
	if !d.Own {
		d.Quota = h.Quota
	}
	h.Draw(w, site.View{
		Page: "settings", Title: "Settings", Nav: "settings", Visit: &v, Flash: h.TakeFlash(w, r), Data: d,
	})
}
