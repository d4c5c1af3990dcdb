package api

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"verifyd/edge/web"
)

// starts counts the answers of POST /verify/init.
type starts struct{ answers *prometheus.CounterVec }

func newStarts(reg prometheus.Registerer) (starts, error) {
	s := starts{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "verifyd_init_total",
		Help: "Answers of POST /verify/init: created, replayed, the code of the problem, or none.",
	}, []string{"outcome"})}
	if err := reg.Register(s.answers); err != nil {
		return starts{}, fmt.Errorf("register metrics: %w", err)
	}
	return s, nil
}

func (s starts) count(event *web.RequestEvent, status int) {
	if event.Route != pathInit {
		return
	}
	outcome := string(event.Code)
	switch {
	case outcome != "":
	case event.Replayed:
		outcome = "replayed"
	case status == http.StatusOK:
		outcome = "created"
	default:
		outcome = "none"
	}
	s.answers.WithLabelValues(outcome).Inc()
}
