package integrator

import (
	"net/http"

	"verifyd/edge"
	"verifyd/edge/account"
	"verifyd/edge/dashboard/site"
)

// The paths that no other package leads to.
const (
	pathNewKey = "/dashboard/new-key"
	pathRoll   = "/dashboard/keys/{key}/roll"
	pathRevoke = "/dashboard/keys/{key}/revoke"

	pathSession = "/dashboard/sessions/{session}"
	pathLive    = "/dashboard/sessions/{session}/live"
	pathResend  = "/dashboard/sessions/{session}/resend"

	pathReveal     = "/dashboard/signing/reveal"
	pathRotate     = "/dashboard/signing/rotate"
	pathEndOverlap = "/dashboard/signing/end"
	pathTest       = "/dashboard/signing/test"

	pathInvites  = "/dashboard/members/invite"
	pathWithdraw = "/dashboard/members/withdraw"
	pathRole     = "/dashboard/members/role"
	pathRemove   = "/dashboard/members/remove"

	pathSettings = "/dashboard/settings"

	pathBranding      = "/dashboard/sign-in-page"
	pathPreview       = "/dashboard/sign-in-page/preview"
	pathColour        = "/dashboard/sign-in-page/colour"
	pathReturnURL     = "/dashboard/sign-in-page/return-url"
	pathReturnOrigins = "/dashboard/sign-in-page/return-origins"
)

// Routes returns the route table.
func (h *Handler) Routes() []edge.Route {
	view := func(next site.Page) http.Handler { return h.Read(account.ActionView, next) }
	k, s, g, m, b, a := keyPages{h.deps}, h.sessions, h.signing, memberPages{h.deps}, brandingPages{h.deps},
		accountPages{h.deps}
	return []edge.Route{
		site.Get(site.PathKeys, view(k.showKeys)),
		site.Get(pathNewKey, h.Read(account.ActionKeys, k.showNewKey)),
		site.Post(pathNewKey, h.Mutate(account.ActionKeys, k.createKey)),
		site.Get(pathRoll, h.Read(account.ActionKeys, k.showRoll)),
		site.Post(pathRoll, h.Mutate(account.ActionKeys, k.rollKey)),
		site.Get(pathRevoke, h.Read(account.ActionKeys, k.showRevoke)),
		site.Post(pathRevoke, h.Mutate(account.ActionKeys, k.revokeKey)),

		site.Get(site.PathSessions, view(s.showSessions)),
		site.Get(pathSession, view(s.showSession)),
		site.Get(pathLive, view(s.live)),
		site.Get(pathResend, h.Read(account.ActionSend, s.showResend)),
		site.Post(pathResend, h.Mutate(account.ActionSend, s.resend)),

		site.Get(site.PathSigning, view(g.showSigning)),
		site.Post(pathReveal, h.Mutate(account.ActionReveal, g.reveal)),
		site.Post(pathRotate, h.Mutate(account.ActionSecrets, g.rotate)),
		site.Post(pathEndOverlap, h.Mutate(account.ActionSecrets, g.endOverlap)),
		site.Post(pathTest, h.Mutate(account.ActionSend, g.sendTest)),

		site.Get(site.PathMembers, view(m.showMembers)),
		site.Post(pathInvites, h.Mutate(account.ActionMembers, m.invite)),
		site.Post(pathWithdraw, h.Mutate(account.ActionMembers, m.withdraw)),
		site.Post(pathRole, h.Mutate(account.ActionMembers, m.setRole)),
		site.Get(pathRemove, view(m.showRemove)), // who may is judged by whom
		site.Post(pathRemove, h.Mutate(account.ActionView, m.removeMember)),

		site.Get(pathBranding, view(b.show)),
		site.Get(pathPreview, view(b.preview)),
		site.Post(pathColour, h.Mutate(account.ActionBranding, b.setColour)),
		site.Post(pathReturnURL, h.Mutate(account.ActionBranding, b.setReturnURL)),
		site.Post(pathReturnOrigins, h.Mutate(account.ActionBranding, b.setReturnOrigins)),

		site.Get(site.PathUsage, view(a.showUsage)),
		site.Get(site.PathQuickstart, view(a.showQuickstart)),
		site.Get(site.PathAudit, h.Read(account.ActionAudit, a.showAudit)),
		site.Get(pathSettings, view(a.showSettings)),
	}
}
