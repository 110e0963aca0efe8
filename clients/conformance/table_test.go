package conformance

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

const resultsFile = "RESULTS.md"

// results are what the plays came to.
type results struct {
	mu    sync.Mutex
	plays []result
}

// result is that of one play; unsupported is the reason of a client, empty if it passed.
type result struct{ client, adapter, scenario, mode, unsupported string }

func (r *results) add(one result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plays = append(r.plays, one)
}

// table is RESULTS.md.
type table struct {
	cells   map[string]map[string]string // by client and scenario
	reasons []reason
}

// reason is why a client does not play some scenarios with some adapters and modes.
type reason struct{ client, scenarios, what, why string }

// table returns the part of a client.
func (r *results) table(client string, all []scenario) table {
	t := table{cells: map[string]map[string]string{client: {}}}
	what := make(map[reason][]string) // adapters and modes, by scenario and reason
	for _, s := range all {
		var passed, not []string // modes
		for _, one := range r.plays {
			switch {
			case one.client != client || one.scenario != s.Name:
			case one.unsupported == "":
				passed = append(passed, one.mode)
			default:
				not = append(not, one.mode)
				key := reason{client: client, scenarios: s.Name, why: one.unsupported}
				what[key] = append(what[key], one.adapter+" "+one.mode)
			}
		}
		t.cells[client][s.Name] = cell(passed, not)
	}
	names := make(map[reason][]string) // scenarios, by adapters and modes and reason
	for key, list := range what {
		name := key.scenarios
		key.scenarios, key.what = "", strings.Join(slices.Compact(slices.Sorted(slices.Values(list))), ", ")
		names[key] = append(names[key], name)
	}
	for key, list := range names {
		key.scenarios = strings.Join(slices.Sorted(slices.Values(list)), ", ")
		t.reasons = append(t.reasons, key)
	}
	return t
}

// cell says in which modes a client plays a scenario.
func cell(passed, not []string) string {
	switch {
	case len(not) == 0:
		return "yes"
	case len(passed) == 0:
		return "no"
	case slices.ContainsFunc(passed, func(mode string) bool { return slices.Contains(not, mode) }):
		return "in part" // with some adapters
	}
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(passed))), ", ")
}

const resultsHead = `# Results

Written by ` + "`make test-clients UPDATE=1`" + `.

A mode in place of *yes*: the client plays the scenario in this mode only. *in part*: not with each of its adapters. The
reasons are below.

`

// text writes the table.
func (t table) text(all []scenario) string {
	var b strings.Builder
	b.WriteString(resultsHead)
	names := slices.Sorted(maps.Keys(t.cells))
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
	b.WriteString("\n## Not supported\n\n| client | adapter, mode | reason | scenarios |\n| --- | --- | --- | --- |\n")
	slices.SortFunc(t.reasons, func(a, b reason) int {
		return cmp.Or(cmp.Compare(a.client, b.client), cmp.Compare(a.what, b.what), cmp.Compare(a.why, b.why))
	})
	for _, r := range t.reasons {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.client, r.what, r.why, r.scenarios)
	}
	return b.String()
}

// read reads what text has written.
func read(text string) table {
	t := table{cells: make(map[string]map[string]string)}
	var clients []string
	part := 0
	for line := range strings.Lines(text) {
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
			t.reasons = append(t.reasons, reason{fields[0], fields[3], fields[1], fields[2]})
		}
	}
	return t
}

// compare compares the results of clients that played everything, and failed nothing, with
// RESULTS.md, or writes them there. Those of other clients stay as they are there.
func (r *results) compare(t *testing.T, all []scenario, complete []string, update bool) {
	t.Helper()
	if complete == nil {
		return
	}
	was, err := os.ReadFile(resultsFile)
	if err != nil && (!update || !os.IsNotExist(err)) {
		t.Fatal(err)
	}
	is := read(string(was))
	for _, name := range complete {
		own := r.table(name, all)
		is.cells[name] = own.cells[name]
		is.reasons = slices.DeleteFunc(is.reasons, func(r reason) bool { return r.client == name })
		is.reasons = append(is.reasons, own.reasons...)
	}
	text := is.text(all)
	if update {
		if err := os.WriteFile(resultsFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text != string(was) {
		t.Errorf("%s is not what the clients do (make test-clients UPDATE=1 writes it); with these results it is\n%s", resultsFile, text)
	}
}
