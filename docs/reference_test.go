package docs_test

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/lbd-dev/lbd"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	configuration = "docs/configuration.md"
	metrics       = "docs/metrics.md"
	limits        = "docs/limits.md"
	events        = "docs/events.md"
)

// source parses the Go files of a directory, tests aside; with "/..." also those of
// the directories below it.
func source(t *testing.T, dir string) []*ast.File {
	t.Helper()
	var parsed []*ast.File
	dir, all := strings.CutSuffix(dir, "/...")
	for _, file := range files(t, dir, ".go") {
		if strings.HasSuffix(file, "_test.go") || !all && filepath.Dir(file) != filepath.Clean(dir) {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
		noError(t, err)
		parsed = append(parsed, f)
	}
	return parsed
}

// literals returns the string literals of a directory's Go files that match.
func literals(t *testing.T, dir string, match *regexp.Regexp) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, f := range source(t, dir) {
		ast.Inspect(f, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if s, err := strconv.Unquote(l.Value); err == nil && match.MatchString(s) {
					found[s] = true
				}
			}
			return true
		})
	}
	return found
}

func TestMetricsAreDocumented(t *testing.T) {
	known := literals(t, "service/...", regexp.MustCompile(`^lbd_[a-z_]+$`))
	maps.Copy(known, literals(t, "api/...", regexp.MustCompile(`^lbd_[a-z_]+$`)))
	maps.Copy(known, literals(t, "cmd/lbd", regexp.MustCompile(`^lbd_[a-z_]+$`)))
	if !known["lbd_picks_total"] || !known["lbd_http_requests_total"] {
		t.Fatalf("found only %v in the code", slices.Sorted(maps.Keys(known)))
	}
	name := regexp.MustCompile(`\blbd_[a-z_]*[a-z]`)
	for file, text := range pages(t) {
		for _, m := range name.FindAllString(text, -1) {
			if !known[m] && m != "lbd_drop" && m != "lbd_leases" && m != "lbd_proxy" { // what an example searches for
				t.Errorf("%s names the metric %s, which does not exist", file, m)
			}
		}
	}
	for _, m := range slices.Sorted(maps.Keys(known)) {
		if !strings.Contains(read(t, metrics), "`"+m+"`") {
			t.Errorf("%s does not name the metric %s", metrics, m)
		}
	}
}

// flags returns the flags of the commands in a directory and their environment variables,
// from the tags that kong reads.
func flags(t *testing.T, dir string) (names, variables map[string]bool) {
	t.Helper()
	names, variables = map[string]bool{"help": true}, map[string]bool{}
	for _, f := range source(t, dir) {
		ast.Inspect(f, func(n ast.Node) bool {
			field, ok := n.(*ast.Field)
			if !ok || field.Tag == nil || len(field.Names) != 1 {
				return true
			}
			text, err := strconv.Unquote(field.Tag.Value)
			noError(t, err)
			tag := reflect.StructTag(text)
			_, command := tag.Lookup("cmd")
			_, argument := tag.Lookup("arg")
			if tag.Get("help") == "" || command || argument {
				return true
			}
			name := tag.Get("name")
			if name == "" {
				name = kebab(field.Names[0].Name)
			}
			names[name] = true
			if v := tag.Get("env"); v != "" {
				variables[v] = true
			}
			return true
		})
	}
	if len(names) < 10 || len(variables) < 5 {
		t.Fatalf("found only %v and %v in %s", names, variables, dir)
	}
	return names, variables
}

