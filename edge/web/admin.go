package web

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"verifyd/edge/problem"
)

// The paths of the operators' routes.
const (
	pathLive    = "/livez"
	pathReady   = "/readyz"
	pathMetrics = "/metrics"
	pathPprof   = "/debug/pprof/"
)

// AdminWriteTimeout is the write timeout that the operators' server needs: a CPU profile takes 30 s by
// default, and people ask for a minute.
const AdminWriteTimeout = 2 * time.Minute

// Check is one thing that the process depends on, and one named condition of readiness.
type Check struct {
	Name string // as in "keys" or "jetstream"
	// Check reports the state in a few words, which may be none, and, if it is not healthy, why. Both are
	// shown to operators. It tells what is known already and waits for nothing: load balancers probe with a
	// time-out of a second, and an answer that waits for the store comes too late just when the store is
	// slow. What must be asked for is asked for by an actor.
	Check func() (state string, err error)
	// Advisory: reported to operators, but requests should be sent here whatever its result, since no other
	// process fares better.
	Advisory bool
}

// readiness is the answer of GET /readyz.
type readiness struct {
	Ready  bool       `json:"ready"`
	Checks []checkDoc `json:"checks"`
}

type checkDoc struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Advisory bool   `json:"advisory,omitzero"`
	State    string `json:"state,omitempty"`
	Reason   string `json:"reason,omitempty"` // what is wrong
}

// NewAdmin returns the operators' handler. It authenticates nobody: it belongs on an address that only
// operators reach, and it answers only requests that name it by an IP address, as localhost, or by one of
// names (package ownname). levels may be nil: then the log's level stays as it is.
func NewAdmin(checks []Check, metrics prometheus.Gatherer, levels Levels, names ...string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathReady, ready(checks))
	// exemplars need OpenMetrics
	mux.Handle("GET "+pathMetrics, promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		EnableOpenMetrics: true,
	}))
	if levels != nil {
		mux.HandleFunc("GET "+pathLogLevel, logLevel(levels))
		mux.HandleFunc("PUT "+pathLogLevel, logLevel(levels))
	}
	// Not cmdline: flags may hold secrets.
	mux.HandleFunc("GET "+pathPprof, pprof.Index)
	mux.HandleFunc("GET "+pathPprof+"profile", pprof.Profile)
	mux.HandleFunc("GET "+pathPprof+"symbol", pprof.Symbol)
	mux.HandleFunc("POST "+pathPprof+"symbol", pprof.Symbol) // as go tool pprof asks
	mux.HandleFunc("GET "+pathPprof+"trace", pprof.Trace)
	outer := http.NewServeMux()
	outer.HandleFunc("GET "+pathLive, live) // a load balancer asks by any name, and learns nothing but this
	outer.Handle("/", OnlyOwnNames(names, http.HandlerFunc(otherName), mux))
	return outer
}

// codeMisdirected is the problem of a request for a name that is not the server's own.
const codeMisdirected problem.Code = "misdirected"

// otherName refuses a request for a name that is not this server's (421, RFC 9110 §15.5.20).
func otherName(w http.ResponseWriter, r *http.Request) {
	const title = "The operators' address does not go by this name"
	WriteJSON(w, http.StatusMisdirectedRequest, "application/problem+json", Document{
		Type: problemType + string(codeMisdirected), Title: title, Status: http.StatusMisdirectedRequest,
		Code: codeMisdirected,
		Detail: fmt.Sprintf("The request asks for the host %.100q. It is answered as an IP address, as "+
			"localhost, and by the names in VERIFYD_ADMIN_NAMES (--admin-names).", r.Host),
	})
}

// GET /livez reports that the process answers at all.
func live(w http.ResponseWriter, _ *http.Request) {
	WriteJSON(w, http.StatusOK, "application/json", struct {
		Live bool `json:"live"`
	}{true})
}

// GET /readyz reports whether requests should be sent here, check by check: 200, or 503 if one of them fails
// that is not advisory.
func ready(checks []Check) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		doc := judge(checks)
		status := http.StatusOK
		if !doc.Ready {
			status = http.StatusServiceUnavailable
		}
		WriteJSON(w, status, "application/json", doc)
	}
}

// Failing is a check that fails.
type Failing struct{ Name, Reason string }

// Judge returns what GET /readyz reports: whether requests should be sent here, and which checks fail,
// advisory ones included.
func Judge(checks []Check) (ready bool, failing []Failing) {
	doc := judge(checks)
	for _, c := range doc.Checks {
		if !c.OK {
			failing = append(failing, Failing{c.Name, c.Reason})
		}
	}
	return doc.Ready, failing
}

func judge(checks []Check) readiness {
	doc := readiness{Ready: true, Checks: make([]checkDoc, len(checks))}
	for i, c := range checks {
		state, err := c.Check()
		doc.Checks[i] = checkDoc{Name: c.Name, OK: err == nil, Advisory: c.Advisory, State: state}
		if err != nil {
			doc.Checks[i].Reason = err.Error()
			doc.Ready = doc.Ready && c.Advisory
		}
	}
	return doc
}
