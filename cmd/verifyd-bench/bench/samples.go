package bench

import (
	"slices"
	"time"
)

// sample is what one measurement of one row gave.
type sample struct {
	row, variant string
	c            int // clients at once; 0 where there are none
	ops          int64
	took         time.Duration // 0 where no rate is meant
	p50, p99     time.Duration // 0 where no latency is measured
	cpu          time.Duration // of the child; negative where the system does not tell
	peak         int64         // bytes resident of the child; 0 where the system does not tell
	errors       int64
	duplicates   int64
	firstErr     string
	ceiling      *sample            // what it is held against
	extra        map[string]float64 // further figures by name
}

func (s *sample) rate() float64 {
	if s.took <= 0 {
		return 0
	}
	return float64(s.ops) / s.took.Seconds()
}

// note enters a further figure.
func (s *sample) note(name string, v float64) {
	if s.extra == nil {
		s.extra = map[string]float64{}
	}
	s.extra[name] = v
}

// loadSample makes a sample of a load.
func loadSample(row, variant string, c int, l load) sample {
	r := reportOf(l)
	return sample{
		row: row, variant: variant, c: c, ops: r.Ops, took: r.Took, p50: r.P50, p99: r.P99, cpu: -1,
		errors: r.Errors, firstErr: r.Error,
	}
}

// rowKey is what the runs of a row have in common.
type rowKey struct {
	sync, row, variant string
	c                  int
}

// samples are the measurements so far, in the order in which their rows came up first.
type samples struct {
	order []rowKey
	runs  map[rowKey][]sample
}

func (a *samples) add(sync string, s sample) {
	k := rowKey{sync, s.row, s.variant, s.c}
	if a.runs == nil {
		a.runs = map[rowKey][]sample{}
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
	Ceiling   string  `json:"ceiling,omitempty"`          // the row it is held against
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

func (r Result) label() string {
	if r.Variant == "" {
		return r.Row
	}
	return r.Row + " " + r.Variant
}

// results returns the rows that are wanted, all of them where wanted is nil: suite by suite, as the table has
// them.
func (a *samples) results(wanted func(row string) bool) (all []Result) {
	order := slices.Clone(a.order)
	names := rowNames(true)
	syncs := []string{syncAlways, syncInterval, syncExternal}
	slices.SortStableFunc(order, func(x, y rowKey) int {
		if d := slices.Index(syncs, x.sync) - slices.Index(syncs, y.sync); d != 0 {
			return d
		}
		return slices.Index(names, x.row) - slices.Index(names, y.row)
	})
	for _, k := range order {
		if wanted == nil || wanted(k.row) {
			all = append(all, resultOf(k, a.runs[k]))
		}
	}
	return all
}

func resultOf(k rowKey, runs []sample) Result {
	r := Result{Row: k.row, Variant: k.variant, Sync: k.sync, Clients: k.c, Runs: len(runs)}
	of := func(get func(s sample) (float64, bool)) float64 {
		var values []float64
		for _, s := range runs {
			if v, ok := get(s); ok {
				values = append(values, v)
			}
		}
		return medianFloat(values)
	}
	r.Rate = of(func(s sample) (float64, bool) { return s.rate(), s.took > 0 })
	r.P50 = of(func(s sample) (float64, bool) { return milliseconds(s.p50), s.p50 > 0 })
	r.P99 = of(func(s sample) (float64, bool) { return milliseconds(s.p99), s.p99 > 0 })
	r.CPU = of(func(s sample) (float64, bool) {
		return float64(s.cpu) / float64(time.Microsecond) / float64(max(1, s.ops)), s.cpu >= 0 && s.ops > 0
	})
	r.PeakBytes = int64(of(func(s sample) (float64, bool) { return float64(s.peak), s.peak > 0 }))
	// Each run is held against the ceiling that ran beside it, so that a disturbance of both cancels out.
	r.Share = of(func(s sample) (float64, bool) {
		if s.ceiling == nil || s.ceiling.rate() == 0 {
			return 0, false
		}
		return s.rate() / s.ceiling.rate(), true
	})
	for _, s := range runs {
		r.Ops += s.ops
		r.Errors += s.errors
		r.Duplicates += s.duplicates
		if r.FirstError == "" {
			r.FirstError = s.firstErr
		}
		if s.ceiling != nil {
			r.Ceiling = Result{Row: s.ceiling.row, Variant: s.ceiling.variant}.label()
		}
		for name := range s.extra {
			if r.More == nil {
				r.More = map[string]float64{}
			}
			r.More[name] = of(func(s sample) (float64, bool) { v, ok := s.extra[name]; return v, ok })
		}
	}
	return r
}
