package manage

import (
	"net/http"
	"net/url"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/grant"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/edge/web"
)

// memberCalls are the operations on members and invites.
type memberCalls struct{ *Handler }

func (h memberCalls) operations() []operation {
	return []operation{
		{http.MethodGet, pathMembers, "manage_members", grant.MembersRead, false, h.listMembers},
		{http.MethodPatch, pathMembers, "manage_member_change", grant.MembersWrite, false, h.changeMember},
		{http.MethodDelete, pathMembers, "manage_member_remove", grant.MembersWrite, false, h.removeMember},
		{http.MethodPost, pathMove, "manage_member_move", grant.MembersWrite, false, h.moveMember},
		{http.MethodGet, pathLinks, "manage_login_links", grant.MembersRead, false, h.listLinks},
		{http.MethodPost, pathInvites, "manage_invite_create", grant.MembersWrite, true, h.createInvite},
		{http.MethodDelete, pathInvite, "manage_invite_withdraw", grant.MembersWrite, false,
			h.withdrawInvite},
	}
}

// memberDoc is a member in an answer.
type memberDoc struct {
	ID      string `json:"id"`
	Network string `json:"network"`
	Subject string `json:"subject"`
	Name    string `json:"name"`
	Email   string `json:"email"`
	Role    string `json:"role"`
	Since   string `json:"since"`
}

// inviteDoc is an open invite.
type inviteDoc struct {
	ID        string `json:"id"`
	Role      string `json:"role"`
	For       string `json:"for"`
	By        string `json:"by"`
	CreatedAt string `json:"created_at"`
	ExpiresAt string `json:"expires_at"`
}

// linkedInviteDoc is an invite in the answer that created it.
type linkedInviteDoc struct {
	inviteDoc

	Link string `json:"link"`
}

// peopleDoc has the members of an account and its open invites. There are 200 at most, so it has no pages.
type peopleDoc struct {
	Members []memberDoc `json:"members"`
	Invites []inviteDoc `json:"invites"`
}

// people answers a call with the members and the open invites of an account.
func (h memberCalls) people(c call) func(account.Account, error) (answer, *problem.Problem) {
	return func(a account.Account, err error) (answer, *problem.Problem) {
		if err != nil {
			return answer{}, refusal(err)
		}
		doc := peopleDoc{Members: []memberDoc{}, Invites: []inviteDoc{}}
		for _, m := range a.Members {
			doc.Members = append(doc.Members, memberDoc{
				m.Identity().Address(), m.Network, m.Subject, m.Name, m.Email, string(m.Role),
				web.Timestamp(m.Since),
			})
		}
		for _, i := range h.Accounts.OpenInvites(c.ctx(), a) {
			doc.Invites = append(doc.Invites, inviteOf(i))
		}
		return answer{status: http.StatusOK, doc: doc}, nil
	}
}

func inviteOf(i account.Invite) inviteDoc {
	return inviteDoc{
		i.ID, string(i.Role), i.For, i.By, web.Timestamp(i.CreatedAt), web.Timestamp(i.ExpiresAt),
	}
}

// GET /manage/accounts/{account}/members lists the members and the open invites.
func (h memberCalls) listMembers(c call) (answer, *problem.Problem) {
	return h.people(c)(h.Accounts.Account(c.ctx(), c.account()))
}

// member reads from the query who a member is: their id, which is returned as the subject, or their identity.
// A subject may hold any character, so it is not in the path.
func (c call) member() (network, subject string, p *problem.Problem) {
	q, p := c.query()
	if p != nil {
		return "", "", p
	}
	if id := q.Single("member"); id != "" {
		return "", id, q.Problem() // refuses network and subject, which could name somebody else
	}
	network, subject = q.Single("network"), q.Single("subject")
	for _, name := range []string{"network", "subject"} {
		if !q.Values.Has(name) {
			q.Faultf(name, "it is required, unless there is a member")
		}
	}
	return network, subject, q.Problem()
}

