package report

import (
	"slices"
	"time"
)

// Sample is the result of one measurement of one row.
type Sample struct {
	Row, Variant string
	Clients      int // at once; 0 if there are none
	Ops          int64
	Took         time.Duration // 0 if no rate is meant
	P50, P99     time.Duration // 0 if no latency is measured
	CPU          time.Duration // of the child; negative if the system does not report it
	Peak         int64         // bytes resident of the child; 0 if the system does not report it
	Errors       int64
	Duplicates   int64
	FirstErr     string
	Ceiling      *Sample // what it is compared with

	more map[string]float64 // further figures by name
}

// Rate returns the operations per second.
func (s *Sample) Rate() float64 {
	if s.Took <= 0 {
		return 0
	}
	return float64(s.Ops) / s.Took.Seconds()
}

// Note adds a figure.
func (s *Sample) Note(name string, v float64) {
	if s.more == nil {
		s.more = map[string]float64{}
	}
	s.more[name] = v
}

// Label names the row.
func (s *Sample) Label() string { return label(s.Row, s.Variant) }

// rowKey identifies the runs of a row.
type rowKey struct {
	sync, row, variant string
	c                  int
}

// Samples are the measurements so far, in the order in which their rows first appeared.
type Samples struct {
	order []rowKey
	runs  map[rowKey][]Sample
}

// Add adds a measurement in a sync mode.
func (a *Samples) Add(sync string, s Sample) {
	k := rowKey{sync, s.Row, s.Variant, s.Clients}
	if a.runs == nil {
		a.runs = map[rowKey][]Sample{}
	}
	if _, known := a.runs[k]; !known {
		a.order = append(a.order, k)
	}
	a.runs[k] = append(a.runs[k], s)
}

// Result is one row of the table: the medians of its runs. The names of its members do not change.
type Result struct {
	Row       string  `json:"row"`
	Variant   string  `json:"variant,omitempty"`
	Sync      string  `json:"sync"`              // always, interval or external
	Clients   int     `json:"clients,omitempty"` // at once
	Runs      int     `json:"runs"`
	Rate      float64 `json:"ops_per_second,omitempty"`
	Ceiling   string  `json:"ceiling,omitempty"`          // the row it is compared with
	Share     float64 `json:"share_of_ceiling,omitempty"` // 1: as fast
	P50       float64 `json:"p50_ms,omitempty"`
	P99       float64 `json:"p99_ms,omitempty"`
	CPU       float64 `json:"cpu_us_per_op,omitempty"` // of the child alone
	PeakBytes int64   `json:"peak_bytes,omitempty"`    // resident, of the child alone
	Ops       int64   `json:"ops"`                     // of all runs
	Errors    int64   `json:"errors"`                  // of all runs
	// callbacks that arrived again, of all runs
	Duplicates int64              `json:"duplicates"`
	FirstError string             `json:"first_error,omitempty"`
	More       map[string]float64 `json:"more,omitempty"` // further figures; each name ends in its unit
}

// Label names the row.
func (r Result) Label() string { return label(r.Row, r.Variant) }

func label(row, variant string) string {
	if variant == "" {
		return row
	}
	return row + " " + variant
}

// Results returns the results of the rows, in the given order, for each sync mode.
func (a *Samples) Results(rows []string) (all []Result) {
	var syncs []string // as they were measured
	for _, k := range a.order {
		if !slices.Contains(syncs, k.sync) {
			syncs = append(syncs, k.sync)
		}
	}
	for _, sync := range syncs {
		for _, row := range rows {
			for _, k := range a.order {
				if k.sync == sync && k.row == row {
					all = append(all, resultOf(k, a.runs[k]))
				}
			}
		}
	}
	return all
}

func resultOf(k rowKey, runs []Sample) Result {
	r := Result{Row: k.row, Variant: k.variant, Sync: k.sync, Clients: k.c, Runs: len(runs)}
	of := func(get func(s Sample) (float64, bool)) float64 {
		var values []float64
		for _, s := range runs {
			if v, ok := get(s); ok {
				values = append(values, v)
			}
		}
		return medianFloat(values)
	}
	r.Rate = of(func(s Sample) (float64, bool) { return s.Rate(), s.Took > 0 })
	r.P50 = of(func(s Sample) (float64, bool) { return Milliseconds(s.P50), s.P50 > 0 })
	r.P99 = of(func(s Sample) (float64, bool) { return Milliseconds(s.P99), s.P99 > 0 })
	r.CPU = of(func(s Sample) (float64, bool) {
		return float64(s.CPU) / float64(time.Microsecond) / float64(max(1, s.Ops)), s.CPU >= 0 && s.Ops > 0
	})
	r.PeakBytes = int64(of(func(s Sample) (float64, bool) { return float64(s.Peak), s.Peak > 0 }))
	// Each run is compared with the ceiling that ran alongside it, so that a disturbance of both cancels out.
	r.Share = of(func(s Sample) (float64, bool) {
		if s.Ceiling == nil || s.Ceiling.Rate() == 0 {
			return 0, false
		}
		return s.Rate() / s.Ceiling.Rate(), true
	})
	for _, s := range runs {
		r.Ops += s.Ops
		r.Errors += s.Errors
		r.Duplicates += s.Duplicates
		if r.FirstError == "" {
			r.FirstError = s.FirstErr
		}
		if s.Ceiling != nil {
			r.Ceiling = s.Ceiling.Label()
		}
		for name := range s.more {
			if r.More == nil {
				r.More = map[string]float64{}
			}
			r.More[name] = of(func(s Sample) (float64, bool) { v, ok := s.more[name]; return v, ok })
		}
	}
	return r
}
