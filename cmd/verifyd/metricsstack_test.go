package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"verifyd/natsconf/natstest"
)

const (
	// scrapedEvery is how often the tests' Prometheus reads metrics and evaluates rules; a rule's own "for"
	// stays as it is. A read may take as long as the interval.
	scrapedEvery = "2s"
	// rateInterval is what Grafana would substitute for $__rate_interval: four scrapes.
	rateInterval = "8s"
)

// quietPanels show what a healthy service has none of.
var quietPanels = []string{"Sign-ins without a verdict", "Not sent, by class", "JetStream errors"}

// hurryPrometheus makes the stack's Prometheus use its own configuration, but scrape more often.
func (s *stack) hurryPrometheus(t *testing.T) {
	t.Helper()
	const inUse = "15s"
	config := must[[]byte](t)(os.ReadFile(filepath.Join(repository, "docs", "monitoring", "prometheus.yml")))
	if bytes.Count(config, []byte(inUse)) != 2 {
		t.Fatalf("prometheus.yml does not scrape and evaluate every %s", inUse)
	}
	config, _, ok := bytes.Cut(config, []byte("  - job_name: nats\n"))
	if !ok { // without a registry they have no exporters
		t.Fatal("prometheus.yml does not name the NATS servers last")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	// another user reads it
	if err := os.WriteFile(file, bytes.ReplaceAll(config, []byte(inUse), []byte(scrapedEvery)),
		0o644); err != nil {
		t.Fatal(err)
	}
	override := must[[]byte](t)(json.Marshal(map[string]any{"services": map[string]any{
		"prometheus": map[string]any{"volumes": []string{file + ":/etc/prometheus/prometheus.yml:ro"}},
	}}))
	path := filepath.Join(dir, "prometheus-override.yml")
	if err := os.WriteFile(path, override, 0o600); err != nil {
		t.Fatal(err)
	}
	s.files = append(s.files, path)
}

// prometheusAPI is that of the stack's Prometheus, as this machine reaches it.
type prometheusAPI struct{ base string }

func (s *stack) prometheus(t *testing.T) prometheusAPI {
	t.Helper()
	network := s.project + "_store"
	ip := s.docker(t, "inspect", "-f",
		"{{with index .NetworkSettings.Networks \""+network+"\"}}{{.IPAddress}}{{end}}",
		s.container(t, "prometheus"))
	return prometheusAPI{"http://" + ip + ":9090"}
}

// ask reads from the HTTP API (https://prometheus.io/docs/prometheus/latest/querying/api/).
func (p prometheusAPI) ask(ctx context.Context, path string, into any) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+"/api/v1/"+path, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	r, err := client.Do(q)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		return fmt.Errorf("%s: %d %s", path, r.StatusCode, body)
	}
	return json.Unmarshal(answer.Data, into)
}

// until queries until the answer is as expected; is returns what is wrong with it.
func (p prometheusAPI) until(t *testing.T, is func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var last error // not that a request was cut off by the end of the wait
	for {
		err := is(ctx)
		if err == nil {
			return
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Error(last)
			return
		}
	}
}

// judgeTargets checks that each edge and dispatcher of the stack is scraped, with its role.
func (p prometheusAPI) judgeTargets(t *testing.T) {
	t.Helper()
	want := []string{
		"dispatcher-1:9090 dispatcher up", "dispatcher-2:9090 dispatcher up", "edge-1:9090 edge up",
		"edge-2:9090 edge up",
	}
	p.until(t, func(ctx context.Context) error {
		var targets struct {
			ActiveTargets []struct {
				Labels            struct{ Instance, Role string }
				Health, LastError string
			}
		}
		if err := p.ask(ctx, "targets", &targets); err != nil {
			return err
		}
		var got, faults []string
		for _, a := range targets.ActiveTargets {
			got = append(got, a.Labels.Instance+" "+a.Labels.Role+" "+a.Health)
			faults = append(faults, a.LastError)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("targets are %q, errors %q", got, faults)
		}
		return nil
	})
}

// rule is an alert's rule as Prometheus has it.
type rule struct {
	Name, Health, LastError, State string
	LastEvaluation                 time.Time
	Alerts                         []struct {
		State    string
		ActiveAt time.Time
		Labels   map[string]string
	}
}

// raised reports whether the rule's condition holds, whether or not long enough to be reported.
func (r rule) raised() bool { return r.State == "pending" || r.State == "firing" }

