// Package web is what all HTTP answers of the edge share: the router, the frame around each request (id, log
// line, metrics, trace, bounded body, recovery), problem documents, and the public and the operators' server.
package web

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/julienschmidt/httprouter"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"verifyd/edge/problem"
)

// Route is one row of the route table, for the routes that others mount.
type Route struct {
	Method string // an HTTP method; HEAD comes with GET unless it has a row of its own
	// Path starts with a slash, below the base URL. "{name}" as a whole segment matches any one segment; the
	// handler reads it with (*http.Request).PathValue. Logs and metrics show this pattern, never the path
	// itself.
	Path    string
	Name    string // shown as the route in metrics: a few words with underscores, as in "sign_in_return"
	Handler http.Handler
	// MaxBody bounds a request's body in bytes, if MaxBodyBytes is too small for uploads.
	MaxBody int64
}

// Page answers a browser with a page of the given status.
type Page func(w http.ResponseWriter, r *http.Request, status int)

// Config is what every request goes through, and where it is routed.
type Config struct {
	// goes before every route's path: empty, or with a slash in front and none at its end
	Prefix string
	Routes []Route // the table
	// for a browser at an unknown address; nil: a problem document, as for programs
	Nowhere        Page
	HTTPS          bool           // the base URL is https
	TrustedProxies []netip.Prefix // whose X-Forwarded-For counts
	Metrics        prometheus.Registerer
	Tracer         trace.Tracer // nil: nothing is traced
	Log            zerolog.Logger
	// Answered, if set, is called with each request's event and the status of its answer, 0 if there is none.
	Answered func(event *RequestEvent, status int)
}

// handler answers every request.
type handler struct {
	Config

	metrics *metrics
}

// New returns a handler of a route table: each route under request log, metrics, size limit and recovery. It
// starts nothing.
func New(c Config) (http.Handler, error) {
	m, err := newMetrics(c.Metrics)
	if err != nil {
		return nil, err
	}
	h := &handler{Config: c, metrics: m}
	router, err := h.router()
	if err != nil {
		return nil, err
	}
	return h.frame(router), nil
}

// router returns the router of a route table.
func (h *handler) router() (*httprouter.Router, error) {
	// Both redirect options are off: a redirect to a path that resembles the requested one would send a
	// POST's body, or a session token, elsewhere. OPTIONS is answered because the router's Allow names it; it
	// grants no other origin any right.
	router := &httprouter.Router{
		HandleMethodNotAllowed: true,
		HandleOPTIONS:          true,
		GlobalOPTIONS: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		}),
		NotFound:         http.HandlerFunc(h.notFound),
		MethodNotAllowed: http.HandlerFunc(h.methodNotAllowed),
	}
	heads := map[string]bool{}
	for _, route := range h.Routes {
		heads[route.Path] = heads[route.Path] || route.Method == http.MethodHead
	}
	for _, route := range h.Routes {
		methods := []string{route.Method}
		if route.Method == http.MethodGet && !heads[route.Path] {
			// RFC 9110 §9.1: GET and HEAD are there for every resource
			methods = append(methods, http.MethodHead)
		}
		for _, method := range methods {
			if err := mount(router, method, h.Prefix, route); err != nil {
				return nil, fmt.Errorf("mount %s %s: %w", method, route.Path, err)
			}
		}
	}
	return router, nil
}

// mount adds one route to the router, which panics if two routes contradict each other.
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
			event.Route, event.Name = route.Path, route.Name
			for _, p := range params {
				r.SetPathValue(p.Key, p.Value)
			}
			if route.MaxBody > 0 && event.body != nil {
				r.Body = http.MaxBytesReader(w, event.body, route.MaxBody)
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

func (h *handler) notFound(w http.ResponseWriter, r *http.Request) {
	h.nowhere(w, r, &problem.Problem{
		Code:   problem.CodeNotFound,
		Detail: "No route has this path; paths are compared exactly, final slashes included.",
	})
}

func (h *handler) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	h.nowhere(w, r, &problem.Problem{
		Code: problem.CodeMethodNotAllowed, Detail: "This path answers to: " + w.Header().Get("Allow") + ".",
	})
}

// nowhere answers a person with a page and a program with the problem.
func (h *handler) nowhere(w http.ResponseWriter, r *http.Request, p *problem.Problem) {
	w.Header().Add("Vary", "Accept")
	if h.Nowhere == nil || !forPerson(r) {
		WriteProblem(w, r, p)
		return
	}
	h.Nowhere(w, r, p.Code.Status())
}

// forPerson reports whether a browser goes to an address: it asks for a page by media type. The default
// Accept of programs and scripts, "*/*" or nothing, does not (RFC 9110 §12.5.1).
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
