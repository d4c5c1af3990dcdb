package integrator

import (
	"errors"
	"net/http"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
	"verifyd/edge/web"
)

// memberPages are those about members and invites.
type memberPages struct{ deps }

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
	{string(access.RoleOwner), "everything, including members"},
	{string(access.RoleDeveloper), "keys, signing secret, sending callbacks again"},
	{string(access.RoleViewer), "view only"},
}

// showMembers answers GET /dashboard/members; with ?show=… a new invite's link is shown above the list, once.
func (h memberPages) showMembers(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	var shown *shownInvite
	if name := page.Single(r.URL.Query(), "show"); name != "" {
		shown = &shownInvite{}
		switch err := h.Logins.Take(ctx, v.Login, name, shown); {
		case errors.Is(err, logins.ErrNoParcel):
			h.Done(w, flashOnce, paths.Members)
			return
		case err != nil:
			h.Fail(w, r, &v, err)
			return
		}
	}
	h.drawMembers(w, r, v, shown, nil)
}

func (h memberPages) drawMembers(w http.ResponseWriter, r *http.Request, v site.Visit, shown *shownInvite,
	f *form.Form) {
	ctx, cancel := h.Within(r)
	defer cancel()
	d := membersData{New: shown, Roles: roleChoices, Invites: h.Accounts.OpenInvites(ctx, v.Account)}
	for _, m := range v.Account.Members {
		d.Members = append(d.Members, h.memberRow(v, m))
	}
	status := http.StatusOK
	if f != nil {
		status = http.StatusUnprocessableEntity
	}
	h.Draw(w, site.View{
		Page: "members", Title: "Members", Nav: "members", Visit: &v, Flash: h.TakeFlash(w, r), Form: f,
		Status: status, Data: d,
	})
}

func (h memberPages) memberRow(v site.Visit, m account.Member) memberRow {
	row := memberRow{
		Member: m, You: v.Login.Network == m.Network && v.Login.Subject == m.Subject, Name: m.Name,
	}
	if row.Name == "" {
		row.Name = m.Subject
	}
	return row
}

// invite answers POST /dashboard/members/invite.
func (h memberPages) invite(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	f := form.New(r)
	token, i, err := h.Accounts.CreateInvite(ctx, v.Actor(), v.Account.ID, access.Role(f.Text("role")),
		f.Text("for"))
	switch {
	case errors.Is(err, account.ErrFull):
		f.Wrong("for", form.Sentence(err.Error()))
		h.drawMembers(w, r, v, nil, f)
		return
	case f.Take(err):
		h.drawMembers(w, r, v, nil, f)
		return
	case err != nil:
		h.Fail(w, r, &v, err)
		return
	}
	shown := shownInvite{Link: h.Base + paths.Invite + "?" + form.Query("token", token), Invite: i}
	name, err := h.Logins.Hand(ctx, v.Login, shown)
	if err != nil { // the invite exists: better shown in the answer to a POST than never
		web.EventFrom(r.Context()).Err = err
		h.drawMembers(w, r, v, &shown, nil)
		return
	}
	page.SeeOther(w, h.Prefix+paths.Members+"?"+form.Query("show", name))
}

// withdraw answers POST /dashboard/members/withdraw.
func (h memberPages) withdraw(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	_, err := h.Accounts.WithdrawInvite(ctx, v.Actor(), v.Account.ID, page.Single(r.PostForm, "invite"))
	h.memberChanged(w, r, v, err, flashInviteWithdrawn)
}

// setRole answers POST /dashboard/members/role.
func (h memberPages) setRole(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	role, err := access.ParseRole(page.Single(r.PostForm, "role"))
	if err != nil {
		h.DrawProblem(w, &v, site.ProblemMalformed)
		return
	}
	who := form.Member(r.PostForm)
	_, err = h.Accounts.SetRole(ctx, v.Actor(), v.Account.ID, who.Network, who.Subject, role)
	h.memberChanged(w, r, v, err, flashRoleChanged)
}

// unlessOwn answers a form about a member by one page, and by the other where the member is the visitor:
// nothing keeps anybody from giving up a right of their own.
func unlessOwn(one, own site.Page) site.Page {
	return func(w http.ResponseWriter, r *http.Request, v site.Visit) {
		you := access.Identity{Network: v.Login.Network, Subject: v.Login.Subject}
		if you.Is(form.Member(r.PostForm)) {
			own(w, r, v)
			return
		}
		one(w, r, v)
	}
}

// memberChanged answers a change of the members.
func (h memberPages) memberChanged(w http.ResponseWriter, r *http.Request, v site.Visit, err error,
	code site.FlashCode) {
	switch {
	case err == nil:
		h.Done(w, code, paths.Members)
	case errors.Is(err, account.ErrLastOwner):
		h.Done(w, flashLastOwner, paths.Members)
	case errors.Is(err, account.ErrNoMember), errors.Is(err, account.ErrNoInvite):
		h.Done(w, site.FlashGone, paths.Members)
	default:
		h.Fail(w, r, &v, err)
	}
}

// showRemove answers GET /dashboard/members/remove?member=…: the question. Owners may remove any
// member, all others only themselves.
func (h memberPages) showRemove(w http.ResponseWriter, r *http.Request, v site.Visit) {
	var row memberRow
	if i := v.Account.Find(form.Member(r.URL.Query())); i >= 0 {
		row = h.memberRow(v, v.Account.Members[i])
	}
	switch {
	case !v.May(access.ActionMembers) && !row.You:
		h.DrawProblem(w, &v, site.ProblemForbidden)
	case row.Network == "":
		h.DrawProblem(w, &v, site.ProblemNotFound)
	default:
		h.Draw(w, site.View{
			Page: "remove", Title: "Remove a member", Nav: "members", Visit: &v, Data: row,
		})
	}
}

// removeMember answers POST /dashboard/members/remove.
func (h memberPages) removeMember(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	who := form.Member(r.PostForm)
	_, err := h.Accounts.RemoveMember(ctx, v.Actor(), v.Account.ID, who.Network, who.Subject)
	h.memberChanged(w, r, v, err, flashMemberRemoved)
}
