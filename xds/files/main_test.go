package files

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// assignment is the YAML of an assignment with one endpoint.
func assignment(name, address string) string {
	return fmt.Sprintf("cluster_name: %s\nendpoints:\n- load_balancing_weight: 1\n  locality: {}\n  lb_endpoints:\n"+
		"  - endpoint: {address: {socket_address: {address: %s, port_value: 80}}}\n", name, address)
}

// clusters is the JSON of a bundle of clusters.
func clusters(names ...string) string {
	var list []string
	for _, name := range names {
		list = append(list, fmt.Sprintf(`{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":%q,"type":"EDS"}`, name))
	}
	return `{"resources":[` + strings.Join(list, ",") + `]}`
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace writes a file as editors do: beside it first, then in its place.
func replace(t *testing.T, path, content string) {
	t.Helper()
	beside := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	write(t, beside, content)
	do(t, os.Rename(beside, path))
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// watching is a Watcher whose sets are received one by one.
type watching struct {
	*testing.T
	*Watcher
	sets chan Set
}

func start(t *testing.T, dir string, with timing) *watching {
	t.Helper()
	w := &watching{T: t, sets: make(chan Set, 1000)}
	var err error
	w.Watcher, err = open(dir, Options{OnChange: func(s Set) { w.sets <- s }}, with)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { do(t, w.Close()) })
	return w
}

// next is what the next set holds.
func (w *watching) next() string {
	w.Helper()
	select {
	case s := <-w.sets:
		return summary(s)
	case <-w.Context().Done():
		w.Fatal("no set came")
		return ""
	}
}

// expect wants these sets to come next, and no other between.
func (w *watching) expect(want ...string) {
	w.Helper()
	for _, want := range want {
		if got := w.next(); got != want {
			w.Fatalf("set:\n%s\nwant:\n%s", got, want)
		}
	}
}

// until takes sets until one holds what is wanted, and returns those before it.
func (w *watching) until(want string) []string {
	w.Helper()
	var before []string
	for {
		got := w.next()
		if got == want {
			return before
		}
		before = append(before, got)
		if len(before) == 100 {
			w.Fatalf("sets:\n%s\nwant:\n%s", strings.Join(before, "\n"), want)
		}
	}
}

// summary is a set as "Type/name@file=addresses" of each resource, then
// "!file: error" or, where it is kept, "!file (kept): error" of what is bad.
func summary(s Set) string {
	var parts []string
	for key, r := range s.Resources {
		if key != r.Key || len(r.Raw) == 0 || r.Modified.IsZero() {
			parts = append(parts, fmt.Sprintf("broken %+v", r))
		}
		part := []string{key.String() + "@" + r.File}
		if a := r.Assignment; a != nil {
			for _, l := range a.Localities {
				for _, e := range l.Endpoints {
					part = append(part, e.Addresses[0])
				}
			}
		}
		parts = append(parts, strings.Join(part, "="))
	}
	slices.Sort(parts)
	for _, b := range s.Bad {
		if b.Since.IsZero() {
			parts = append(parts, "bad since ever")
		}
		kept := ""
		if b.Kept {
			kept = " (kept)"
		}
		parts = append(parts, "!"+b.File+kept+": "+b.Err.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(s.Warnings)) {
		parts = append(parts, fmt.Sprintf("?%s: %d", name, len(s.Warnings[name])))
	}
	return strings.Join(parts, "\n")
}

// quick is for tests of what is told by the system.
var quick = timing{quiet: 20 * time.Millisecond, most: time.Second, rescan: time.Hour}
