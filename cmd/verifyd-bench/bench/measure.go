package bench

import (
	"context"
	"fmt"
	"strings"

	"verifyd/cmd/verifyd-bench/bench/load"
	"verifyd/cmd/verifyd-bench/bench/proc"
	"verifyd/cmd/verifyd-bench/bench/report"
)

// measurable is a child whose resource usage is measured.
type measurable interface{ Measure() proc.Usage }

// closedInits measures init requests in a closed loop against a child, after a warm-up.
func (o Options) closedInits(ctx context.Context, p measurable, row string, clients int, address string,
	request []byte) report.Sample {
	l := load.NewInits(clients, address, request)
	defer l.Close()
	load.Closed(ctx, o.warmUp(), l.Steps)
	u := p.Measure()
	s := loadSample(row, "", clients, load.Closed(ctx, o.Duration, l.Steps))
	enter(&s, u)
	return s
}

// loadSample returns the sample of a load.
func loadSample(row, variant string, clients int, l load.Result) report.Sample {
	s := report.Sample{
		Row: row, Variant: variant, Clients: clients, Ops: l.Ops(), Took: l.Took,
		P50: load.Percentile(l.Latencies, 0.50), P99: load.Percentile(l.Latencies, 0.99), CPU: -1,
		Errors: l.Errors,
	}
	if l.FirstErr != nil {
		s.FirstErr = l.FirstErr.Error()
	}
	return s
}

// enter records what a child used, and keeps its profile. A failed profile is an error of the row.
func enter(s *report.Sample, u proc.Usage) {
	s.CPU, s.Peak = u.Used()
	if u.Profile == nil {
		return
	}
	name := strings.NewReplacer(" ", "-", "/", "-").Replace(s.Label())
	if err := u.Profile.Keep(fmt.Sprintf("%s-c%d", name, s.Clients)); err != nil {
		s.Errors++
		s.FirstErr = fmt.Sprintf("take the profile: %v", err)
	}
}
