package service

import (
	"github.com/prometheus/client_golang/prometheus"
	oteltrace "go.opentelemetry.io/otel/trace"

	"verifyd/cmd/verifyd/trace"
	"verifyd/cmd/verifyd/version"
	"verifyd/edge/web"
)

// observe adds the actors that show others the state of the service.
func (p *Program) observe() error {
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "verifyd_build_info", Help: "1, with the version of this build.",
		ConstLabels: prometheus.Labels{"version": version.Text()},
	}, func() float64 { return 1 })
	p.Registry.MustRegister(build)
	if p.Config.Logger != nil {
		p.Config.Logger.Measure(p.Registry)
		p.add("journal", p.Config.Logger)
	}
	if p.Config.Traces == nil {
		return nil
	}
	c := *p.Config.Traces
	c.Version, c.Roles, c.Log, c.Metrics = version.Text(), rolesOf(p), p.Config.Log, p.Registry
	s, err := trace.New(c)
	if err != nil {
		return err
	}
	p.traces = s
	p.add("spans", s)
	return nil
}

// tracerOf returns the tracer of sessions; nil if they are not traced.
func tracerOf(p *Program) oteltrace.Tracer {
	if p.traces == nil {
		return nil
	}
	return p.traces.Tracer()
}

func rolesOf(p *Program) (roles []string) {
	for _, role := range p.Config.NATSRoles() {
		roles = append(roles, string(role))
	}
	return roles
}

// levelsOf returns the handle that changes the log's level, for the operators' server; nil if it cannot be
// changed.
func levelsOf(p *Program) web.Levels {
	if p.Config.Logger == nil {
		return nil
	}
	return p.Config.Logger
}
