package dashboard

import (
	"errors"
	"net/http"

	"verifyd/edge"
	"verifyd/edge/account"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/page"
)

// memberRow is a member in the list.
type memberRow struct {
	account.Member

	You  bool
	Name string
}

// shownInvite is a new invite on its way to the page that shows its link once.
type shownInvite struct {
	Link   string         `json:"link"`
	Invite account.Invite `json:"invite"`
}

type membersData struct {
	Members []memberRow
	Invites []account.Invite
	New     *shownInvite
	Roles   []roleChoice
}

// roleChoice is a role with what it may do.
type roleChoice struct{ Role, Means string }

var roleChoices = []roleChoice{
	{string(account.RoleOwner), "everything, members too"},
	{string(account.RoleDeveloper), "keys, signing secret, sending callbacks again"},
	{string(account.RoleViewer), "looks, and changes nothing"},
}

// showMembers answers GET /dashboard/members; with ?show=… a new invite's link stands above the list, once.
func (h *Handler) showMembers(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	var shown *shownInvite
	if name := page.Single(r.URL.Query(), "show"); name != "" {
		shown = &shownInvite{}
		switch err := h.Logins.Take(ctx, v.login, name, shown); {
		case errors.Is(err, logins.ErrNoParcel):
			h.done(w, flashOnce, pathMembers)
			return
		case err != nil:
			h.fail(w, r, &v, err)
			return
		}
	}
	h.drawMembers(w, r, v, shown, nil)
}

func (h *Handler) drawMembers(w http.ResponseWriter, r *http.Request, v visit, shown *shownInvite, f *form) {
	d := membersData{New: shown, Roles: roleChoices}
	for _, m := range v.account.Members {
		d.Members = append(d.Members, h.memberRow(v, m))
	}
	for _, i := range v.account.Invites {
		if h.Now().Before(i.ExpiresAt) {
			d.Invites = append(d.Invites, i)
		}
	}
	status := http.StatusOK
	if f != nil {
		status = http.StatusUnprocessableEntity
	}
	h.draw(w, view{page: "members", Title: "Members", Nav: "members", visit: &v, Flash: h.takeFlash(w, r), Form: f, status: status, Data: d})
}

func (h *Handler) memberRow(v visit, m account.Member) memberRow {
	row := memberRow{Member: m, You: v.login.Network == m.Network && v.login.Subject == m.Subject, Name: m.Name}
	if row.Name == "" {
		row.Name = m.Subject
	}
	return row
}

// invite answers POST /dashboard/members/invite.
func (h *Handler) invite(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	f := newForm(r)
	token, i, err := h.Accounts.CreateInvite(ctx, v.actor(), v.account.ID, account.Role(f.text("role")), f.text("for"))
	switch {
	case errors.Is(err, account.ErrFull):
		f.wrong("for", sentence(err.Error()))
		h.drawMembers(w, r, v, nil, f)
		return
	case f.take(err):
		h.drawMembers(w, r, v, nil, f)
		return
	case err != nil:
		h.fail(w, r, &v, err)
		return
	}
	shown := shownInvite{Link: h.base + pathInvite + "?" + query("token", token), Invite: i}
	name, err := h.Logins.Hand(ctx, v.login, shown)
	if err != nil { // the invite is made: better shown at a POST than never
		edge.LineOf(r.Context()).Err = err
		h.drawMembers(w, r, v, &shown, nil)
		return
	}
	page.SeeOther(w, h.prefix+pathMembers+"?"+query("show", name))
}

// withdraw answers POST /dashboard/members/withdraw.
func (h *Handler) withdraw(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	_, err := h.Accounts.WithdrawInvite(ctx, v.actor(), v.account.ID, page.Single(r.PostForm, "invite"))
	h.memberChanged(w, r, v, err, flashInviteWithdrawn)
}

// setRole answers POST /dashboard/members/role.
func (h *Handler) setRole(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	role, err := account.ParseRole(page.Single(r.PostForm, "role"))
	if err != nil {
		h.drawProblem(w, &v, problemMalformed)
		return
	}
	_, err = h.Accounts.SetRole(ctx, v.actor(), v.account.ID, page.Single(r.PostForm, "network"), page.Single(r.PostForm, "subject"), role)
	h.memberChanged(w, r, v, err, flashRoleChanged)
}

// memberChanged answers a change of who is in the account.
func (h *Handler) memberChanged(w http.ResponseWriter, r *http.Request, v visit, err error, code flashCode) {
	switch {
	case err == nil:
		h.done(w, code, pathMembers)
	case errors.Is(err, account.ErrLastOwner):
		h.done(w, flashLastOwner, pathMembers)
	case errors.Is(err, account.ErrNoMember), errors.Is(err, account.ErrNoInvite):
		h.done(w, flashGone, pathMembers)
	default:
		h.fail(w, r, &v, err)
	}
}

// showRemove answers GET /dashboard/members/remove?network=…&subject=…: the question. Owners remove anybody, everybody themselves.
func (h *Handler) showRemove(w http.ResponseWriter, r *http.Request, v visit) {
	q := r.URL.Query()
	m, ok := v.account.Member(page.Single(q, "network"), page.Single(q, "subject"))
	if !v.may(account.ActionMembers) && (!ok || !h.memberRow(v, m).You) {
		h.drawProblem(w, &v, problemForbidden)
		return
	}
	if !ok {
		h.drawProblem(w, &v, problemNotFound)
		return
	}
	h.draw(w, view{page: "remove", Title: "Remove a member", Nav: "members", visit: &v, Data: h.memberRow(v, m)})
}

// removeMember answers POST /dashboard/members/remove.
func (h *Handler) removeMember(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	_, err := h.Accounts.RemoveMember(ctx, v.actor(), v.account.ID, page.Single(r.PostForm, "network"), page.Single(r.PostForm, "subject"))
	h.memberChanged(w, r, v, err, flashMemberRemoved)
}