// kebab returns the flag name that kong derives from a field's name.
func kebab(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func TestFlagsAreDocumented(t *testing.T) {
	names, variables := flags(t, "cmd/lbd")
	ctlNames, ctlVariables := flags(t, "cmd/lbd/ctl")
	maps.Copy(variables, ctlVariables)
	others := []string{
		"data-binary", "bind", "unix-socket", // curl's, Python's
		"bump-revision", "mark-compacted", "auto-compaction-mode", "auto-compaction-retention", "quota-backend-bytes", "prefix",
		"initial-cluster", "force-new-cluster", "cluster", // etcd's
		"from-file",   // kubectl's
		"allow-dirty", // cargo's
	}
	foreign := []string{"LBD_TEST_LONG", "LBD_STORM", "LBD_FLEET_OUTAGE", "LBD_FLEET_FSYNC", "LBD_PORT", "LBD_SERVICE_HOST"} // the tests', Kubernetes'
	flag := regexp.MustCompile(`(?:^|[^-\w])--([a-z][a-z-]*[a-z])`)
	variable := regexp.MustCompile(`\bLBD_[A-Z_]*[A-Z]`)
	for file, text := range pages(t) {
		if file == "docs/proxy.md" { // clients/proxy compares it with the flags of lbd-proxy
			continue
		}
		for _, m := range flag.FindAllStringSubmatch(text, -1) {
			if !names[m[1]] && !ctlNames[m[1]] && !slices.Contains(others, m[1]) {
				t.Errorf("%s names the flag --%s, which does not exist", file, m[1])
			}
		}
		for _, v := range variable.FindAllString(text, -1) {
			if !variables[v] && !slices.Contains(foreign, v) {
				t.Errorf("%s names the variable %s, which does not exist", file, v)
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		if n != "help" && !strings.Contains(read(t, configuration), "`--"+n+"`") {
			t.Errorf("%s does not name the flag --%s", configuration, n)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(ctlNames)) {
		if n != "help" && !strings.Contains(read(t, "docs/ctl.md"), "`--"+n+"`") {
			t.Errorf("docs/ctl.md does not name the flag --%s", n)
		}
	}
	for _, v := range slices.Sorted(maps.Keys(variables)) {
		if !strings.Contains(read(t, configuration), "`"+v+"`") {
			t.Errorf("%s does not name the variable %s", configuration, v)
		}
	}
}

// section is the text under a heading of a page, up to the next of its rank; "" is the page.
func section(t *testing.T, file, title string) string {
	t.Helper()
	if title == "" {
		return read(t, file)
	}
	_, after, ok := strings.Cut(read(t, file), "\n## "+title+"\n")
	if !ok {
		t.Fatalf("%s has no section %q", file, title)
	}
	before, _, _ := strings.Cut(after, "\n## ")
	return before
}

// rows returns the cells of a section's tables, without their headers.
func rows(t *testing.T, file, title string) [][]string {
	t.Helper()
	var table [][]string
	for line := range strings.Lines(section(t, file, title)) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "| ---"):
			table = table[:len(table)-1]
		case strings.HasPrefix(line, "| "):
			table = append(table, strings.Split(strings.Trim(line, "| "), " | "))
		}
	}
	if len(table) == 0 {
		t.Fatalf("%s: section %q has no table", file, title)
	}
	return table
}

// constants has the integer constants of packages, by package and name.
type constants map[string]ast.Expr

func (c constants) add(t *testing.T, dir string) {
	t.Helper()
	for _, f := range source(t, dir) {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				if v, ok := s.(*ast.ValueSpec); ok && len(v.Values) == 1 {
					c[f.Name.Name+"."+v.Names[0].Name] = v.Values[0]
				}
			}
		}
	}
}

// value evaluates a constant expression. It returns nil for an expression that it
// does not support.
func (c constants) value(e ast.Expr) constant.Value {
	units := map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0)
	case *ast.SelectorExpr:
		return constant.MakeInt64(int64(units[e.Sel.Name]))
	case *ast.BinaryExpr:
		x, y := c.value(e.X), c.value(e.Y)
		if x == nil || y == nil {
			return nil
		}
		if e.Op == token.SHL {
			n, _ := constant.Uint64Val(y)
			return constant.Shift(x, e.Op, uint(n))
		}
		return constant.BinaryOp(x, e.Op, y)
	default:
		return nil
	}
}

// number parses a limit of the table.
func number(t *testing.T, s string) int64 {
	t.Helper()
	s = strings.TrimSpace(s)
	if d, err := time.ParseDuration(s); err == nil {
		return int64(d)
	}
	digits, unit, _ := strings.Cut(strings.ReplaceAll(s, ",", ""), " ")
	n, err := strconv.ParseInt(digits, 10, 64)
	shift, ok := map[string]int{"": 0, "KiB": 10, "MiB": 20}[unit]
	if err != nil || !ok {
		t.Fatalf("%q is no limit", s)
	}
	return n << shift
}

