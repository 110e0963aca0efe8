package observability_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	root     = "../.."
	rulesDir = "deploy/prometheus"
)

// must ends the test if err is not nil.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	must(t, err)
	return string(text)
}

// program returns a program of Prometheus: in the directory LBD_TEST_PROMETHEUS, or in PATH.
func program(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("LBD_TEST_PROMETHEUS")
	path, err := exec.LookPath(filepath.Join(dir, name))
	if err != nil && dir == "" {
		t.Skipf("%s is not installed: make test-prometheus fetches it", name)
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	must(t, err)
	return path
}

// rule is a recording rule or an alert.
type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

// rules returns the rules of a file in rulesDir.
func rules(t *testing.T, file string) []rule {
	t.Helper()
	var parsed struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	must(t, yaml.UnmarshalStrict([]byte(read(t, filepath.Join(rulesDir, file))), &parsed))
	var all []rule
	for _, g := range parsed.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rules", file)
	}
	return all
}

func records(t *testing.T) []rule { t.Helper(); return rules(t, "recording.rules.yml") }

func alerts(t *testing.T) []rule { t.Helper(); return rules(t, "alerts.rules.yml") }

// metricName matches the metrics of an expression: of lbd, its runtime and its process, of
// rules, and up.
var metricName = regexp.MustCompile(`\b(?:lbd_[a-z_]+|lbd:[a-z_:0-9]+|go_[a-z_]+|process_[a-z_]+|up)\b`)

// metricsOf returns the metrics of an expression, and checks that they exist.
func metricsOf(t *testing.T, name, expr string) []string {
	t.Helper()
	metrics := metricName.FindAllString(expr, -1)
	if len(metrics) == 0 {
		t.Errorf("%s reads no metric", name)
	}
	for _, m := range metrics {
		if !knownMetric(t, m) {
			t.Errorf("%s reads %s, which does not exist", name, m)
		}
	}
	return metrics
}

// knownMetric reports whether a rule records the metric or docs/metrics.md, which is
// compared with the code, has it. The metrics of Prometheus' libraries need no entry.
func knownMetric(t *testing.T, name string) bool {
	t.Helper()
	if name == "up" || strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") ||
		slices.ContainsFunc(records(t), func(r rule) bool { return r.Record == name }) {
		return true
	}
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return strings.Contains(read(t, "docs/metrics.md"), "`"+name+"`")
}
