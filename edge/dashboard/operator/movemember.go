package operator

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
)

// moveChoices is how many accounts are offered at once; to see others, type more of their name.
const moveChoices = 10

type moveData struct {
	From   account.Account
	Member account.Member
	Text   string            // with which the other account was searched
	Found  []account.Account // other accounts with it in their name or as their id, never by name alone
	More   bool              // there are more
	Roles  []access.Role
}

// Was reports whether a role is the one that they have now.
func (d moveData) Was(r access.Role) bool { return d.Member.Role == r }

// showMove answers GET /dashboard/operator/accounts/{account}/move-member?member=…: the search for the other
// account, and the choice of one. Names can look alike, so each is shown with its id.
func (h accountPages) showMove(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	q := r.URL.Query()
	h.drawMove(ctx, w, r, v, moveQuery{form.Member(q), strings.TrimSpace(page.Single(q, "q"))}, nil)
}

// moveQuery is the member to be moved, and the search for the other account.
type moveQuery struct {
	who  access.Identity
	text string
}

func (h accountPages) drawMove(ctx context.Context, w http.ResponseWriter, r *http.Request, v site.Visit,
	q moveQuery, f *form.Form) {
	a, ok := h.accountOf(ctx, w, r)
	if !ok {
		return
	}
	i := a.Find(q.who)
	if i < 0 || !a.DeletedAt.IsZero() {
		h.Done(w, site.FlashGone, paths.Of(paths.OperatorAccount, a.ID))
		return
	}
	d := moveData{From: a, Member: a.Members[i], Text: q.text, Roles: access.Roles()}
	if q.text != "" {
		d.Found, d.More = h.Directory.Accounts(q.text, "", moveChoices)
		d.Found = slices.DeleteFunc(d.Found, func(o account.Account) bool { return o.ID == a.ID })
	}
	status := http.StatusOK
	if f != nil {
		status = http.StatusUnprocessableEntity
	}
	h.drawPage(w, r, v, site.View{
		Page: "movemember", Title: "Move a member", Nav: "accounts", Form: f, Status: status, Data: d,
	})
}

// moveMember answers POST /dashboard/operator/accounts/{account}/move-member.
func (h accountPages) moveMember(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	f, from := form.New(r), r.PathValue("account")
	q := moveQuery{form.Member(f.Values), f.Text("q")}
	to := f.Text("to")
	if to == "" {
		f.Wrong("to", "Choose the account that they move to.")
		h.drawMove(ctx, w, r, v, q, f)
		return
	}
	_, err := h.Accounts.MoveMember(ctx, v.AsOperator(), from, to, q.who, access.Role(f.Text("role")))
	switch {
	case err == nil:
		h.Done(w, flashMoved, paths.Of(paths.OperatorAccount, to))
		return
	case errors.Is(err, account.ErrNoMember):
		h.Done(w, site.FlashGone, paths.Of(paths.OperatorAccount, from))
		return
	case errors.Is(err, account.ErrLastOwner):
		f.Wrong("to", "They are the last owner of their account. Make somebody else an owner there first.")
	case errors.Is(err, account.ErrAlreadyMember):
		f.Wrong("to", "They are already in that account. Choose another one, or remove them here.")
	case errors.Is(err, account.ErrFull):
		f.Wrong("to", "That account has the maximum number of members and open invites. Choose another one.")
	case errors.Is(err, account.ErrNoAccount):
		f.Wrong("to", "That account no longer exists. Search again.")
	case !f.Take(err):
		h.Fail(w, r, nil, err)
		return
	}
	h.drawMove(ctx, w, r, v, q, f)
}
