package operator

import (
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/web"
)

// The paths that change something.
const (
	pathPause   = "/dashboard/operator/hosts/pause"
	pathResume  = "/dashboard/operator/hosts/resume"
	pathRedrive = "/dashboard/operator/undelivered/redrive"
	pathFind    = "/dashboard/operator/search"

	pathDisable  = paths.OperatorAccount + "/disable"
	pathEnable   = paths.OperatorAccount + "/enable"
	pathDelete   = paths.OperatorAccount + "/delete"
	pathRestore  = paths.OperatorAccount + "/restore"
	pathVerified = paths.OperatorAccount + "/verified"
	pathMove     = paths.OperatorAccount + "/move-member"
)

// Routes returns the route table.
func (h *Handler) Routes() []web.Route {
	a := accountPages{h}
	return []web.Route{
		paths.Get(paths.Operator, h.read(h.showService)),
		paths.Get(paths.OperatorAccounts, h.read(h.showAccounts)),
		paths.Get(paths.OperatorAccount, h.read(a.showAccount)),
		paths.Post(pathDisable, h.mutate(a.disable)),
		paths.Post(pathEnable, h.mutate(a.enable)),
		paths.Post(pathDelete, h.mutate(site.Fresh(h.Site, site.ActDelete, "..", a.askDeletion))),
		paths.Post(pathRestore, h.mutate(a.restore)),
		paths.Post(pathVerified, h.mutate(a.setVerified)),
		paths.Get(pathMove, h.read(site.Fresh(h.Site, site.ActMove, ".", a.showMove))),
		paths.Post(pathMove, h.mutate(site.Fresh(h.Site, site.ActMove, ".", a.moveMember))),
		paths.Get(paths.OperatorSession, h.read(h.showSession)),
		paths.Get(paths.OperatorHosts, h.read(h.showHosts)),
		paths.Post(pathPause, h.mutate(h.pause)),
		paths.Post(pathResume, h.mutate(h.resume)),
		paths.Post(pathFind, h.mutate(h.find)),
		paths.Get(paths.Undelivered, h.read(h.showUndelivered)),
		paths.Post(pathRedrive, h.mutate(h.redrive)),
		paths.Get(paths.OperatorAudit, h.read(h.showAudit)),
	}
}
