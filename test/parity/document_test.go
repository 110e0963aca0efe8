package parity_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the repository.
const root = "../.."

// tables are the sections of docs/parity.md on grpc-go's tests, with their packages.
var tables = map[string]string{
	"priority":          "internal/xds/balancer/priority",
	"weighted_target":   "balancer/weightedtarget",
	"cluster manager":   "internal/xds/balancer/clustermanager",
	"cluster_impl":      "internal/xds/balancer/clusterimpl",
	"outlier detection": "internal/xds/balancer/outlierdetection",
	"cds":               "internal/xds/balancer/cdsbalancer",

	"xDS client":         "internal/xds/clients/xdsclient/test",
	"resolver":           "internal/xds/resolver",
	"dependency manager": "internal/xds/xdsdepmgr",
	"xDS resources":      "internal/xds/xdsclient/xdsresource",
}

var (
	testFunc   = regexp.MustCompile(`(?m)^func (?:\(s\) )?Test(\w+)\(`)
	testNamed  = regexp.MustCompile("`(Test\\w+)`(?: (?:in|of `Test\\w+` in) `([\\w/]+_test\\.go)`)?")
	fileNamed  = regexp.MustCompile("`([\\w/]+\\.go)`")
	rowOfTable = regexp.MustCompile(`"([^"]+)"`)
)

// grpcDir returns the directory of grpc-go's module.
func grpcDir(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "google.golang.org/grpc").Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

// TestDocument compares docs/parity.md with the tests that it names, of both sides.
func TestDocument(t *testing.T) {
	grpcs, own := grpcDir(t), testFiles(t, root)
	text := read(t, filepath.Join(root, "docs/parity.md"))
	for _, m := range fileNamed.FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("%s does not exist", m[1])
		}
	}
	sections := make(map[string]string)
	for _, s := range strings.Split(text, "\n### ")[1:] {
		title, body, _ := strings.Cut(s, "\n")
		sections[title] = body
	}
	for title, dir := range tables {
		t.Run(title, func(t *testing.T) {
			intro, rows, _ := strings.Cut(sections[title], "\n|")
			left := make(map[string]bool)
			for row := range strings.SplitSeq(rows, "\n") {
				cells := strings.Split(row, " | ")
				if len(cells) != 2 {
					continue
				}
				for name := range strings.SplitSeq(strings.Trim(cells[0], "| "), ", ") {
					left[name] = true
				}
				checkCell(t, own, intro, cells[1])
			}
			for _, source := range testFiles(t, filepath.Join(grpcs, dir)) {
				for _, m := range testFunc.FindAllStringSubmatch(source, -1) {
					if !left[m[1]] {
						t.Errorf("%s has no row", m[1])
					}
				}
			}
		})
	}
}

// checkCell checks that the tests exist that a cell names: in the file that it names, or
// else in one that the section names.
func checkCell(t *testing.T, own map[string]string, intro, cell string) {
	t.Helper()
	var everywhere strings.Builder
	for _, m := range fileNamed.FindAllStringSubmatch(intro+cell, -1) {
		everywhere.WriteString(own[m[1]])
	}
	for _, m := range rowOfTable.FindAllStringSubmatch(cell, -1) {
		if !strings.Contains(everywhere.String(), `"`+m[1]+`"`) {
			t.Errorf("%q does not exist", m[1])
		}
	}
	for _, m := range testNamed.FindAllStringSubmatch(cell, -1) {
		source := everywhere.String()
		if m[2] != "" {
			source = own[m[2]]
		}
		if !strings.Contains(source, "func "+m[1]+"(") {
			t.Errorf("%s is not in %s", m[1], m[2])
		}
	}
}

// testFiles reads the tests below a folder, by their paths in it.
func testFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "node_modules" {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files[name] = read(t, path)
		return err
	})
	must(t, err)
	return files
}
