package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"verifyd/edge/account"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/page"
)

// showLink answers GET /dashboard/link?token=…: a button, since chat applications open links to draw previews.
func (h *Handler) showLink(w http.ResponseWriter, r *http.Request) {
	h.draw(w, view{page: "link", Title: "Log in by link", Data: page.Single(r.URL.Query(), "token")})
}

// redeemLink answers POST /dashboard/link.
func (h *Handler) redeemLink(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := within(r)
	defer cancel()
	link, err := h.Accounts.RedeemLoginLink(ctx, page.Single(r.PostForm, "token"))
	switch {
	case errors.Is(err, account.ErrNoLink), errors.Is(err, account.ErrLinkExpired), errors.Is(err, account.ErrLinkUsed):
		h.drawProblem(w, nil, problemLoginLink)
	case err != nil:
		h.fail(w, r, nil, err)
	default:
		h.begin(ctx, w, r, logins.Login{LinkID: link.ID, Role: link.Role, Account: link.Account, Operator: link.Operator}, pathRoot)
	}
}

type inviteData struct {
	Token    string
	Account  account.Account
	Invite   account.Invite
	Who      string // who is logged in; empty: nobody
	LoggedIn bool
}

// showInvite answers GET /dashboard/invite?token=…
func (h *Handler) showInvite(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := within(r)
	defer cancel()
	d := inviteData{Token: page.Single(r.URL.Query(), "token")}
	var err error
	d.Account, d.Invite, err = h.Accounts.Invite(ctx, d.Token)
	if h.badInvite(w, r, err) {
		return
	}
	l, err := h.knock(ctx, r)
	if err != nil && !errors.Is(err, logins.ErrNobody) {
		h.fail(w, r, nil, err)
		return
	}
	if l.Subject == "" { // nobody, or a login link, which is nobody in particular
		page.SeeOther(w, h.prefix+pathLogin+"?"+query("next", pathInvite+"?"+query("token", d.Token)))
		return
	}
	d.Who = visit{login: l}.who()
	h.draw(w, view{page: "invite", Title: "You are invited", Data: d})
}

// badInvite answers for an invite that cannot be accepted.
func (h *Handler) badInvite(w http.ResponseWriter, r *http.Request, err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, account.ErrNoInvite), errors.Is(err, account.ErrInviteExpired):
		h.drawProblem(w, nil, problemInvite)
	default:
		h.fail(w, r, nil, err)
	}
	return true
}

// acceptInvite answers POST /dashboard/invite.
func (h *Handler) acceptInvite(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := within(r)
	defer cancel()
	l, err := h.knock(ctx, r)
	if err == nil && l.Subject == "" {
		err = logins.ErrNobody
	}
	if err != nil {
		h.turnAway(w, r, visit{}, err)
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

// settle makes an account the one that is looked at, and leads into it.
func (h *Handler) settle(w http.ResponseWriter, r *http.Request, l logins.Login, id string, code flashCode) {
	ctx, cancel := within(r)
	defer cancel()
	switch err := h.Logins.Choose(ctx, l, id); {
	case errors.Is(err, logins.ErrNobody):
		h.turnAway(w, r, visit{}, err)
	case err != nil:
		h.fail(w, r, nil, err)
	default:
		to := pathSessions
		if code == flashAccountMade {
			to = pathQuickstart
		}
		h.done(w, code, to)
	}
}

type newAccountData struct {
	Who     string
	Allowed bool
	Has     bool // they are in an account already
}

// showNewAccount answers GET /dashboard/new-account: what somebody without an account sees, too.
func (h *Handler) showNewAccount(w http.ResponseWriter, r *http.Request) { h.drawNewAccount(w, r, nil) }

func (h *Handler) drawNewAccount(w http.ResponseWriter, r *http.Request, f *form) {
	ctx, cancel := within(r)
	defer cancel()
	v, err := h.enter(ctx, r)
	if err != nil && !errors.Is(err, errNoAccount) {
		h.turnAway(w, r, v, err)
		return
	}
	d := newAccountData{Who: v.who(), Allowed: h.Allow.allows(v.login), Has: err == nil}
	status, title := http.StatusOK, "New account"
	if f != nil {
		status = http.StatusUnprocessableEntity
	}
	if !d.Allowed {
		status, title = http.StatusForbidden, "No account yet"
	}
	h.draw(w, view{page: "newaccount", Title: title, Form: f, status: status, Flash: h.takeFlash(w, r), Data: d})
}

// accountsMost bounds how many accounts somebody may own who makes another one: each has a quota of its own, and every edge holds
// it in memory. The directory that counts them may be a moment behind; the operator's commands know no such bound.
const accountsMost = 20

// owned counts the accounts that somebody is an owner of.
func (h *Handler) owned(l logins.Login) (n int) {
	for _, a := range h.Directory.AccountsOf(l.Network, l.Subject) {
		if m, ok := a.Member(l.Network, l.Subject); ok && m.Role == account.RoleOwner {
			n++
		}
	}
	return n
}

// makeAccount answers POST /dashboard/new-account.
func (h *Handler) makeAccount(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := within(r)
	defer cancel()
	l, err := h.knock(ctx, r)
	if err != nil {
		h.turnAway(w, r, visit{}, err)
		return
	}
	if !h.Allow.allows(l) {
		h.drawProblem(w, nil, problemForbidden)
		return
	}
	f := newForm(r)
	if h.owned(l) >= accountsMost {
		f.wrong("name", fmt.Sprintf("You own %d accounts, and nobody makes more here. Ask the operator of this service for another one.", accountsMost))
		h.drawNewAccount(w, r, f)
		return
	}
	m := memberOf(l)
	a, err := h.Accounts.CreateAccount(ctx, m.Actor(), f.text("name"), m)
	switch {
	case err == nil:
		h.settle(w, r, l, a.ID, flashAccountMade)
	case errors.Is(err, account.ErrAccountExists):
		f.wrong("name", "There is an account of this name already. Choose another one, or ask its owner to invite you.")
		h.drawNewAccount(w, r, f)
	case f.take(err):
		h.drawNewAccount(w, r, f)
	default:
		h.fail(w, r, nil, err)
	}
}

// chooseAccount answers POST /dashboard/account: the switch between accounts.
func (h *Handler) chooseAccount(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := within(r)
	defer cancel()
	v, err := h.enter(ctx, r)
	if err != nil {
		h.turnAway(w, r, v, err)
		return
	}
	id := page.Single(r.PostForm, "to")
	if !slices.ContainsFunc(v.accounts, func(a account.Account) bool { return a.ID == id }) {
		h.drawProblem(w, &v, problemNotFound)
		return
	}
	if err := h.Logins.Choose(ctx, v.login, id); err != nil {
		h.turnAway(w, r, v, err)
		return
	}
	page.SeeOther(w, h.prefix+pathSessions)
}