func (p prometheusAPI) rules(ctx context.Context) (all []rule, err error) {
	var told struct{ Groups []struct{ Rules []rule } }
	err = p.ask(ctx, "rules", &told)
	for _, g := range told.Groups {
		all = append(all, g.Rules...)
	}
	return all, err
}

// judgeRules checks that each alert of the repository is loaded and has been evaluated without an error, and
// that nothing is firing.
func (p prometheusAPI) judgeRules(t *testing.T) {
	t.Helper()
	want := len(alertExpressions(t))
	p.until(t, func(ctx context.Context) error {
		all, err := p.rules(ctx)
		if err != nil {
			return err
		}
		if len(all) != want {
			return fmt.Errorf("%d rules are loaded, the file has %d", len(all), want)
		}
		for _, r := range all {
			if r.Health != "ok" || r.LastError != "" || r.State == "firing" {
				return fmt.Errorf("%s: health %s, error %q, state %s", r.Name, r.Health, r.LastError, r.State)
			}
		}
		return nil
	})
}

// judgePanels checks that each expression of the dashboard returns something.
func (p prometheusAPI) judgePanels(t *testing.T) {
	t.Helper()
	for _, panel := range dashboardPanels(t) {
		for _, target := range panel.Targets {
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", rateInterval)
			p.until(t, func(ctx context.Context) error {
				n, err := p.series(ctx, expr)
				if err == nil && n == 0 && !slices.Contains(quietPanels, panel.Title) {
					err = fmt.Errorf("%s: nothing comes of %s", panel.Title, expr)
				}
				return err
			})
		}
	}
	// They show what has just happened: a session was started, completed and delivered.
	for _, counted := range []string{
		`verifyd_init_total{outcome="created"}`, `verifyd_completions_total{outcome="verified"}`,
		`verifyd_delivery_attempts_total{verdict="delivered"}`,
	} {
		p.until(t, func(ctx context.Context) error {
			n, err := p.series(ctx, "sum("+counted+") > 0")
			if err == nil && n == 0 {
				err = fmt.Errorf("%s has counted nothing", counted)
			}
			return err
		})
	}
}

// series counts the series of an expression; each must have a readable value.
func (p prometheusAPI) series(ctx context.Context, expr string) (int, error) {
	var told struct {
		ResultType string
		Result     []struct{ Value []any }
	}
	if err := p.ask(ctx, "query?query="+url.QueryEscape(expr), &told); err != nil {
		return 0, err
	}
	if told.ResultType != "vector" {
		return 0, fmt.Errorf("%s gives a %s", expr, told.ResultType)
	}
	for _, r := range told.Result {
		text, ok := r.Value[len(r.Value)-1].(string)
		if v, err := strconv.ParseFloat(text, 64); !ok || err != nil || math.IsInf(v, 0) || v < 0 {
			return 0, fmt.Errorf("%s gives %v", expr, r.Value)
		}
	}
	return len(told.Result), nil
}

// judgeAlert stops a dispatcher, and checks that this raises its alert, and no other. What was raised before
// has another cause: a start that a busy machine made slow, an election.
func (s *stack) judgeAlert(t *testing.T, p prometheusAPI) {
	t.Helper()
	before := map[string]bool{}
	p.until(t, func(ctx context.Context) error {
		all, err := p.rules(ctx)
		for _, r := range all {
			before[r.Name] = r.raised()
		}
		if err == nil && before["VerifydDown"] {
			err = fmt.Errorf("nothing was stopped, the alerts are %+v", all)
		}
		return err
	})
	s.must(t, "stop", "--timeout", "10", "dispatcher-2")
	p.until(t, func(ctx context.Context) error {
		all, err := p.rules(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(r rule) bool { return r.Name == "VerifydDown" })
		if i < 0 || !all[i].raised() {
			return fmt.Errorf("a dispatcher was stopped, the alerts are %+v", all)
		}
		a := all[i].Alerts
		if len(a) != 1 || a[0].Labels["instance"] != "dispatcher-2:9090" ||
			a[0].Labels["severity"] != "page" {
			return fmt.Errorf("a dispatcher was stopped, VerifydDown says %+v", a)
		}
		for _, r := range all {
			if !r.LastEvaluation.After(a[0].ActiveAt) {
				return fmt.Errorf("%s has not been judged since VerifydDown was raised", r.Name)
			}
			if r.Name != "VerifydDown" && r.raised() && !before[r.Name] {
				return fmt.Errorf("a dispatcher was stopped, and %s is %s: %+v", r.Name, r.State, r.Alerts)
			}
		}
		return nil
	})
}
