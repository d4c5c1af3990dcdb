package login

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
)

// accounts answers for invites, new accounts and the switch between accounts.
type accounts struct{ *Handler }

type inviteData struct {
	Token    string
	Account  account.Account
	Invite   account.Invite
	Who      string // who is logged in; empty if nobody is
	LoggedIn bool
}

// showInvite answers GET /dashboard/invite?token=…
func (h accounts) showInvite(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := h.Within(r)
	defer cancel()
	d := inviteData{Token: page.Single(r.URL.Query(), "token")}
	var err error
	d.Account, d.Invite, err = h.Accounts.Invite(ctx, d.Token)
	if h.badInvite(w, r, err) {
		return
	}
	l, err := h.Authenticate(ctx, r)
	if err != nil && !errors.Is(err, logins.ErrNotLoggedIn) {
		h.Fail(w, r, nil, err)
		return
	}
	if l.Subject == "" { // nobody, or a login link, which is no particular person
		page.SeeOther(w, h.Prefix+paths.Login+"?"+
			form.Query("next", paths.Invite+"?"+form.Query("token", d.Token)))
		return
	}
	d.Who = site.Visit{Login: l}.Who()
	h.Draw(w, site.View{Page: "invite", Title: "You are invited", Data: d})
}

// badInvite answers for an invite that cannot be accepted.
func (h accounts) badInvite(w http.ResponseWriter, r *http.Request, err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, account.ErrNoInvite), errors.Is(err, account.ErrInviteExpired):
		h.DrawProblem(w, nil, problemInvite)
	default:
		h.Fail(w, r, nil, err)
	}
	return true
}

// acceptInvite answers POST /dashboard/invite.
func (h accounts) acceptInvite(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := h.Within(r)
	defer cancel()
	l, err := h.Authenticate(ctx, r)
	if err == nil && l.Subject == "" {
		err = logins.ErrNotLoggedIn
	}
	if err != nil {
		h.Deny(w, r, site.Visit{}, err)
		return
	}
	if !site.TakeChange(h.Site, w, nil, l) {
		return
	}
	token := page.Single(r.PostForm, "token")
	a, err := h.Accounts.AcceptInvite(ctx, token, memberOf(l))
	code := flashJoined
	if errors.Is(err, account.ErrAlreadyMember) {
		a, _, err = h.Accounts.Invite(ctx, token)
		code = flashAlreadyMember
	}
	if h.badInvite(w, r, err) {
		return
	}
	h.settle(w, r, l, a.ID, code)
}

func memberOf(l logins.Login) account.Member {
	return account.Member{Network: l.Network, Subject: l.Subject, Name: l.Name, Email: l.Email}
}

// settle selects an account and redirects to it.
func (h accounts) settle(w http.ResponseWriter, r *http.Request, l logins.Login, id string,
	code site.FlashCode) {
	ctx, cancel := h.Within(r)
	defer cancel()
	switch err := h.Logins.Choose(ctx, l, id); {
	case errors.Is(err, logins.ErrNotLoggedIn):
		h.Deny(w, r, site.Visit{}, err)
	case err != nil:
		h.Fail(w, r, nil, err)
	default:
		to := paths.Sessions
		if code == flashAccountMade {
			to = paths.Quickstart
		}
		h.Done(w, code, to)
	}
}

type newAccountData struct {
	Who     string
	Allowed bool
	Has     bool // they are in an account already
}

// showNewAccount answers GET /dashboard/new-account: also shown to somebody without an account.
func (h accounts) showNewAccount(w http.ResponseWriter, r *http.Request) { h.drawNewAccount(w, r, nil) }

func (h accounts) drawNewAccount(w http.ResponseWriter, r *http.Request, f *form.Form) {
	ctx, cancel := h.Within(r)
	defer cancel()
	v, err := h.Authorize(ctx, r)
	if err != nil && !errors.Is(err, site.ErrNoAccount) {
		h.Deny(w, r, v, err)
		return
	}
	d := newAccountData{Who: v.Who(), Allowed: h.Allow.Allows(v.Login), Has: err == nil}
	status, title := http.StatusOK, "New account"
	if f != nil {
		status = http.StatusUnprocessableEntity
	}
	if !d.Allowed {
		status, title = http.StatusForbidden, "No account yet"
	}
	h.Draw(w, site.View{
		Page: "newaccount", Title: title, Form: f, Status: status, Flash: h.TakeFlash(w, r), Data: d,
	})
}

// manyAccountsFault is for a person who owns as many accounts as they may. How fast somebody makes accounts
// who passes them on to others is bounded by site.TakeName.
var manyAccountsFault = fmt.Sprintf("You own %d accounts, which is the limit here. Ask the operator of this "+
	"service for another one.", accountstore.MaxAccounts)

// owned counts the accounts that the directory shows somebody as an owner of.
func (h accounts) owned(l logins.Login) (n int) {
	for _, a := range h.Members.AccountsOf(l.Network, l.Subject) {
		if m, ok := a.Member(l.Network, l.Subject); ok && m.Role == access.RoleOwner {
			n++
		}
	}
	return n
}

// makeAccount answers POST /dashboard/new-account.
func (h accounts) makeAccount(ctx context.Context, w http.ResponseWriter, r *http.Request,
	l logins.Login) {
	if !h.Allow.Allows(l) {
		h.DrawProblem(w, nil, site.ProblemForbidden)
		return
	}
	f := form.New(r)
	m := memberOf(l)
	if h.owned(l) >= accountstore.MaxAccounts { // it takes no name from their rate
		f.Wrong("name", manyAccountsFault)
		h.drawNewAccount(w, r, f)
		return
	}
	if !h.TakeName(w, nil, m.Actor()) {
		return
	}
	a, err := h.Accounts.CreateAccount(ctx, m.Actor(), f.Text("name"), m)
	if a.ID != "" { // it is stored, even if its record is not
		site.Await(ctx, func() bool {
			return slices.ContainsFunc(h.Members.AccountsOf(l.Network, l.Subject),
				func(known account.Account) bool { return known.ID == a.ID })
		})
	}
	switch {
	case err == nil:
		h.settle(w, r, l, a.ID, flashAccountMade)
	case errors.Is(err, account.ErrAccountExists):
		f.Wrong("name",
			"Another account has this name, or had it within the last 90 days. Choose another one, or "+
				"ask its owner to invite you.")
		h.drawNewAccount(w, r, f)
	case errors.Is(err, accountstore.ErrManyAccounts):
		f.Wrong("name", manyAccountsFault)
		h.drawNewAccount(w, r, f)
	case f.Take(err):
		h.drawNewAccount(w, r, f)
	default:
		h.Fail(w, r, nil, err)
	}
}

// chooseAccount answers POST /dashboard/account: the switch between accounts.
func (h accounts) chooseAccount(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := h.Within(r)
	defer cancel()
	v, err := h.Authorize(ctx, r)
	if err != nil {
		h.Deny(w, r, v, err)
		return
	}
	id := page.Single(r.PostForm, "to")
	if !slices.ContainsFunc(v.Accounts, func(a account.Account) bool { return a.ID == id }) {
		h.DrawProblem(w, &v, site.ProblemNotFound)
		return
	}
	if !site.TakeChange(h.Site, w, &v, v.Login) {
		return
	}
	if err := h.Logins.Choose(ctx, v.Login, id); err != nil {
		h.Deny(w, r, v, err)
		return
	}
	page.SeeOther(w, h.Prefix+paths.Sessions)
}
