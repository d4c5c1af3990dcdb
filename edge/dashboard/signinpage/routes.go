package signinpage

import (
	"verifyd/edge/account/access"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/web"
)

// Routes returns the route table.
func (h *Handler) Routes() []web.Route {
	look := paths.Post(pathLook, h.Upload(access.ActionBranding, maxUpload, h.setLook))
	look.MaxBody = maxUpload
	return []web.Route{
		paths.Get(pathPage, h.Read(access.ActionView, h.show)),
		paths.Get(pathPreview, h.Read(access.ActionView, h.preview)),
		look,
		paths.Post(pathReturnURL, h.Mutate(access.ActionBranding, h.setReturnURL)),
		paths.Post(pathReturnOrigins, h.Mutate(access.ActionBranding, h.setReturnOrigins)),
		paths.Post(pathBinding, h.Mutate(access.ActionBranding, h.setBinding)),
	}
}
