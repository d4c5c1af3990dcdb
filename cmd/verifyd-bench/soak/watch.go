package soak

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"verifyd/cmd/verifyd-bench/bench/proc"
)

// sampleEvery is the interval between two samples.
const sampleEvery = 5 * time.Second

// series is one figure over the run.
type series struct {
	Name, Unit string
	Of         string // the process, or what else is measured
	At         []time.Duration
	Values     []float64
	// Slack is how much growth is allowed, in addition to a tenth.
	Slack float64
	// PerKept is for a figure that is proportional to the number of kept sessions.
	PerKept bool
}

// watch samples the spared processes and the stores.
type watch struct {
	s     *site
	crowd *crowd
	began time.Time
	all   []*series
	kept  *series
	count []int // sessions started, at each sample
}

func newWatch(s *site, c *crowd, began time.Time) *watch {
	return &watch{s: s, crowd: c, began: began, kept: &series{Name: "kept sessions", Of: "store"}}
}

func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.sample()
		}
	}
}

func (w *watch) sample() {
	at := time.Since(w.began)
	w.count = append(w.count, w.crowd.tally.started())
	before := 0
	if i := len(w.count) - 1 - int(keep/sampleEvery); i >= 0 {
		before = w.count[i]
	}
	w.kept.add(at, float64(w.count[len(w.count)-1]-before))
	w.process(at, w.s.nodes[0].name, w.s.nodes[0].process, "")
	for _, v := range []*service{w.s.edges[0], w.s.senders[0]} {
		w.process(at, v.name, v.process, v.admin)
	}
	for _, n := range w.s.nodes {
		if size, err := sizeOf(n.dir); err == nil {
			w.of(series{Name: "disk", Unit: "MiB", Of: n.name, Slack: 64, PerKept: true}).
				add(at, float64(size)/(1<<20))
		}
	}
}

func (w *watch) process(at time.Duration, name string, p *proc.Process, admin string) {
	w.of(series{Name: "memory", Unit: "MiB", Of: name, Slack: 24}).add(at, float64(p.Resident())/(1<<20))
	if n, err := p.Descriptors(); err == nil {
		w.of(series{Name: "descriptors", Of: name, Slack: 50}).add(at, float64(n))
	}
	if n, err := goroutines(admin); err == nil {
		w.of(series{Name: "goroutines", Of: name, Slack: 100}).add(at, float64(n))
	}
}

// of returns the series with a name and an owner, and creates it if there is none.
func (w *watch) of(want series) *series {
	for _, s := range w.all {
		if s.Name == want.Name && s.Of == want.Of {
			return s
		}
	}
	w.all = append(w.all, &want)
	return &want
}

func (s *series) add(at time.Duration, v float64) {
	s.At, s.Values = append(s.At, at), append(s.Values, v)
}

// halves returns the medians of the third and of the last quarter of the run: by then the kept data and the
// current load have reached their level.
func (s *series) halves() (before, after float64) {
	n := len(s.Values)
	return median(s.Values[n/2 : n*3/4]), median(s.Values[n*3/4:])
}

func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// grown returns an error if the figure has grown by more than a tenth and its slack. A figure that is
// proportional to the number of kept sessions may grow as that does.
func (s *series) grown(kept *series) error {
	if len(s.Values) < 4 {
		return nil
	}
	before, after := s.halves()
	bound := before
	if s.PerKept {
		if k0, k1 := kept.halves(); k0 > 0 && k1 > k0 {
			bound *= k1 / k0
		}
	}
	if bound = 1.1*bound + s.Slack; after > bound {
		return fmt.Errorf("%w: %s of %s, from %.0f to %.0f %s; at most %.0f were explained", ErrGrown,
			s.Name, s.Of, before, after, s.Unit, bound)
	}
	return nil
}

func (w *watch) err() error {
	var all []error
	for _, s := range w.all {
		all = append(all, s.grown(w.kept))
	}
	return errors.Join(all...)
}

// table shows the third and the last quarter of every figure.
func (w *watch) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-14s %-12s %10s %10s   medians of the third and of the last quarter\n", "figure", "of",
		"before", "after")
	for _, s := range append([]*series{w.kept}, w.all...) {
		before, after := s.halves()
		fmt.Fprintf(&b, "%-14s %-12s %10.0f %10.0f %s\n", s.Name, s.Of, before, after, s.Unit)
	}
	return b.String()
}

// goroutines asks a verifyd how many it has.
func goroutines(admin string) (n int, err error) {
	if admin == "" {
		return 0, errors.ErrUnsupported
	}
	response, err := http.Get("http://" + admin + "/debug/pprof/goroutine?debug=1")
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	if err == nil {
		_, err = fmt.Sscanf(line, "goroutine profile: total %d", &n)
	}
	return n, err
}

// sizeOf returns how many bytes the files of a folder have, except for the balloon that fills it.
func sizeOf(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "balloon" {
			return nil //nolint:nilerr // a file that was removed meanwhile
		}
		if info, err := d.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	return size, err
}
