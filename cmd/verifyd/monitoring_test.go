package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.yaml.in/yaml/v3"

	"verifyd/cmd/verifyd/config"
	"verifyd/natsconf/natstest"
)

// metricName recognises our metrics, and Go's and the process's, in an expression.
var metricName = regexp.MustCompile(`\b(verifyd|go|process)_[a-z0-9_]+`)

// names lists the metrics that a program has, whether they have counted anything yet or not.
func (r *rig) names(t *testing.T) []string {
	t.Helper()
	descriptions := make(chan *prometheus.Desc)
	go func() { defer close(descriptions); r.Registry.Describe(descriptions) }()
	var names []string
	for d := range descriptions {
		names = append(names, regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1])
	}
	if len(names) < 20 {
		t.Fatalf("a program has %d metrics; are they read?", len(names))
	}
	return names
}

// A panel or an alert for a metric that no longer exists would be silent forever.
func TestDashboardAndAlertsNameMetricsThatExist(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "the metrics of the copy")
	r := boot(t, func(c *config.Config) { c.CopyTo = filepath.Join(t.TempDir(), "copy") })
	known := r.names(t)
	all := slices.Concat(alertExpressions(t), dashboardExpressions(t), r.adapterExpressions(t))
	for _, expr := range all {
		for _, name := range metricName.FindAllString(expr, -1) {
			plain := name
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				if p := strings.TrimSuffix(name, part); slices.Contains(known, p) {
					plain = p
				}
			}
			if !slices.Contains(known, plain) {
				t.Errorf("there is no metric %s, in %s", name, expr)
			}
		}
	}
}

// adapterExpressions also checks that the series for the autoscaler is one that the program has.
func (r *rig) adapterExpressions(t *testing.T) (expressions []string) {
	t.Helper()
	var doc struct {
		ExternalRules []struct {
			SeriesQuery  string `yaml:"seriesQuery"`
			MetricsQuery string `yaml:"metricsQuery"`
		} `yaml:"externalRules"`
	}
	readConfig(t, &doc, "docs", "kubernetes", "prometheus-adapter.yaml")
	for _, rule := range doc.ExternalRules {
		natstest.Await(t, rule.SeriesQuery+" is a series", func() bool {
			w := httptest.NewRecorder()
			promhttp.HandlerFor(r.Registry, promhttp.HandlerOpts{}).
				ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			return strings.Contains(w.Body.String(), "\n"+rule.SeriesQuery+" ")
		})
		expressions = append(expressions, rule.SeriesQuery, rule.MetricsQuery)
	}
	if len(expressions) == 0 {
		t.Error("the adapter has no rule")
	}
	return expressions
}

func dashboardExpressions(t *testing.T) (expressions []string) {
	t.Helper()
	for _, p := range dashboardPanels(t) {
		for _, target := range p.Targets {
			expressions = append(expressions, target.Expr)
		}
	}
	return expressions
}

// grafanaSource is how a dashboard names a data source.
type grafanaSource struct{ Type, UID string }

// panel is a panel of Grafana's dashboard.
type panel struct {
	ID          int
	Type, Title string
	Datasource  grafanaSource
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct {
		Expr       string
		Datasource grafanaSource
	}
}

