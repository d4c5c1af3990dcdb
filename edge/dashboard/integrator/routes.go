package integrator

import (
	"net/http"

	"verifyd/edge/account/access"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/web"
)

// The paths that no other package links to.
const (
	pathNewKey = "/dashboard/new-key"
	pathRoll   = "/dashboard/keys/{key}/roll"
	pathRevoke = "/dashboard/keys/{key}/revoke"

	pathFind    = "/dashboard/search"
	pathExport  = "/dashboard/export"
	pathSession = "/dashboard/sessions/{session}"
	pathLive    = "/dashboard/sessions/{session}/live"

	pathReveal     = "/dashboard/signing/reveal"
	pathRotate     = "/dashboard/signing/rotate"
	pathEndOverlap = "/dashboard/signing/end"

	pathInvites  = "/dashboard/members/invite"
	pathWithdraw = "/dashboard/members/withdraw"
	pathRole     = "/dashboard/members/role"
	pathRemove   = "/dashboard/members/remove"

	pathName    = "/dashboard/settings/name"
	pathDelete  = "/dashboard/settings/delete"
	pathRestore = "/dashboard/settings/restore"
)

// Routes returns the route table.
func (h *Handler) Routes() []web.Route {
	view := func(next site.Page) http.Handler {
		return h.Read(access.ActionView, func(w http.ResponseWriter, r *http.Request, v site.Visit) {
			h.Sessions.Expect(v.Account.ID) // each page has the field that searches
			next(w, r, v)
		})
	}
	fresh := func(act site.Act, at string, next site.Page) site.Page {
		return site.Fresh(h.Site, act, at, next)
	}
	others := func(at string, next site.Page) site.Page {
		return unlessOwn(fresh(site.ActShare, at, next), next)
	}
	k, s, g, m, a := keyPages{h.deps}, h.sessions, h.signing, memberPages{h.deps}, accountPages{h.deps}
	return []web.Route{
		paths.Get(paths.Keys, view(k.showKeys)),
		paths.Get(pathNewKey, h.Read(access.ActionKeys, fresh(site.ActCreate, ".", k.showNewKey))),
		paths.Post(pathNewKey, h.Mutate(access.ActionKeys, fresh(site.ActCreate, ".", k.createKey))),
		paths.Get(pathRoll, h.Read(access.ActionKeys, fresh(site.ActRoll, ".", k.showRoll))),
		paths.Post(pathRoll, h.Mutate(access.ActionKeys, fresh(site.ActRoll, ".", k.rollKey))),
		paths.Get(pathRevoke, h.Read(access.ActionKeys, k.showRevoke)),
		paths.Post(pathRevoke, h.Submit(access.ActionKeys, k.revokeKey)),

		paths.Get(paths.Sessions, view(s.showSessions)),
		paths.Post(pathFind, h.Submit(access.ActionView, s.find)),
		paths.Get(pathExport, h.Read(access.ActionExport, s.export)),
		paths.Get(pathSession, view(s.showSession)),
		paths.Get(pathLive, view(s.live)),

		paths.Get(paths.Signing, view(g.showSigning)),
		paths.Post(pathReveal, h.Mutate(access.ActionReveal, fresh(site.ActReveal, "..", g.reveal))),
		paths.Post(pathRotate, h.Mutate(access.ActionSecrets, g.rotate)),
		paths.Post(pathEndOverlap, h.Submit(access.ActionSecrets, g.endOverlap)),

		paths.Get(paths.Members, view(m.showMembers)),
		paths.Post(pathInvites, h.Mutate(access.ActionMembers, fresh(site.ActShare, "..", m.invite))),
		paths.Post(pathWithdraw, h.Submit(access.ActionMembers, m.withdraw)),
		paths.Post(pathRole, h.Mutate(access.ActionMembers, others("..", m.setRole))),
		paths.Get(pathRemove, view(m.showRemove)), // who may do it depends on who is removed
		paths.Post(pathRemove, h.Submit(access.ActionView, others(".", m.removeMember))),

		paths.Get(paths.Usage, view(a.showUsage)),
		paths.Get(paths.Quickstart, view(a.showQuickstart)),
		paths.Get(paths.Audit, h.Read(access.ActionAudit, a.showAudit)),
		paths.Get(paths.Settings, view(a.showSettings)),
		paths.Post(pathName, h.Mutate(access.ActionAccount, a.rename)),
		paths.Get(pathDelete, h.Read(access.ActionAccount, fresh(site.ActDelete, ".", a.showDelete))),
		paths.Post(pathDelete, h.Submit(access.ActionAccount, fresh(site.ActDelete, ".", a.askDeletion))),
		paths.Post(pathRestore, h.Mutate(access.ActionRestore, a.restore)),
	}
}
