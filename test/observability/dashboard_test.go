package observability_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dashboard has the tested fields of Grafana's classic dashboard model.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Panels        []panel
	Annotations   struct {
		List []struct {
			Name, Expr, Step string
			BuiltIn          int
			Enable           bool
			Datasource       datasource
		}
	}
	Templating struct{ List []variable }
}

type datasource struct{ Type, UID string }

type variable struct {
	Name, Type, Definition, AllValue string
	IncludeAll, Multi                bool
	Query                            json.RawMessage
	Datasource                       datasource
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               datasource
	GridPos                  struct{ H, W, X, Y int }
	FieldConfig              struct {
		Defaults  struct{ Unit string }
		Overrides []struct {
			Matcher    struct{ ID, Options string }
			Properties []struct {
				ID    string
				Value json.RawMessage
			}
		}
	}
	Transformations []struct {
		Options struct{ RenameByName map[string]string }
	}
	Targets []target
}

type target struct {
	RefID, Expr, Format, LegendFormat string
	Instant, Range                    bool
	Datasource                        datasource
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	must(t, json.Unmarshal([]byte(read(t, "deploy/grafana/lbd.json")), &d))
	if len(d.Panels) < 20 {
		t.Fatalf("the dashboard has %d panels", len(d.Panels))
	}
	return d
}

// prometheusSource is the Prometheus that the user chooses.
var prometheusSource = datasource{Type: "prometheus", UID: "${datasource}"}

