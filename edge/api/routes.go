package api

import (
	"net/http"
	"strings"

	"verifyd/edge/apidoc"
	"verifyd/edge/export"
	"verifyd/edge/page"
	"verifyd/edge/places"
	"verifyd/edge/web"
)

// The paths of this package's own routes.
const (
	pathInit    = "/verify/init"
	pathUsage   = "/usage"
	pathSigning = "/signing-keys"
	pathList    = "/sessions"
	pathSession = "/sessions/{session}"
	pathCancel  = "/sessions/{session}/cancel"
	pathResend  = "/sessions/{session}/resend"
	pathConfirm = "/sessions/{session}/confirm"
	pathListen  = "/listen"
	pathListens = "/listen/{exchange}"
	pathOpenAPI = "/openapi.yaml"
	pathDocs    = "/docs/api" // below the documents of package guide
	pathIcon    = "/favicon.ico"
)

// New makes the public handler: the routes of this package and those of Config.Routes, each under request
// log, metrics, size limit and recovery. It starts nothing.
func New(c Config) (http.Handler, error) {
	c = c.WithDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	base, prefix, err := web.ParseBaseURL(c.BaseURL)
	if err != nil {
		return nil, err
	}
	starts, err := newStarts(c.Metrics)
	if err != nil {
		return nil, err
	}
	docs, err := apidoc.New(base, prefix)
	if err != nil {
		return nil, err
	}
	a := &api{
		guard: guard{c, places.New(places.Pools.NewKeys)}, base: base, docs: docs,
		waiting:   places.New(places.Pools.Changed.Sized(c.MaxWaiting)),
		listing:   places.New(places.Pools.Lists.Sized(c.MaxListing)),
		listening: places.New(places.Pools.Listeners), exports: export.NewAnswers(),
	}
	return web.New(web.Config{
		Prefix: prefix, HTTPS: strings.HasPrefix(base, "https:"), Routes: a.routes(), Nowhere: c.Nowhere,
		TrustedProxies: c.TrustedProxies,
		Metrics:        c.Metrics, Tracer: c.Tracer, Log: c.Log, Answered: starts.count,
	})
}

// routes is the route table.
func (a *api) routes() []web.Route {
	return append([]web.Route{
		{Method: http.MethodPost, Path: pathInit, Name: nameInit, Handler: http.HandlerFunc(a.init)},
		{Method: http.MethodGet, Path: pathUsage, Name: "usage", Handler: http.HandlerFunc(a.readUsage)},
		{Method: http.MethodGet, Path: pathSigning, Name: "signing_keys",
			Handler: http.HandlerFunc(a.readSigningKeys)},
		{Method: http.MethodGet, Path: pathList, Name: "list",
			Handler: http.HandlerFunc(listings{a}.answer)},
		{Method: http.MethodGet, Path: pathSession, Name: "session",
			Handler: http.HandlerFunc(a.readSession)},
		{Method: http.MethodPost, Path: pathCancel, Name: nameCancel,
			Handler: http.HandlerFunc(a.cancelSession)},
		{Method: http.MethodPost, Path: pathResend, Name: nameResend,
			Handler: http.HandlerFunc(a.resendSession)},
		{Method: http.MethodPost, Path: pathConfirm, Name: nameConfirm,
			Handler: http.HandlerFunc(confirmations{a}.answer)},
		{Method: http.MethodPost, Path: pathListen, Name: "listen", Handler: http.HandlerFunc(a.listen)},
		{Method: http.MethodPost, Path: pathListens, Name: "listen_answer",
			Handler: http.HandlerFunc(a.answerListen)},
		{Method: http.MethodGet, Path: pathOpenAPI, Name: "openapi", Handler: a.docs.YAML()},
		{Method: http.MethodGet, Path: pathDocs, Name: "docs_api", Handler: a.docs.Page()},
		{Method: http.MethodGet, Path: a.docs.StylePath(), Name: "docs_asset", Handler: a.docs.Style()},
		{Method: http.MethodGet, Path: a.docs.ScriptPath(), Name: "docs_asset", Handler: a.docs.Script()},
		{Method: http.MethodGet, Path: pathIcon, Name: "icon", Handler: page.Icon()},
	}, a.Routes...)
}
