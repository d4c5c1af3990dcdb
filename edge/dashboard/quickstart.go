package dashboard

import (
	"net/http"

	"verifyd/edge/account"
)

type quickstartData struct {
	Key      *account.Key // the account's newest that is taken; nil: none
	Snippets []Snippet
}

// showQuickstart answers GET /dashboard/quickstart.
func (h *Handler) showQuickstart(w http.ResponseWriter, r *http.Request, v visit) {
	h.draw(w, view{
		page: "quickstart", Title: "Quickstart", Nav: "quickstart", visit: &v, Flash: h.takeFlash(w, r),
		Data: quickstartData{h.newestKey(v.account.ID), h.Snippets},
	})
}

// newestKey gives the newest key that is taken, or nil.
func (h *Handler) newestKey(id string) *account.Key {
	var newest *account.Key
	for _, k := range h.Directory.Keys(id) {
		if s := k.State(h.Now()); s == account.KeyActive {
			newest = &k
		}
	}
	return newest
}
