package operator

import (
	"net/http"
	"slices"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
)

// accountsLimit is a page of the accounts.
const accountsLimit = 25

type accountRow struct {
	account.Account

	Keys   int // that work
	Owners int
	Quota  int64
	Own    bool // the quota is the account's own
}

type accountsData struct {
	Rows          []accountRow
	Text          string
	Older, Newest string // the next page, and the first
}

// showAccounts answers GET /dashboard/operator/accounts: all of them by name. The directory may be a moment
// behind.
func (h *Handler) showAccounts(w http.ResponseWriter, r *http.Request, v site.Visit) {
	q := r.URL.Query()
	d := accountsData{Text: page.Single(q, "q")}
	after := page.Single(q, "after")
	found, more := h.Directory.Accounts(d.Text, after, accountsLimit)
	for _, a := range found {
		d.Rows = append(d.Rows, h.accountRow(a))
	}
	if more {
		d.Older = h.Prefix + paths.OperatorAccounts + "?" +
			form.Query("q", d.Text, "after", found[len(found)-1].Name)
	}
	if after != "" {
		d.Newest = h.Prefix + paths.OperatorAccounts + "?" + form.Query("q", d.Text)
	}
	h.drawPage(w, r, v, site.View{Page: "accounts", Title: "Accounts", Nav: "accounts", Data: d})
}

func (h *Handler) accountRow(a account.Account) accountRow {
	row := accountRow{Account: a, Quota: a.Quota, Own: a.Quota > 0}
	if !row.Own {
		row.Quota = h.Quota
	}
	for _, k := range h.Directory.Keys(a.ID) {
		if slices.Contains([]account.KeyState{account.KeyActive, account.KeyRolled}, k.State(h.Now())) {
			row.Keys++
		}
	}
	for _, m := range a.Members {
		if m.Role == access.RoleOwner {
			row.Owners++
		}
	}
	return row
}
