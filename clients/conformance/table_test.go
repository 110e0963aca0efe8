package conformance

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

const resultsFile = "RESULTS.md"

// table is RESULTS.md: what each client came to in each scenario.
type table struct {
	mu      sync.Mutex
	cells   map[string]map[string]string // by client and scenario
	reasons []reason
}

// reason is why a client does not play a scenario.
type reason struct{ client, scenario, what, why string }

const (
	passed      = "yes"
	partly      = "in part"
	unsupported = "no"
)

// add adds the result of one play.
func (t *table) add(client, adapter, scenario, mode, result, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cells[client] == nil {
		t.cells[client] = make(map[string]string)
	}
	switch before := t.cells[client][scenario]; {
	case before == "" || before == result:
		t.cells[client][scenario] = result
	default:
		t.cells[client][scenario] = partly
	}
	if why != "" {
		t.reasons = append(t.reasons, reason{client, scenario, adapter + ", " + mode, why})
	}
}

const resultsHead = `# Results

Written by ` + "`make test-clients UPDATE=1`" + `. *in part*: not with each adapter or mode of the client. The reasons are below.

`

// text writes the table. Reasons that are the same are joined.
func (t *table) text(all []scenario) string {
	var b strings.Builder
	b.WriteString(resultsHead)
	names := sorted(t.cells)
	fmt.Fprintf(&b, "| scenario | %s |\n|%s\n", strings.Join(names, " | "), strings.Repeat(" --- |", len(names)+1))
	for _, s := range all {
		fmt.Fprintf(&b, "| %s |", s.Name)
		for _, name := range names {
			fmt.Fprintf(&b, " %s |", cmp.Or(t.cells[name][s.Name], "–"))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n## What the scenarios show\n\n| scenario | what it shows |\n| --- | --- |\n")
	for _, s := range all {
		fmt.Fprintf(&b, "| %s | %s |\n", s.Name, s.About)
	}
	b.WriteString("\n## Not supported\n\n| client | scenario | adapter, mode | reason |\n| --- | --- | --- | --- |\n")
	for _, r := range t.joined() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.client, r.scenario, r.what, r.why)
	}
	return b.String()
}

func (t *table) joined() (all []reason) {
	what := make(map[reason][]string)
	for _, r := range t.reasons {
		key := reason{r.client, r.scenario, "", r.why}
		what[key] = append(what[key], r.what)
	}
	for r, list := range what {
		slices.Sort(list)
		r.what = strings.Join(slices.Compact(list), "; ")
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b reason) int {
		return cmp.Or(cmp.Compare(a.client, b.client), cmp.Compare(a.scenario, b.scenario), cmp.Compare(a.what, b.what))
	})
	return all
}

func sorted[V any](m map[string]V) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// read reads what text has written.
func read(path string) (*table, error) {
	t := &table{cells: make(map[string]map[string]string)}
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	var clients []string
	part := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "## ") {
			part++
		}
		inner, ok := strings.CutPrefix(line, "| ")
		if !ok || strings.HasPrefix(inner, "---") {
			continue
		}
		fields := strings.Split(strings.TrimSuffix(inner, " |"), " | ")
		switch {
		case part == 0 && clients == nil:
			clients = fields[1:]
			for _, c := range clients {
				t.cells[c] = make(map[string]string)
			}
		case part == 0 && len(fields) == len(clients)+1:
			for i, c := range clients {
				t.cells[c][fields[0]] = fields[i+1]
			}
		case part == 2 && len(fields) == 4 && fields[0] != "client":
			t.reasons = append(t.reasons, reason{fields[0], fields[1], fields[2], fields[3]})
		}
	}
	return t, nil
}

// compare compares the results of clients that played everything, and failed nothing, with
// RESULTS.md, which it writes instead if update is set. The results of other clients stay
// as they are there.
func (t *table) compare(test *testing.T, all []scenario, complete []string, update bool) {
	test.Helper()
	before, err := read(resultsFile)
	if err != nil {
		test.Fatal(err)
	}
	was := before.text(all)
	for _, name := range complete {
		before.cells[name] = t.cells[name]
		before.reasons = slices.DeleteFunc(before.reasons, func(r reason) bool { return r.client == name })
		for _, r := range t.reasons {
			if r.client == name {
				before.reasons = append(before.reasons, r)
			}
		}
	}
	is := before.text(all)
	if update {
		if err := os.WriteFile(resultsFile, []byte(is), 0o644); err != nil {
			test.Fatal(err)
		}
		return
	}
	if is != was {
		test.Errorf("%s is not what the clients do (make test-clients UPDATE=1 writes it); with these results it is\n%s", resultsFile, is)
	}
}
