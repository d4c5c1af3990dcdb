package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"verifyd/natsconf/natstest/prove"
)

// alertRule is a rule of docs/monitoring/alerts.yml.
type alertRule struct {
	Alert, Expr         string
	Annotations, Labels map[string]string
}

func alertRules(t *testing.T) (rules []alertRule) {
	t.Helper()
	var doc struct{ Groups []struct{ Rules []alertRule } }
	readConfig(t, &doc, "docs", "monitoring", "alerts.yml")
	for _, g := range doc.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

func alertExpressions(t *testing.T) (expressions []string) {
	t.Helper()
	for _, r := range alertRules(t) {
		expressions = append(expressions, r.Expr)
	}
	return expressions
}

// alertLayouts are the files with the tests of the rules, by what is scraped.
var alertLayouts = map[string]string{"one machine": "alerts_one.yml", "many machines": "alerts_many.yml"}

// alertsOfOne are the alerts that can fire in one layout alone: no process sees the disks of NATS servers,
// and on one machine there are none of these servers.
var alertsOfOne = map[string]string{
	"VerifydStoreFailed": "one machine", "VerifydDiskFills": "one machine",
	"VerifydCopyBehind":   "one machine",
	"VerifydStoreDamaged": "one machine", "VerifydStoreNotRead": "one machine",
	"VerifydNATSServerDown": "many machines", "VerifydCertificateExpiresNow": "many machines",
}

// Prometheus's own tool accepts the alerts' rules. They fire when they should, and not otherwise.
func TestAlertsFire(t *testing.T) {
	prove.Only(t, "languages", "it needs Prometheus's tool")
	promtool := prove.Program(t, "promtool, which Debian has in prometheus", "promtool")
	runs := [][]string{{"check", "rules", filepath.Join(repository, "docs", "monitoring", "alerts.yml")}}
	for _, file := range alertLayouts {
		runs = append(runs, []string{"test", "rules", filepath.Join("testdata", file)})
	}
	for _, args := range runs {
		if said, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v: %s", strings.Join(args, " "), err, said)
		}
	}
}

// alertTest is a test of promtool's: series, and what fires then.
type alertTest struct {
	Name        string
	InputSeries []struct{ Series string } `yaml:"input_series"`
	Cases       []struct {
		Alert string `yaml:"alertname"`
		Fires []any  `yaml:"exp_alerts"`
	} `yaml:"alert_rule_test"`
}

// shows reports whether the test has a series of every metric in an expression.
func (a alertTest) shows(expr string) bool {
	for _, name := range scrapedName.FindAllString(expr, -1) {
		found := false
		for _, s := range a.InputSeries {
			of, _, _ := strings.Cut(s.Series, "{")
			found = found || of == name
		}
		if !found {
			return false
		}
	}
	return true
}

// scrapedName recognises our metrics, and Prometheus's own, in an expression.
var scrapedName = regexp.MustCompile(`\b(verifyd|gnatsd)_[a-z0-9_]+|\bup\b`)

// For each layout, each rule has a case in which it fires, and one with its metrics in which it is quiet.
func TestEachAlertIsTested(t *testing.T) {
	t.Parallel()
	rules := alertRules(t)
	for layout, file := range alertLayouts {
		var doc struct{ Tests []alertTest }
		readConfig(t, &doc, "cmd", "verifyd", "testdata", file)
		fires, quiet := map[string]bool{}, map[string]bool{}
		for _, a := range doc.Tests {
			for _, c := range a.Cases {
				i := slices.IndexFunc(rules, func(r alertRule) bool { return r.Alert == c.Alert })
				if i < 0 {
					t.Errorf("%s, %s: there is no alert %s", file, a.Name, c.Alert)
					continue
				}
				fires[c.Alert] = fires[c.Alert] || len(c.Fires) > 0
				quiet[c.Alert] = quiet[c.Alert] || len(c.Fires) == 0 && a.shows(rules[i].Expr)
			}
		}
		for _, r := range rules {
			if only, ok := alertsOfOne[r.Alert]; ok && only != layout {
				continue
			}
			if !fires[r.Alert] {
				t.Errorf("%s: %s has no case in which it fires", file, r.Alert)
			}
			if !quiet[r.Alert] {
				t.Errorf("%s: %s has no case with its metrics in which it is quiet", file, r.Alert)
			}
		}
	}
}

var (
	commandNamed = regexp.MustCompile("`verifyd ([^`]+)`")
	sectionNamed = regexp.MustCompile(`OPERATING, "([^"]+)"`)
)

// Each alert describes the problem, names a command of the program or a part of the operators' document that
// helps, and is in that document.
func TestAlertsNameWhatToType(t *testing.T) {
	t.Parallel()
	operating := string(must[[]byte](t)(os.ReadFile(filepath.Join(repository, "docs", "OPERATING.md"))))
	parser := must[*kong.Kong](t)(newParser(kong.Writers(io.Discard, io.Discard)))
	rules := alertRules(t)
	for _, r := range rules {
		if r.Annotations["summary"] == "" ||
			!slices.Contains([]string{"page", "warn"}, r.Labels["severity"]) {
			t.Errorf("%s: summary %q, severity %q", r.Alert, r.Annotations["summary"], r.Labels["severity"])
		}
		if !strings.Contains(operating, "| `"+r.Alert+"` |") {
			t.Errorf("docs/OPERATING.md does not tell what to do about %s", r.Alert)
		}
		do := r.Annotations["description"]
		commands := commandNamed.FindAllStringSubmatch(do, -1)
		sections := sectionNamed.FindAllStringSubmatch(do, -1)
		if len(commands)+len(sections) == 0 {
			t.Errorf("%s names no command and no part of OPERATING: %q", r.Alert, do)
		}
		for _, c := range commands {
			if err := knows(parser, strings.Fields(c[1])); err != nil {
				t.Errorf("%s: verifyd %s: %v", r.Alert, c[1], err)
			}
		}
		for _, s := range sections {
			if !strings.Contains(operating, "# "+s[1]+"\n") {
				t.Errorf("%s: OPERATING has no part %q", r.Alert, s[1])
			}
		}
	}
	if len(rules) < 20 {
		t.Errorf("only %d rules", len(rules))
	}
}
