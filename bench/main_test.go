package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/bench/stat"
)

// TestMain is also the program that rows start in a role.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], roleFlag) {
		if err := command(context.Background(), os.Args[1:], os.Stdout, slog.New(slog.DiscardHandler)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestBrief runs each row for a moment. Of each, the comparisons with peers that are
// installed must have figures; those that are not must be named.
func TestBrief(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	args := []string{"-brief", "-json=" + file}
	for flag, variable := range map[string]string{"-lbd=": "LBD_TEST_DAEMON", "-peers=": "LBD_BENCH_PEERS"} {
		if v := os.Getenv(variable); v != "" {
			args = append(args, flag+v)
		}
	}
	var out strings.Builder
	if err := command(t.Context(), args, &out, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rep report
	if err := json.Unmarshal(text, &rep); err != nil {
		t.Fatal(err)
	}
	measured := make(map[string]bool)
	for _, l := range rep.Lines {
		measured[l.Row+"/"+l.Figure+"/"+l.Over] = true
		if l.Value.N == 0 {
			t.Errorf("%s: %s has no value", l.Row, l.Figure)
		}
	}
	missing := strings.ToLower(strings.Join(rep.NotRun, " "))
	for _, r := range rows() {
		for _, c := range r.comparisons {
			if key := r.name + "/" + c.figure + "/" + c.over; !measured[key] && (c.over == "" || !strings.Contains(missing, strings.ToLower(c.over))) {
				t.Errorf("%s is not measured", key)
			}
		}
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; len(rep.NotRun) > 0 && !strings.HasPrefix(last, "not run: ") {
		t.Errorf("the last line does not name what was not run: %s", last)
	}
	t.Log(lines[len(lines)-1])
}

func TestList(t *testing.T) {
	var out strings.Builder
	if err := command(t.Context(), []string{"-list"}, &out, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != len(rows()) || !strings.Contains(out.String(), "grpc-go, lbd, lean") {
		t.Errorf("%d lines of %d rows:\n%s", n, len(rows()), out.String())
	}
}

func TestInvalidFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-runs=0"}, {"-rounds=1000"}, {"-measure=1h"}, {"-leases=0"}, {"-clusters=1000000000"}, {"-rows=("}, {"-unknown"}, {"-role=cook"}, {"-role=bare", "tcp"},
	} {
		if err := command(t.Context(), args, new(strings.Builder), slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}

func TestRowNames(t *testing.T) {
	seen := make(map[string]bool)
	for _, r := range rows() {
		if seen[r.name] || r.name == "" || r.work == "" || len(r.comparisons) == 0 {
			t.Errorf("row %q is there twice, or has no text or no comparison", r.name)
		}
		seen[r.name] = true
	}
}

// TestSubjectsTakeTurns: each round begins with another subject, and each run starts them
// again.
func TestSubjectsTakeTurns(t *testing.T) {
	var order strings.Builder
	starts, stops := 0, 0
	r := row{
		name: "turns",
		start: func(context.Context, *bench) (*running, error) {
			starts++
			s := &running{derive: func(round map[string]figures) { round["a"]["sum"] = round["a"]["x"] + round["b"]["x"] }}
			s.onStop(func() { stops++ })
			for _, name := range []string{"a", "b"} {
				s.add(name, func(context.Context) (figures, error) {
					order.WriteString(name)
					return figures{"x": float64(order.Len())}, nil
				})
			}
			return s, nil
		},
		comparisons: []comparison{
			{"x", "a", "b", bound{atMost, 1}}, {"sum", "a", "", bound{atLeast, 4}}, {"x", "a", "missing", bound{}},
		},
	}
	res, err := r.run(t.Context(), &bench{runs: 2, rounds: 2}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if got := order.String(); got != "abbabaab" || starts != 2 || stops != 2 {
		t.Errorf("order %s, %d starts, %d stops", got, starts, stops)
	}
	lines := res.lines()
	if len(lines) != 2 || *lines[0].Ratio != (stat.Summary{Median: (7.0/8 + 6.0/5) / 2, Low: 0.5, High: 4.0 / 3, N: 4}) {
		t.Fatalf("%+v, ratio %+v", lines, lines[0].Ratio)
	}
	if *lines[0].Reached || !*lines[1].Reached {
		t.Errorf("%+v", lines)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 0.1234: "0.123", 12.34: "12.3", 999.6: "1,000", 1234567: "1,230,000", -5.5: "-5.5", 1e-9: "0",
	} {
		if got := number(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
	if got := exact(1024); got != "1,024" {
		t.Errorf("1024 is %q", got)
	}
}

func TestTable(t *testing.T) {
	yes := true
	var out strings.Builder
	err := table(&out, []line{
		{Row: "a", Work: "work", Figure: "f", Of: subjectLBD, Over: "peer", Value: stat.Summary{Median: 2, N: 1}, Peer: &stat.Summary{Median: 4, N: 1}, Ratio: &stat.Summary{Median: 0.5, Low: 0.4, High: 0.6, N: 1}, Bound: "≤ 1", Reached: &yes},
		{Row: "a", Work: "work", Figure: "g", Of: "other", Value: stat.Summary{Median: 3, Low: 3, High: 3, N: 1}},
	})
	want := "| a | work | f | 2 | peer 4 | 0.5 (0.4 to 0.6) | ≤ 1 | yes |\n| a | ″ | other: g | 3 |  | 3 (3 to 3) | – |  |\n"
	if err != nil || !strings.HasSuffix(out.String(), want) {
		t.Errorf("error %v:\n%s", err, out.String())
	}
}

func TestVersion(t *testing.T) {
	for text, want := range map[string]string{
		"nginx version: nginx/1.22.1\n": "1.22.1", "HAProxy version 2.6.12-1+deb12u1 2024": "2.6.12", "nothing": "unknown",
	} {
		if got := version(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