func TestLimitsAreThoseOfTheCode(t *testing.T) {
	c := constants{}
	for _, dir := range []string{"api/...", "service/...", "cmd/...", "lb/...", "xds/...", "overload/..."} {
		c.add(t, dir)
	}
	documented := map[string]bool{}
	for _, row := range rows(t, limits, "") {
		names := strings.Split(row[0], ", ")
		numbers := strings.Split(regexp.MustCompile(`, +`).ReplaceAllString(row[1], ";"), ";")
		if len(names) != len(numbers) {
			t.Errorf("%s has %d numbers", row[0], len(numbers))
			continue
		}
		for i, name := range names {
			name = strings.Trim(name, "`")
			documented[name] = true
			v := c.value(c[name])
			if v == nil {
				t.Errorf("%s is no constant of the code", name)
				continue
			}
			if got, _ := constant.Int64Val(v); got != number(t, numbers[i]) {
				t.Errorf("%s is %d, and not %s", name, got, numbers[i])
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if _, bare, _ := strings.Cut(name, "."); strings.HasPrefix(bare, "Max") && !documented[name] && !slices.Contains(unlisted, name) {
			t.Errorf("%s does not list the limit %s", limits, name)
		}
	}
}

// unlisted are limits that no user can reach: a smaller one applies first, or they are of policies.
var unlisted = []string{"store.MaxKeySize", "api.MaxRemoved", "policy.MaxFinishers"}

func TestEventsAreDocumented(t *testing.T) {
	text := section(t, events, "Events and logs")
	for _, e := range observe.EventTypes {
		if !strings.Contains(text, "`"+string(e)+"`") {
			t.Errorf("%s does not list the event %s", events, e)
		}
	}
}

// TestRoutesExist compares the paths that pages name with the contract.
func TestRoutesExist(t *testing.T) {
	var templates []*regexp.Regexp
	parameter := regexp.MustCompile(`\\\{[a-z]+\\\}`)
	calls := read(t, "docs/api.md")
	for _, m := range regexp.MustCompile(`(?m)^  (/[^:]*):$`).FindAllSubmatch(lbd.OpenAPI, -1) {
		pattern := parameter.ReplaceAllString(regexp.QuoteMeta(string(m[1])), `[^/]+`)
		templates = append(templates, regexp.MustCompile("^"+pattern+"$"))
		called := regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllStringFunc(string(m[1]), func(p string) string { return strings.ToUpper(p[1 : len(p)-1]) })
		if !regexp.MustCompile(regexp.QuoteMeta(called)+"[`?]").MatchString(calls) && !strings.HasSuffix(called, "/FILE") {
			t.Errorf("docs/api.md has no row for %s", called)
		}
	}
	if len(templates) < 10 {
		t.Fatalf("found only %d paths in the contract", len(templates))
	}
	named := regexp.MustCompile("(?:localhost:8080|[$]LBD|`(?:GET|PUT|POST|DELETE) )(/[^\\s?`'\"|]*)")
	for file, text := range pages(t) {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			path := strings.Map(func(r rune) rune { // jq's filter within a path has parentheses
				if r == '(' || r == ')' {
					return -1
				}
				return r
			}, m[1])
			if !slices.ContainsFunc(templates, func(p *regexp.Regexp) bool { return p.MatchString(path) }) {
				t.Errorf("%s names %s, which is not in the contract", file, m[1])
			}
		}
	}
}

// cluster decodes a part of a Cluster; one without type is an EDS cluster.
func cluster(part string) (*decode.Decoded, error) {
	if !strings.HasPrefix(part, "type") && !strings.HasPrefix(part, "cluster_type") {
		part = "type: EDS\n" + part
	}
	return decode.One(resource.TypeCluster, []byte(part), decode.Options{Format: decode.FormatYAML, Name: "orders"})
}

func TestUnsupportedIsRejected(t *testing.T) {
	for _, row := range rows(t, "docs/semantics.md", "What lbd rejects") {
		for _, span := range codeSpan.FindAllString(row[0], -1) {
			if span = strings.Trim(span, "`"); !strings.Contains(span, ":") {
				continue
			}
			if _, err := cluster(span); err == nil {
				t.Errorf("%s is not rejected any more", span)
			}
		}
	}
}

func TestPlannedIsNotSupportedYet(t *testing.T) {
	const file = "docs/semantics.md"
	line := regexp.MustCompile(`(?m)^Not there yet: (.*?)\. `).FindStringSubmatch(read(t, file))
	if line == nil {
		return // all is there
	}
	for _, name := range codeSpan.FindAllString(line[1], -1) {
		if _, ok := lb.Policies()[strings.Trim(name, "`")]; ok {
			t.Errorf("%s: %s is there now", file, name)
		}
	}
}

func TestConfigWithoutEffectGetsWarning(t *testing.T) {
	for _, row := range rows(t, "docs/semantics.md", "What has no effect") {
		span := strings.Trim(row[0], "`")
		field, _, _ := strings.Cut(span, ":")
		d, err := cluster(span)
		if err != nil {
			t.Errorf("%s: %v", span, err)
			continue
		}
		if !slices.ContainsFunc(d.Warnings, func(p decode.Problem) bool { return p.Field == field }) {
			t.Errorf("%s: no warning says that it has no effect, only %v", span, d.Warnings)
		}
	}
}
