package dashboard

import (
	"net/http"
	"time"

	"verifyd/edge/dashboard/logins"
)

type settingsData struct {
	Quota   int64
	Own     bool // the quota is the account's own
	Login   logins.Login
	Ends    time.Time
	Allowed bool // the visitor may make another account
}

// showSettings answers GET /dashboard/settings.
func (h *Handler) showSettings(w http.ResponseWriter, r *http.Request, v visit) {
	d := settingsData{
		Quota: v.account.Quota, Own: v.account.Quota > 0, Login: v.login, Ends: v.login.CreatedAt.Add(logins.Lifetime),
		Allowed: h.Allow.allows(v.login),
	}
	if !d.Own {
		d.Quota = h.Quota
	}
	h.draw(w, view{page: "settings", Title: "Settings", Nav: "settings", visit: &v, Flash: h.takeFlash(w, r), Data: d})
}
