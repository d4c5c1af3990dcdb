package main

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
	"verifyd/natsconf/natstest"
)

// gathered returns a program's metrics in Prometheus's form.
func gathered(t *testing.T, r *rig) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r.Registry, promhttp.HandlerOpts{}).
		ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// documented is a row of the table in OPERATING.md.
type documented struct {
	labels []string
	kind   string   // counter, gauge or histogram
	unit   string   // s, B or empty
	words  []string // the text in backquotes next to it: values of labels, among others
}

// documentedMetrics reads the table.
func documentedMetrics(t *testing.T) map[string]documented {
	t.Helper()
	row := regexp.MustCompile(
		"(?m)^\\| `(verifyd_[a-z_]+)(?:\\{([a-z_,]+)\\})?` \\| " +
			"([a-z]+)(?:, (s|B))?(?:, whole service)? \\| (.*) \\|$")
	rows := map[string]documented{}
	for _, m := range row.FindAllStringSubmatch(
		string(must[[]byte](t)(os.ReadFile("../../docs/OPERATING.md"))), -1) {
		d := documented{kind: m[3], unit: m[4]}
		if m[2] != "" {
			d.labels = strings.Split(m[2], ",")
		}
		for _, word := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(m[5], -1) {
			d.words = append(d.words, word[1])
		}
		rows[m[1]] = d
	}
	return rows
}

// described returns the labels of every metric of the service that a registry may ever show.
func described(registry *prometheus.Registry) map[string][]string {
	descs := make(chan *prometheus.Desc)
	go func() { registry.Describe(descs); close(descs) }()
	shape := regexp.MustCompile(
		`fqName: "(verifyd_[a-z_]+)".*constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)
	all := map[string][]string{}
	for d := range descs {
		if m := shape.FindStringSubmatch(d.String()); m != nil {
			labels := strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' })
			for pair := range strings.SplitSeq(m[2], ",") {
				if name, _, ok := strings.Cut(pair, "="); ok {
					labels = append(labels, name)
				}
			}
			all[m[1]] = labels
		}
	}
	return all
}

// The metrics of the service and of OPERATING.md are the same: names, labels, types and units. Names follow
// Prometheus's conventions.
func TestMetricsAreAsDocumented(t *testing.T) {
	t.Parallel()
	seen := collect(t)
	r := boot(t, seen.to(t), func(c *config.Config) {
		if !natstest.OnCluster() { // external servers keep copies of their own
			c.CopyTo = t.TempDir()
		}
	})
	table, shown := documentedMetrics(t), described(r.Registry)
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		row, ok := table[name]
		if !ok {
			t.Errorf("%s is not in OPERATING.md", name)
			continue
		}
		if !slices.Equal(slices.Sorted(slices.Values(shown[name])),
			slices.Sorted(slices.Values(row.labels))) {
			t.Errorf("%s has the labels %v, OPERATING.md says %v", name, shown[name], row.labels)
		}
		if (row.unit == "s") != strings.HasSuffix(name, "_seconds") ||
			(row.unit == "B") != strings.HasSuffix(name, "_bytes") {
			t.Errorf("%s is said to be in %q", name, row.unit)
		}
	}
	for name := range table {
		ofADisk := name == "verifyd_store_free_bytes" || strings.HasPrefix(name, "verifyd_copy_")
		if strings.HasPrefix(name, "verifyd_log_") || ofADisk && natstest.OnCluster() {
			continue // a program of a test has no logger, and one on a cluster no filesystem under its store
		}
		if _, ok := shown[name]; !ok {
			t.Errorf("OPERATING.md tells of %s, which nobody shows", name)
		}
	}
	families, err := r.Registry.Gather()
	if err != nil {
		t.Error(err)
	}
	for _, family := range families {
		if row, ok := table[family.GetName()]; ok && !strings.EqualFold(family.GetType().String(), row.kind) {
			t.Errorf("%s is a %s, OPERATING.md says %s", family.GetName(), family.GetType(), row.kind)
		}
	}
	checkValues(t, r, table)
	problems, err := promlint.New(strings.NewReader(gathered(t, r))).Lint()
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "verifyd_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// checkValues does what hostile clients do, and checks the values of labels: each is in OPERATING.md, or is
// the service's own.
func checkValues(t *testing.T, r *rig, table map[string]documented) {
	t.Helper()
	s := r.begin(t)
	b := demo.NewBrowser()
	must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in"))
	<-r.inbox.got
	r.api().until(t, s.Session, "delivered")
	must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, demo.NewBrowser(), r.begin(t).VerifyURL),
		"token-error"))
	for _, path := range []string{
		"/nowhere", "/a/b", "/sessions/x", "/?session=x", "/signin/nobody/callback?state=x",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, "BREW"} {
			r.api().call(t, method, path, "")
		}
	}
	for _, body := range []string{"", "{", `{"platform":1}`} {
		r.api().call(t, http.MethodPost, "/verify/init", body)
		api{base: r.Base, key: "vfy_nobody"}.call(t, http.MethodPost, "/verify/init", body)
	}
	written := []string{"step", "where", "kind", "op"} // labels whose values are all in OPERATING.md
	word := regexp.MustCompile(`^[A-Za-z0-9_.-]{0,40}$`)
	families, err := r.Registry.Gather()
	if err != nil {
		t.Error(err)
	}
	series := 0
	for _, family := range families {
		row, ours := table[family.GetName()]
		for _, m := range family.GetMetric() {
			series++
			for _, label := range m.GetLabel() {
				value := label.GetValue()
				if !ours || label.GetName() == "version" {
					continue
				}
				if slices.Contains(written, label.GetName()) && !slices.Contains(row.words, value) {
					t.Errorf("%s has %s=%q, which OPERATING.md does not tell", family.GetName(),
						label.GetName(), value)
				}
				if !word.MatchString(value) || label.GetName() == "network" && value != "none" &&
					value != "dev" || strings.Contains(value, "nobody") {
					t.Errorf("%s has %s=%q", family.GetName(), label.GetName(), value)
				}
			}
		}
	}
	if series > 500 {
		t.Errorf("%d series after a few requests", series)
	}
}
