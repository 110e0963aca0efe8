package observability_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func promtool(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command(program(t, "promtool"), args...)
	cmd.Dir = filepath.Join(root, rulesDir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestConfigAndRulesAreGood(t *testing.T) {
	promtool(t, "check", "config", "prometheus.yml")
	promtool(t, "check", "config", "endpoints.scrape.yml")
	promtool(t, "check", "rules", "recording.rules.yml", "alerts.rules.yml")
}

// TestRulesDoWhatTheirTestsSay runs the unit tests that lie beside the rules.
func TestRulesDoWhatTheirTestsSay(t *testing.T) {
	promtool(t, "test", "rules", "tests/recording.test.yml", "tests/alerts.test.yml")
}

// TestEveryRuleIsTested: each alert is seen to fire, and not to; each recording
// is compared.
func TestEveryRuleIsTested(t *testing.T) {
	text := read(t, filepath.Join(rulesDir, "tests/alerts.test.yml"))
	for _, a := range alerts(t) {
		if !strings.Contains(text, "alertname: "+a.Alert+"\n") {
			t.Errorf("no test sees %s fire", a.Alert)
		}
		if !strings.Contains(text, "alertname: "+a.Alert+", exp_alerts: []") {
			t.Errorf("no test sees %s silent", a.Alert)
		}
	}
	text = read(t, filepath.Join(rulesDir, "tests/recording.test.yml"))
	for _, r := range records(t) {
		if !strings.Contains(text, r.Record) {
			t.Errorf("no test compares %s", r.Record)
		}
	}
}

func TestRulesReadMetricsThatExist(t *testing.T) {
	for _, r := range slices.Concat(records(t), alerts(t)) {
		names := metricName.FindAllString(r.Expr, -1)
		if len(names) == 0 {
			t.Errorf("%s%s reads nothing", r.Record, r.Alert)
		}
		for _, name := range names {
			if !knownMetric(t, name) {
				t.Errorf("%s%s reads %s, which does not exist", r.Record, r.Alert, name)
			}
		}
	}
}

// TestAlertsTellWhatToDo: each says where, how bad it is, and which part of the
// runbook is about it.
func TestAlertsTellWhatToDo(t *testing.T) {
	const page = "https://github.com/lbd-dev/lbd/blob/main/docs/runbook.md#"
	runbook := read(t, "docs/runbook.md")
	headings := regexp.MustCompile(`(?m)^## (Lbd\w+)$`).FindAllStringSubmatch(runbook, -1)
	var entries []string
	for _, h := range headings {
		entries = append(entries, h[1])
	}
	for _, a := range alerts(t) {
		if !slices.Contains([]string{"critical", "warning"}, a.Labels["severity"]) {
			t.Errorf("%s: severity %q", a.Alert, a.Labels["severity"])
		}
		if a.For == "" {
			t.Errorf("%s does not say for how long it waits", a.Alert)
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
			t.Errorf("%s leads to %s, and not to %s", a.Alert, got, want)
		}
		i := slices.Index(entries, a.Alert)
		if i < 0 {
			t.Errorf("the runbook has no entry %s", a.Alert)
			continue
		}
		entries = slices.Delete(entries, i, i+1)
	}
	if len(entries) > 0 {
		t.Errorf("the runbook tells of %v, which are no alerts", entries)
	}
}
