package observability_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func promtool(t *testing.T, args ...string) {
	t.Helper()
	runIn(t, filepath.Join(root, rulesDir), program(t, "promtool"), args...)
}

func TestConfigAndRulesAreValid(t *testing.T) {
	promtool(t, "check", "config", "prometheus.yml")
	promtool(t, "check", "config", "endpoints.scrape.yml")
	promtool(t, "check", "rules", "recording.rules.yml", "alerts.rules.yml")
}

// TestRulesPassTheirTests runs the unit tests of the rules.
func TestRulesPassTheirTests(t *testing.T) {
	promtool(t, "test", "rules", "tests/recording.test.yml", "tests/alerts.test.yml")
}

// TestEveryRuleIsTested: each alert has a test in which it fires and one in which it does
// not, and each recording has a test.
func TestEveryRuleIsTested(t *testing.T) {
	text := read(t, filepath.Join(rulesDir, "tests/alerts.test.yml"))
	for _, a := range alerts(t) {
		if !strings.Contains(text, "alertname: "+a.Alert+"\n") {
			t.Errorf("no test in which %s fires", a.Alert)
		}
		if !strings.Contains(text, "alertname: "+a.Alert+", exp_alerts: []") {
			t.Errorf("no test in which %s does not fire", a.Alert)
		}
	}
	text = read(t, filepath.Join(rulesDir, "tests/recording.test.yml"))
	for _, r := range records(t) {
		if !strings.Contains(text, r.Record) {
			t.Errorf("no test of %s", r.Record)
		}
	}
}

func TestRulesReadMetricsThatExist(t *testing.T) {
	for _, r := range slices.Concat(records(t), alerts(t)) {
		metricsOf(t, r.Record+r.Alert, r.Expr)
	}
}

// TestAlertsAreDocumented: each names its instance, its severity, and its section of the
// runbook.
func TestAlertsAreDocumented(t *testing.T) {
	const page = "https://github.com/lbd-dev/lbd/blob/main/docs/runbook.md#"
	runbook := read(t, "docs/runbook.md")
	entries := map[string]bool{}
	for _, h := range regexp.MustCompile(`(?m)^## (Lbd\w+)$`).FindAllStringSubmatch(runbook, -1) {
		entries[h[1]] = true
	}
	for _, a := range alerts(t) {
		if !slices.Contains([]string{"critical", "warning"}, a.Labels["severity"]) {
			t.Errorf("%s: severity %q", a.Alert, a.Labels["severity"])
		}
		if a.For == "" {
			t.Errorf("%s has no for", a.Alert)
		}
		for _, part := range []string{"summary", "description"} {
			if !regexp.MustCompile(`\{\{ (or )?\$labels\.instance `).MatchString(a.Annotations[part]) {
				t.Errorf("%s: the %s does not name the instance", a.Alert, part)
			}
		}
		if strings.Contains(a.Expr, "cluster") && !strings.Contains(a.Annotations["summary"], "{{ $labels.cluster }}") {
			t.Errorf("%s: the summary does not name the cluster", a.Alert)
		}
		if got, want := a.Annotations["runbook_url"], page+strings.ToLower(a.Alert); got != want {
			t.Errorf("%s: runbook %s, want %s", a.Alert, got, want)
		}
		if !entries[a.Alert] {
			t.Errorf("the runbook has no section %s", a.Alert)
		}
		delete(entries, a.Alert)
	}
	for name := range entries {
		t.Errorf("the runbook describes %s, which is no alert", name)
	}
}
