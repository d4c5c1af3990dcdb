package dashboard

import (
	"net/http"
	"slices"
	"strings"

	"verifyd/edge"
	"verifyd/edge/account"
	"verifyd/edge/page"
)

// The paths of this package, below the base URL.
const (
	pathRoot       = "/dashboard"
	pathLogin      = "/dashboard/login"
	pathLink       = "/dashboard/link"
	pathInvite     = "/dashboard/invite"
	pathNewAccount = "/dashboard/new-account"
	pathAccount    = "/dashboard/account"
	pathLogout     = "/dashboard/logout"

	pathKeys       = "/dashboard/keys"
	pathNewKey     = "/dashboard/new-key"
	pathRoll       = "/dashboard/keys/{key}/roll"
	pathRevoke     = "/dashboard/keys/{key}/revoke"
	pathSessions   = "/dashboard/sessions"
	pathSession    = "/dashboard/sessions/{session}"
	pathLive       = "/dashboard/sessions/{session}/live"
	pathResend     = "/dashboard/sessions/{session}/resend"
	pathSigning    = "/dashboard/signing"
	pathReveal     = "/dashboard/signing/reveal"
	pathRotate     = "/dashboard/signing/rotate"
	pathEndOverlap = "/dashboard/signing/end"
	pathTest       = "/dashboard/signing/test"
	pathUsage      = "/dashboard/usage"
	pathQuickstart = "/dashboard/quickstart"
	pathMembers    = "/dashboard/members"
	pathInvites    = "/dashboard/members/invite"
	pathWithdraw   = "/dashboard/members/withdraw"
	pathRole       = "/dashboard/members/role"
	pathRemove     = "/dashboard/members/remove"
	pathAudit      = "/dashboard/audit"
	pathSettings   = "/dashboard/settings"

	pathFace          = "/dashboard/sign-in-page"
	pathFacePreview   = "/dashboard/sign-in-page/preview"
	pathColour        = "/dashboard/sign-in-page/colour"
	pathReturnURL     = "/dashboard/sign-in-page/return-url"
	pathReturnOrigins = "/dashboard/sign-in-page/return-origins"

	pathAssets = "/assets/"
)

// Routes gives the route table, for edge.Config. HEAD comes with GET, but for the return from an identity network: a HEAD there
// would spend the attempt.
func (h *Handler) Routes() []edge.Route {
	outside := func(next http.HandlerFunc) http.Handler { return page.Guard(h.https, next) }
	routes := []edge.Route{
		get(pathRoot, outside(h.root)),
		get(pathRoot+"/", outside(h.root)), // as people type it
		get(pathLogin, outside(h.showLogin)),
		post(pathLogin, h.posted(http.HandlerFunc(h.leave))),
		get(ReturnPath, outside(h.finish)),
		{Method: http.MethodHead, Path: ReturnPath, Name: routeName(ReturnPath), Handler: outside(refuseHead)},
		get(pathLink, outside(h.showLink)),
		post(pathLink, h.posted(http.HandlerFunc(h.redeemLink))),
		get(pathInvite, outside(h.showInvite)),
		post(pathInvite, h.posted(http.HandlerFunc(h.acceptInvite))),
		get(pathNewAccount, outside(h.showNewAccount)),
		post(pathNewAccount, h.posted(http.HandlerFunc(h.makeAccount))),
		post(pathAccount, h.posted(http.HandlerFunc(h.chooseAccount))),
		post(pathLogout, h.posted(http.HandlerFunc(h.logout))),

		get(pathKeys, h.open(account.ActionView, h.showKeys)),
		get(pathNewKey, h.open(account.ActionKeys, h.showNewKey)),
		post(pathNewKey, h.act(account.ActionKeys, h.createKey)),
		get(pathRoll, h.open(account.ActionKeys, h.showRoll)),
		post(pathRoll, h.act(account.ActionKeys, h.rollKey)),
		get(pathRevoke, h.open(account.ActionKeys, h.showRevoke)),
		post(pathRevoke, h.act(account.ActionKeys, h.revokeKey)),

		get(pathSessions, h.open(account.ActionView, h.showSessions)),
		get(pathSession, h.open(account.ActionView, h.showSession)),
		get(pathLive, h.open(account.ActionView, h.live)),
		post(pathResend, h.act(account.ActionSend, h.resend)),

		get(pathSigning, h.open(account.ActionView, h.showSigning)),
		post(pathReveal, h.act(account.ActionReveal, h.reveal)),
		post(pathRotate, h.act(account.ActionSecrets, h.rotate)),
		post(pathEndOverlap, h.act(account.ActionSecrets, h.endOverlap)),
		post(pathTest, h.act(account.ActionSend, h.sendTest)),

		get(pathUsage, h.open(account.ActionView, h.showUsage)),
		get(pathQuickstart, h.open(account.ActionView, h.showQuickstart)),

		get(pathAudit, h.open(account.ActionAudit, h.showAudit)),
		get(pathSettings, h.open(account.ActionView, h.showSettings)),
	}
	routes = slices.Concat(routes, h.memberRoutes(), h.faceRoutes(), h.operatorRoutes())
	for _, a := range h.painter.assets() {
		routes = append(routes, edge.Route{Method: http.MethodGet, Path: pathAssets + a.Name, Name: "dashboard_asset", Handler: a})
	}
	return routes
}

func get(path string, handler http.Handler) edge.Route {
	return edge.Route{Method: http.MethodGet, Path: path, Name: routeName(path), Handler: handler}
}

func post(path string, handler http.Handler) edge.Route {
	return edge.Route{Method: http.MethodPost, Path: path, Name: routeName(path), Handler: handler}
}

// memberRoutes are those of the page of members.
func (h *Handler) memberRoutes() []edge.Route {
	return []edge.Route{
		get(pathMembers, h.open(account.ActionView, h.showMembers)),
		post(pathInvites, h.act(account.ActionMembers, h.invite)),
		post(pathWithdraw, h.act(account.ActionMembers, h.withdraw)),
		post(pathRole, h.act(account.ActionMembers, h.setRole)),
		get(pathRemove, h.open(account.ActionView, h.showRemove)), // who may is judged by whom
		post(pathRemove, h.act(account.ActionView, h.removeMember)),
	}
}

// faceRoutes are those of the page on which owners set what users see.
func (h *Handler) faceRoutes() []edge.Route {
	return []edge.Route{
		get(pathFace, h.open(account.ActionView, h.showFace)),
		get(pathFacePreview, h.open(account.ActionView, h.preview)),
		post(pathColour, h.act(account.ActionFace, h.setColour)),
		post(pathReturnURL, h.act(account.ActionFace, h.setReturnURL)),
		post(pathReturnOrigins, h.act(account.ActionFace, h.setReturnOrigins)),
	}
}

// routeName makes a route's name for logs and metrics from its path: dashboard_keys_revoke.
func routeName(path string) string {
	var words []string
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if !strings.HasPrefix(part, "{") {
			words = append(words, strings.ReplaceAll(part, "-", "_"))
		} else if len(words) > 0 && part != "{network}" {
			words[len(words)-1] = strings.TrimSuffix(words[len(words)-1], "s")
		}
	}
	return strings.Join(words, "_")
}

func refuseHead(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", http.MethodGet)
	w.WriteHeader(http.StatusMethodNotAllowed)
}

// pathOf fills the one name in a path.
func pathOf(path, value string) string {
	from, rest, _ := strings.Cut(path, "{")
	_, rest, _ = strings.Cut(rest, "}")
	return from + value + rest
}