// PATCH /manage/accounts/{account}/members?member= changes a member's role. A repeat is harmless.
func (h memberCalls) changeMember(c call) (answer, *problem.Problem) {
	network, subject, p := c.member()
	var m *request.Members
	if p == nil {
		m, p = c.body("role")
	}
	if p != nil {
		return answer{}, p
	}
	role, _ := m.Text("role", true)
	if p := m.Problem(); p != nil {
		return answer{}, p
	}
	return h.people(c)(h.Accounts.SetRole(c.ctx(), c.by, c.account(), network, subject, access.Role(role)))
}

// DELETE /manage/accounts/{account}/members?member= removes a member, with the invites that they
// have made.
func (h memberCalls) removeMember(c call) (answer, *problem.Problem) {
	network, subject, p := c.member()
	if p != nil {
		return answer{}, p
	}
	return h.people(c)(h.Accounts.RemoveMember(c.ctx(), c.by, c.account(), network, subject))
}

// POST /manage/accounts/{account}/members/move?member= removes a member and adds them to another
// account, whose people are the answer. A repeat is refused.
func (h memberCalls) moveMember(c call) (answer, *problem.Problem) {
	network, subject, p := c.member()
	var m *request.Members
	if p == nil {
		m, p = c.body("to", "role")
	}
	if p != nil {
		return answer{}, p
	}
	to, _ := m.Text("to", true)
	role, _ := m.Text("role", false)
	if p := m.Problem(); p != nil {
		return answer{}, p
	}
	who := access.Identity{Network: network, Subject: subject}
	_, err := h.Accounts.MoveMember(c.ctx(), c.by, c.account(), to, who, access.Role(role))
	if err != nil {
		return answer{}, refusal(err)
	}
	return h.people(c)(h.Accounts.Account(c.ctx(), to))
}

// linkDoc describes a login link that was or can be used, without the link itself.
type linkDoc struct {
	ID    string `json:"id"`
	Role  string `json:"role"`
	By    string `json:"by"`
	Since string `json:"created_at"`
	Until string `json:"ends_at"` // when the last login by it ends at the latest
}

// linkList are the login links of an account.
type linkList struct {
	Links []linkDoc `json:"login_links"`
}

// GET /manage/accounts/{account}/login-links lists the login links that grant something. They are created and
// revoked at the command line on a machine of the service: the grants are stored where no edge can write.
func (h memberCalls) listLinks(c call) (answer, *problem.Problem) {
	a, err := h.Accounts.Account(c.ctx(), c.account())
	if err != nil {
		return answer{}, refusal(err)
	}
	links, err := h.Accounts.LoginLinks(c.ctx(), a.ID)
	if err != nil {
		return answer{}, refusal(err)
	}
	doc := linkList{[]linkDoc{}}
	for _, l := range links {
		doc.Links = append(doc.Links, linkDoc{
			l.Link, string(l.Role), l.By, web.Timestamp(l.Since), web.Timestamp(l.Until),
		})
	}
	return answer{status: http.StatusOK, doc: doc}, nil
}

// POST /manage/accounts/{account}/invites creates an invite, and shows its link only this once.
func (h memberCalls) createInvite(c call) (answer, *problem.Problem) {
	m, p := c.body("role", "for")
	if p != nil {
		return answer{}, p
	}
	role, _ := m.Text("role", true)
	whom, _ := m.Text("for", false)
	if p := m.Problem(); p != nil {
		return answer{}, p
	}
	token, i, err := h.Accounts.CreateInvite(c.ctx(), c.by, c.account(), access.Role(role), whom)
	if err != nil {
		return answer{}, refusal(err)
	}
	link := h.BaseURL + paths.Invite + "?" + url.Values{"token": {token}}.Encode()
	return answer{status: http.StatusCreated, doc: linkedInviteDoc{inviteOf(i), link}}, nil
}

// DELETE /manage/accounts/{account}/invites/{invite} withdraws an invite.
func (h memberCalls) withdrawInvite(c call) (answer, *problem.Problem) {
	return h.people(c)(h.Accounts.WithdrawInvite(c.ctx(), c.by, c.account(), c.http.PathValue("invite")))
}
