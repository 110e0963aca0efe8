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

	"github.com/lbd-dev/lbd/xds/decode"
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
	do(t, os.WriteFile(path, []byte(content), 0o600))
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

// watching is a Watcher whose scans are received one by one.
type watching struct {
	*testing.T
	*Watcher
	scans chan *Scan
}

func start(t *testing.T, dir string, with timing) *watching {
	t.Helper()
	w := &watching{T: t, scans: make(chan *Scan, 1000)}
	var err error
	w.Watcher, err = open(dir, Options{OnScan: func(s *Scan) { w.scans <- s }}, with)
	do(t, err)
	t.Cleanup(func() { do(t, w.Close()) })
	return w
}

// next is what the next scan found.
func (w *watching) next() string {
	w.Helper()
	select {
	case s := <-w.scans:
		return summary(s)
	case <-w.Context().Done():
		w.Fatal("no scan came")
		return ""
	}
}

// expect wants these scans to come next, and no other between.
func (w *watching) expect(want ...string) {
	w.Helper()
	for _, want := range want {
		if got := w.next(); got != want {
			w.Fatalf("scan:\n%s\nwant:\n%s", got, want)
		}
	}
}

// until takes scans until one holds what is wanted, and returns those before it.
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
			w.Fatalf("scans:\n%s\nwant:\n%s", strings.Join(before, "\n"), want)
		}
	}
}

// summary is a scan as "Type/name@file=addresses" of each resource, then "!file:
// error" of what is bad, with what is valid of it, then "?file: warnings".
func summary(s *Scan) string {
	if s.Err != nil {
		return "!.: " + s.Err.Error()
	}
	var parts, bad, warnings []string
	if s.Over != nil {
		bad = append(bad, "!.: "+s.Over.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		f := s.Files[name]
		if !f.Waits.IsZero() {
			parts = append(parts, "waits "+name)
			if f.Sum == "" {
				continue
			}
		}
		if (f.Bundle == nil) == (f.Err == nil) || (f.Err == nil) != f.Since.IsZero() || f.Sum != "" && f.Modified.IsZero() {
			parts = append(parts, fmt.Sprintf("broken %+v", f))
		}
		if f.Bundle != nil {
			parts = append(parts, resources(name, f.Bundle)...)
			if n := len(f.Bundle.Warnings); n > 0 {
				warnings = append(warnings, fmt.Sprintf("?%s: %d", name, n))
			}
		}
		if f.Err != nil {
			bad = append(bad, "!"+name+": "+f.Err.Error())
		}
		if f.Valid != nil {
			for _, r := range resources(name, f.Valid) {
				bad = append(bad, "valid "+r)
			}
		}
	}
	slices.Sort(parts)
	return strings.Join(slices.Concat(parts, bad, warnings), "\n")
}

func resources(file string, b *decode.Bundle) []string {
	var out []string
	for _, i := range b.Items {
		part := []string{i.Key.String() + "@" + file}
		if len(i.Raw) == 0 {
			part = append(part, "without Raw")
		}
		if a := i.Assignment; a != nil {
			for _, l := range a.Localities {
				for _, e := range l.Endpoints {
					part = append(part, e.Addresses[0])
				}
			}
		}
		out = append(out, strings.Join(part, "="))
	}
	return out
}

// quick is for tests with notifications of the system.
var quick = timing{quiet: 20 * time.Millisecond, most: time.Second, rescan: time.Hour}
