package observability_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	// root is the repository.
	root = "../.."
	// rulesDir holds what Prometheus reads.
	rulesDir = "deploy/prometheus"
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// program finds a program of Prometheus': in the directory that
// LBD_TEST_PROMETHEUS names, else where programs are.
func program(t *testing.T, name string) string {
	t.Helper()
	if dir := os.Getenv("LBD_TEST_PROMETHEUS"); dir != "" {
		path, err := filepath.Abs(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed: make test-prometheus fetches it", name)
	}
	return path
}

// rule is a recording rule or an alert.
type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

// rules are those of a file in rulesDir.
func rules(t *testing.T, file string) []rule {
	t.Helper()
	var parsed struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, filepath.Join(rulesDir, file))), &parsed); err != nil {
		t.Fatal(err)
	}
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

// metricName finds what an expression reads: series of lbd, of its runtime and
// process, of rules, and whether a target is up.
var metricName = regexp.MustCompile(`\b(?:lbd_[a-z_]+|lbd:[a-z_:0-9]+|go_[a-z_]+|process_[a-z_]+|up)\b`)

// knownMetric tells whether docs/operations.md, which is held to the code, has
// the metric, or a rule makes it.
func knownMetric(t *testing.T, name string) bool {
	t.Helper()
	for _, r := range records(t) {
		if r.Record == name {
			return true
		}
	}
	if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || name == "up" {
		return true // Prometheus' own: to be answered is enough
	}
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return strings.Contains(read(t, "docs/operations.md"), "`"+name+"`")
}