func TestPanels(t *testing.T) {
	d := readDashboard(t)
	if d.UID != "lbd" || d.Title != "lbd" || d.SchemaVersion != 42 {
		t.Errorf("uid %q, title %q, schema %d", d.UID, d.Title, d.SchemaVersion)
	}
	ids, titles := map[int]bool{}, map[string]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID <= 0 || p.Title == "" || p.Type != "row" && titles[p.Title] {
			t.Errorf("panel %d %q: the ID or title is missing, or not unique", p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, titles[p.Title] || p.Type != "row"
		if p.Type == "row" {
			continue
		}
		if p.Datasource != prometheusSource {
			t.Errorf("%s: data source %v", p.Title, p.Datasource)
		}
		if p.FieldConfig.Defaults.Unit == "" {
			t.Errorf("%s has no unit", p.Title)
		}
		if !strings.Contains(p.Description, "?") {
			t.Errorf("%s answers no question: %q", p.Title, p.Description)
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if refs[q.RefID] || q.RefID == "" || q.Datasource != prometheusSource || q.Instant == q.Range {
				t.Errorf("%s: query %q twice, of %v, instant %v, range %v", p.Title, q.RefID, q.Datasource, q.Instant, q.Range)
			}
			refs[q.RefID] = true
			if strings.HasSuffix(q.Expr, "or vector(0)") {
				t.Errorf("%s/%s is 0 without any lbd, which looks good", p.Title, q.RefID)
			}
			if (p.Type == "table") != (q.Format == "table") || p.Type == "table" && !q.Instant {
				t.Errorf("%s/%s: tables, and no other panels, need instant queries with format table", p.Title, q.RefID)
			}
			if p.Type == "timeseries" || p.Type == "state-timeline" {
				checkLegend(t, p, q)
			}
		}
		if len(p.Targets) == 0 {
			t.Errorf("%s has no query", p.Title)
		}
	}
}

// checkLegend checks that the query returns the labels of the legend.
func checkLegend(t *testing.T, p panel, q target) {
	t.Helper()
	if q.LegendFormat == "" {
		t.Errorf("%s/%s has no legend", p.Title, q.RefID)
	}
	for _, l := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(q.LegendFormat, -1) {
		if l[1] == "instance" && !strings.Contains(q.Expr, " by ") {
			continue // every series has it
		}
		if !regexp.MustCompile(`by \([^)]*\b` + l[1] + `\b[^)]*\)`).MatchString(q.Expr) {
			t.Errorf("%s/%s: the series have no label %s for the legend", p.Title, q.RefID, l[1])
		}
	}
}

func TestPanelsDoNotOverlap(t *testing.T) {
	const columns = 24
	taken := map[[2]int]string{}
	for _, p := range readDashboard(t).Panels {
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X < 0 || g.Y < 0 || g.X+g.W > columns {
			t.Errorf("%s is at %+v", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s overlaps %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// dashboardQueries returns all queries of the dashboard by name.
func dashboardQueries(d dashboard) map[string]string {
	queries := map[string]string{}
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			queries[p.Title+"/"+q.RefID] = q.Expr
		}
	}
	for _, a := range d.Annotations.List {
		if a.BuiltIn == 0 {
			queries["annotation "+a.Name] = a.Expr
		}
	}
	return queries
}

// fill replaces Grafana's variables. An empty instance or cluster means all.
func fill(expr, instance, cluster, window string) string {
	value := func(s string) string {
		return cmp.Or(strings.ReplaceAll(regexp.QuoteMeta(s), `\`, `\\`), ".*")
	}
	return strings.NewReplacer("$instance", value(instance), "$cluster", value(cluster), "$__rate_interval", window).Replace(expr)
}

// units are the units of queries: of the first pattern that matches.
var units = []struct{ pattern, unit string }{
	{`histogram_quantile|rate\(lbd_[a-z_]*_seconds_total|time\(\) - |lbd_store_behind_seconds`, "s"},
	{`\) / |lbd_drop_ratio|lbd_endpoint_share`, "percentunit"},
	{`_bytes`, "bytes"},
	{`rate\(lbd_(picks|reported_requests|circuit_breaker_rejections|http_requests)_total`, "reqps"},
	{`rate\(lbd_`, "ops"},
	{``, "none"},
}

// TestUnits compares the unit of each panel, and of each column of a table, with its query.
func TestUnits(t *testing.T) {
	for _, p := range readDashboard(t).Panels {
		for i, q := range p.Targets {
			got := p.FieldConfig.Defaults.Unit
			if p.Type == "table" {
				got = p.columnUnit(t, "Value #"+q.RefID)
			} else if i > 0 {
				continue // has the axis of the first
			}
			i := slices.IndexFunc(units, func(u struct{ pattern, unit string }) bool { return regexp.MustCompile(u.pattern).MatchString(q.Expr) })
			if want := units[i].unit; got != want {
				t.Errorf("%s/%s: unit %s, want %s", p.Title, q.RefID, got, want)
			}
		}
	}
}

// columnUnit returns the unit of a table's column.
func (p panel) columnUnit(t *testing.T, column string) string {
	t.Helper()
	name := column
	for _, tr := range p.Transformations {
		if to := tr.Options.RenameByName[column]; to != "" {
			name = to
		}
	}
	for _, o := range p.FieldConfig.Overrides {
		for _, property := range o.Properties {
			if o.Matcher.Options == name && property.ID == "unit" {
				var unit string
				must(t, json.Unmarshal(property.Value, &unit))
				return unit
			}
		}
	}
	return p.FieldConfig.Defaults.Unit
}

// TestQueriesParse checks the queries with promtool, as rules.
func TestQueriesParse(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	n := 0
	for name, expr := range dashboardQueries(readDashboard(t)) {
		expr = fill(expr, "", "", "1m")
		if strings.Contains(expr, "$") {
			t.Errorf("%s has an unknown variable: %s", name, expr)
		}
		quoted, err := json.Marshal(expr)
		must(t, err)
		fmt.Fprintf(&rules, "  - record: dashboard:query:%d # %s\n    expr: %s\n", n, name, quoted)
		n++
	}
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	writeFile(t, file, rules.String())
	promtool(t, "check", "rules", file)
}

func TestDashboardReadsMetricsThatExist(t *testing.T) {
	for name, expr := range dashboardQueries(readDashboard(t)) {
		for _, m := range metricsOf(t, name, expr) {
			if strings.Contains(m, ":") {
				t.Errorf("%s reads %s: the dashboard must work without the rules", name, m)
			}
		}
	}
}

// TestVariables: the user can choose the instances and clusters of all panels; the default is
// all.
func TestVariables(t *testing.T) {
	d := readDashboard(t)
	want := map[string]string{"datasource": "datasource", "instance": "query", "cluster": "query"}
	for _, v := range d.Templating.List {
		if want[v.Name] != v.Type {
			t.Errorf("variable %s is of type %s", v.Name, v.Type)
		}
		delete(want, v.Name)
		if v.Type == "query" && (!v.Multi || !v.IncludeAll || v.AllValue != ".*" || v.Datasource != prometheusSource || !strings.Contains(string(v.Query), "label_values(")) {
			t.Errorf("variable %s: %+v", v.Name, v)
		}
	}
	if len(want) > 0 {
		t.Errorf("there are no variables %v", want)
	}
	for name, expr := range dashboardQueries(d) {
		for _, selector := range regexp.MustCompile(`(?:lbd|go|process)_\w+(\{[^}]*\})?`).FindAllStringSubmatch(expr, -1) {
			if selector[0] != "lbd_build_info" && !strings.Contains(selector[1], `instance=~"$instance"`) {
				t.Errorf("%s: %s has no instance", name, selector[0])
			}
		}
		if strings.Contains(expr, "cluster) (") && !strings.Contains(expr, `cluster=~"$cluster"`) {
			t.Errorf("%s has no cluster", name)
		}
	}
}
