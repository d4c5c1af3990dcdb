package site

import (
	"net/http"
	"path"
	"strings"

	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/page"
)

// Act is a sensitive act, by its name in addresses.
type Act string

// The sensitive acts. What takes a right of one's own away, or stops harm, is none: nothing delays it.
const (
	ActCreate Act = "create"
	ActRoll   Act = "roll"
	ActReveal Act = "reveal"
	ActShare  Act = "members"
	ActDelete Act = "delete"
	ActMove   Act = "move"
)

var acts = map[Act]string{
	ActCreate: "create an API key",
	ActRoll:   "replace an API key with a new one",
	ActReveal: "see the signing secret",
	ActShare:  "change who belongs to this account",
	ActDelete: "delete an account",
	ActMove:   "move a member to another account",
}

// Words are what somebody is about to do; empty for a name that is no act's.
func (a Act) Words() string { return acts[a] }

// Fresh admits visitors to a sensitive act whose sign-in is fresh. Others are sent to paths.Again, which
// leads back to the page with the form: "." is the request's own path, ".." the one above. What was sent is
// not kept.
func Fresh(s *Site, act Act, at string, next Page) Page {
	return func(w http.ResponseWriter, r *http.Request, v Visit) {
		if s.Logins.Fresh(v.Login) {
			next(w, r, v)
			return
		}
		query := r.URL.RawQuery
		if r.Method == http.MethodPost { // whom it is about, the page needs as well
			query = form.Query("member", page.Single(r.PostForm, "member"))
		}
		back := path.Join(strings.TrimPrefix(r.URL.EscapedPath(), s.Prefix), at)
		if query != "" {
			back += "?" + query
		}
		page.SeeOther(w, s.Prefix+paths.Again+"?"+form.Query("act", string(act), "next", back))
	}
}
