package edge

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/julienschmidt/httprouter"

	"verifyd/edge/apidoc"
	"verifyd/edge/limit"
	"verifyd/edge/page"
)

// The paths of this package's own routes.
const (
	pathInit    = "/verify/init"
	pathUsage   = "/usage"
	pathList    = "/sessions"
	pathSession = "/sessions/{session}"
	pathCancel  = "/sessions/{session}/cancel"
	pathResend  = "/sessions/{session}/resend"
	pathListen  = "/listen"
	pathListens = "/listen/{exchange}"
	pathOpenAPI = "/openapi.yaml"
	pathDocs    = "/docs"
	pathIcon    = "/favicon.ico"
)

// api holds what the handlers share.
type api struct {
	Config

	base    string // {base_url} without a final slash
	metrics *metrics
	docs    *apidoc.Document

	waiting   *limit.Places // requests that wait for a change
	listing   *limit.Places
	listening *limit.Places
}

// New makes the public handler: the routes of this package and those of Config.Routes, each under request
// log, metrics, size limit and recovery. It starts nothing.
func New(c Config) (http.Handler, error) {
	c = c.WithDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	base, prefix, err := ParseBaseURL(c.BaseURL)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(c.Metrics)
	if err != nil {
		return nil, err
	}
	docs, err := apidoc.New(base, prefix)
	if err != nil {
		return nil, err
	}
	a := &api{
		Config: c, base: base, metrics: m, docs: docs,
		waiting: limit.NewPlaces(c.MaxWaiting), listing: limit.NewPlaces(c.MaxListing),
		listening: limit.NewPlaces(maxListeners),
	}
	router, err := a.router(prefix)
	if err != nil {
		return nil, err
	}
	return a.frame(router), nil
}

// routes is the route table.
func (a *api) routes() []Route {
	return append([]Route{
		{http.MethodPost, pathInit, "init", http.HandlerFunc(a.init)},
		{http.MethodGet, pathUsage, "usage", http.HandlerFunc(a.readUsage)},
		{http.MethodGet, pathList, "list", http.HandlerFunc(a.listSessions)},
		{http.MethodGet, pathSession, "session", http.HandlerFunc(a.readSession)},
		{http.MethodPost, pathCancel, "cancel", http.HandlerFunc(a.cancelSession)},
		{http.MethodPost, pathResend, "resend", http.HandlerFunc(a.resendSession)},
		{http.MethodPost, pathListen, "listen", http.HandlerFunc(a.listen)},
		{http.MethodPost, pathListens, "listen_answer", http.HandlerFunc(a.answerListen)},
		{http.MethodGet, pathOpenAPI, "openapi", a.docs.YAML()},
		{http.MethodGet, pathDocs, "docs", a.docs.Page()},
		{http.MethodGet, a.docs.StylePath(), "docs_asset", a.docs.Style()},
		{http.MethodGet, pathIcon, "icon", page.Icon()},
	}, a.Routes...)
}

func (a *api) router(prefix string) (*httprouter.Router, error) {
	// Both redirect options are off: a redirect to a path that resembles the one asked for would send a
	// POST's body, or a session token, elsewhere. OPTIONS is answered because the router's Allow names it; it
	// gives no other origin any right.
	router := &httprouter.Router{
		HandleMethodNotAllowed: true,
		HandleOPTIONS:          true,
		GlobalOPTIONS: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		}),
		NotFound:         http.HandlerFunc(a.notFound),
		MethodNotAllowed: http.HandlerFunc(a.methodNotAllowed),
	}
	table := a.routes()
	heads := map[string]bool{}
	for _, route := range table {
		heads[route.Path] = heads[route.Path] || route.Method == http.MethodHead
	}
	for _, route := range table {
		methods := []string{route.Method}
		if route.Method == http.MethodGet && !heads[route.Path] {
			// RFC 9110 §9.1: GET and HEAD are there for every resource
			methods = append(methods, http.MethodHead)
		}
		for _, method := range methods {
			if err := mount(router, method, prefix, route); err != nil {
				return nil, fmt.Errorf("mount %s %s: %w", method, route.Path, err)
			}
		}
	}
	return router, nil
}

// mount adds one route to the router, which panics where two routes contradict each other.
func mount(router *httprouter.Router, method, prefix string, route Route) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%v", fault)
		}
	}()
	if route.Handler == nil || route.Name == "" {
		return errors.New("a route needs a name and a handler")
	}
	router.Handle(method, prefix+routerPath(route.Path),
		func(w http.ResponseWriter, r *http.Request, params httprouter.Params) {
			event := EventFrom(r.Context())
			event.route, event.name = route.Path, route.Name
			for _, p := range params {
				r.SetPathValue(p.Key, p.Value)
			}
			route.Handler.ServeHTTP(w, r)
		})
	return nil
}

// routerPath writes "{name}" as the router does, ":name".
func routerPath(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if name, ok := strings.CutPrefix(s, "{"); ok {
			segments[i] = ":" + strings.TrimSuffix(name, "}")
		}
	}
	return strings.Join(segments, "/")
}

func (a *api) notFound(w http.ResponseWriter, r *http.Request) {
	a.nowhere(w, r, &problem{
		code: CodeNotFound, detail: "No route has this path; paths are compared exactly, final slashes included.",
	})
}

func (a *api) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	a.nowhere(w, r, &problem{
		code: CodeMethodNotAllowed, detail: "This path answers to: " + w.Header().Get("Allow") + ".",
	})
}

// nowhere answers a person with a page and a program with the problem.
func (a *api) nowhere(w http.ResponseWriter, r *http.Request, p *problem) {
	w.Header().Add("Vary", "Accept")
	if a.Nowhere == nil || !forPerson(r) {
		writeProblem(w, r, p)
		return
	}
	a.Nowhere(w, r, problems[p.code].status)
}

// forPerson reports whether a browser goes to an address: it asks for a page by name. What programs and
// scripts send by themselves, "*/*" or nothing, asks for none (RFC 9110 §12.5.1).
func forPerson(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	for _, line := range r.Header.Values("Accept") {
		for entry := range strings.SplitSeq(line, ",") {
			media, params, err := mime.ParseMediaType(entry)
			if weight, bad := strconv.ParseFloat(params["q"], 64); err == nil && media == "text/html" &&
				(bad != nil || weight > 0) {
				return true
			}
		}
	}
	return false
}