// dashboardPanels also checks that Grafana can draw them: each with a data source that is chosen in the
// dashboard, none over another.
func dashboardPanels(t *testing.T) []panel {
	t.Helper()
	var doc struct {
		UID, Title string
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
		Panels []panel
	}
	if err := json.Unmarshal(
		must[[]byte](t)(os.ReadFile(filepath.Join(repository, "docs", "monitoring", "dashboard.json"))),
		&doc); err != nil {
		t.Fatal(err)
	}
	list := doc.Templating.List
	if doc.UID == "" || doc.Title == "" || len(list) != 1 || list[0].Type != "datasource" ||
		list[0].Query != "prometheus" {
		t.Fatalf("dashboard %q %q, variables %+v", doc.UID, doc.Title, list)
	}
	want, ids, taken := grafanaSource{"prometheus", "${" + list[0].Name + "}"}, map[int]string{},
		map[[2]int]string{}
	for _, p := range doc.Panels {
		if ids[p.ID] != "" || p.Title == "" {
			t.Errorf("panels %q and %q have the number %d", ids[p.ID], p.Title, p.ID)
		}
		ids[p.ID] = p.Title
		if p.Type != "row" && (p.Datasource != want || len(p.Targets) == 0) {
			t.Errorf("%s: data source %+v, %d expressions", p.Title, p.Datasource, len(p.Targets))
		}
		for _, target := range p.Targets {
			if target.Datasource != want {
				t.Errorf("%s: data source %+v", p.Title, target.Datasource)
			}
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies on %q, or outside, at %d, %d", p.Title, other, x, y)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	return doc.Panels
}

// readConfig reads a YAML file of the repository.
func readConfig(t *testing.T, into any, path ...string) {
	t.Helper()
	if err := yaml.Unmarshal(
		must[[]byte](t)(os.ReadFile(filepath.Join(append([]string{repository}, path...)...))),
		into); err != nil {
		t.Fatalf("%s: %v", path[len(path)-1], err)
	}
}

// Prometheus reads each NATS server of the stack, through an exporter that asks this server.
func TestNATSServersAreTargets(t *testing.T) {
	t.Parallel()
	var compose struct {
		Services map[string]struct {
			Command  any
			Profiles []string
		}
	}
	readConfig(t, &compose, "docker-compose.yml")
	var config struct {
		Jobs []struct {
			Name    string                       `yaml:"job_name"`
			Targets []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	readConfig(t, &config, "docs", "monitoring", "prometheus.yml")
	var targets, want []string
	for _, job := range config.Jobs {
		if job.Name == "nats" && len(job.Targets) == 1 {
			targets = job.Targets[0].Targets
		}
	}
	for name := range compose.Services {
		if !regexp.MustCompile(`^nats-\d$`).MatchString(name) {
			continue
		}
		exporter := compose.Services[name+"-exporter"]
		words, _ := exporter.Command.([]any)
		if !slices.Contains(words, any("-healthz")) || !slices.Contains(words, any("http://"+name+":8222")) ||
			!slices.Equal(exporter.Profiles, compose.Services["prometheus"].Profiles) {
			t.Errorf("%s has the exporter %+v", name, exporter)
		}
		want = append(want, name+"-exporter:7777")
	}
	if slices.Sort(want); len(want) != natstest.Replicas || !slices.Equal(targets, want) {
		t.Errorf("targets %q, want %q", targets, want)
	}
}

// No container of the stack dumps its memory, which holds secrets.
func TestComposeDumpsNothing(t *testing.T) {
	t.Parallel()
	var compose struct {
		Services map[string]struct {
			Ulimits struct{ Core *int }
		}
	}
	readConfig(t, &compose, "docker-compose.yml")
	for name, service := range compose.Services {
		if core := service.Ulimits.Core; core == nil || *core != 0 {
			t.Errorf("%s may write a core dump", name)
		}
	}
}

// Images that are built without a registry have the versions that others pull.
func TestLocalImagesAreOfTheSameVersions(t *testing.T) {
	t.Parallel()
	var compose struct {
		Services struct {
			Proxy, Prometheus struct{ Image string }
		}
	}
	readConfig(t, &compose, "docker-compose.yml")
	script := string(must[[]byte](t)(
		os.ReadFile(filepath.Join(repository, "docs", "compose", "local-images"))))
	pinned := func(name string) string {
		m := regexp.MustCompile("(?m)^" + name + "=v([0-9.]+)$").FindStringSubmatch(script)
		if m == nil {
			t.Fatalf("local-images has no version of %s", name)
		}
		return m[1]
	}
	if want := "caddy:" + pinned("caddy") + "-alpine"; compose.Services.Proxy.Image != want {
		t.Errorf("docker-compose.yml has %s, local-images builds %s", compose.Services.Proxy.Image, want)
	}
	if want := "prom/prometheus:v" + pinned("prometheus"); compose.Services.Prometheus.Image != want {
		t.Errorf("docker-compose.yml has %s, local-images builds %s", compose.Services.Prometheus.Image, want)
	}
}

// docker-compose.yml mounts Grafana's files where Grafana, and the files themselves, expect them: the data
// source is the stack's Prometheus, the provider reads the folder of the dashboard.
func TestGrafanaFindsItsDashboard(t *testing.T) {
	t.Parallel()
	var compose struct {
		Services struct {
			Grafana struct{ Volumes []string }
		}
	}
	readConfig(t, &compose, "docker-compose.yml")
	mounted := map[string]string{} // a folder of the container, by the file of the repository
	for _, v := range compose.Services.Grafana.Volumes {
		if parts := strings.Split(v, ":"); strings.HasPrefix(v, "./") {
			mounted[filepath.Base(parts[0])] = filepath.Dir(parts[1])
		}
	}
	var sources struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, Type, URL string
			IsDefault       bool `yaml:"isDefault"`
		}
	}
	readConfig(t, &sources, "docs", "monitoring", "grafana-datasource.yml")
	if s := sources.Datasources; sources.APIVersion != 1 || len(s) != 1 || s[0].Type != "prometheus" ||
		s[0].URL != "http://prometheus:9090" || !s[0].IsDefault {
		t.Errorf("data sources: %+v", sources)
	}
	var providers struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name, Type string
			Options    struct{ Path string }
		}
	}
	readConfig(t, &providers, "docs", "monitoring", "grafana-dashboards.yml")
	if p := providers.Providers; providers.APIVersion != 1 || len(p) != 1 || p[0].Type != "file" ||
		p[0].Options.Path != mounted["dashboard.json"] {
		t.Errorf("providers: %+v; the dashboard is in %s", providers, mounted["dashboard.json"])
	}
	for file, folder := range map[string]string{
		"grafana-datasource.yml": "datasources", "grafana-dashboards.yml": "dashboards",
	} {
		if want := "/etc/grafana/provisioning/" + folder; mounted[file] != want {
			t.Errorf("%s is in %s, Grafana reads %s", file, mounted[file], want)
		}
	}
}
