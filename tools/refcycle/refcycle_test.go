package main

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/cycles.golden")

func TestOutput(t *testing.T) {
	const golden = "testdata/cycles.golden"
	var out strings.Builder
	if err := run([]string{"-C", "testdata/cycles", "-v", "-max", "1", "./..."}, &out); err == nil {
		t.Error("cycles above the limit are accepted")
	}
	if *update {
		if err := os.WriteFile(golden, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestExit(t *testing.T) {
	cases := map[string]struct {
		args []string
		want string // the error; empty: none
	}{
		"every cycle within the limit":          {[]string{"-max=3", "-small=5"}, ""},
		"more than half of a package":           {[]string{"-max=3", "-small=4"}, "cycles/members: 3 of 5 files form one cycle of references, more than half"},
		"more than half of two packages":        {[]string{"-max=3", "-small=3"}, "cycles/ring: 3 of 4 files"},
		"an exception":                          {[]string{"-max=3", "-small=4", "-except=members=3"}, ""},
		"an exception that is too small":        {[]string{"-max=3", "-small=4", "-except=members=2"}, "cycles/members: 3 of 5 files"},
		"an exception that is too large":        {[]string{"-max=3", "-small=4", "-except=members=4"}, "cycles/members: its exception of 4 files is too large for a cycle of 3"},
		"an exception that is not needed":       {[]string{"-max=3", "-small=5", "-except=members=3"}, "cycles/members: its exception"},
		"an exception of no package":            {[]string{"-max=3", "-small=5", "-except=absent=3"}, "absent: an exception of no package"},
		"a cycle above the limit":               {[]string{"-max=2"}, "example.org/cycles/ring: 3 files form one cycle of references, more than 2"},
		"a pattern that matches broken code":    {[]string{"./absent"}, "absent"},
		"two packages above the limit, by name": {[]string{"-max=1"}, "cycles/members: 3 files"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"-C", "testdata/cycles"}, c.args...)
			if !slices.Contains(args, "./absent") {
				args = append(args, "./...")
			}
			var out strings.Builder
			err := run(args, &out)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("failed: %v", err)
			case c.want != "" && err == nil:
				t.Errorf("passed, want %q; output:\n%s", c.want, out.String())
			case c.want != "" && !strings.Contains(err.Error(), c.want):
				t.Errorf("error %q, want %q", err, c.want)
			}
		})
	}
}

func TestLargestCycle(t *testing.T) {
	cases := map[string]struct {
		edges string // "a>b": file a refers to file b
		want  string
	}{
		"no file":                             {"", ""},
		"one file":                            {"a", "a"},
		"a chain":                             {"a>b b>c", "a"},
		"a ring":                              {"a>b b>c c>a", "a b c"},
		"two rings of one size":               {"c>d d>c a>b b>a b>c", "a b"},
		"the larger of two rings":             {"a>b b>a b>c c>d d>e e>c", "c d e"},
		"two rings that share a file":         {"a>b b>a b>c c>b", "a b c"},
		"a ring entered in the middle":        {"a>c b>c c>d d>b", "b c d"},
		"a shortcut within a ring":            {"a>b b>c c>d d>a b>d", "a b c d"},
		"a ring that leads to a ring already": {"b>c c>b a>b d>a a>d", "a d"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := graph{}
			for edge := range strings.FieldsSeq(c.edges) {
				from, to, _ := strings.Cut(edge, ">")
				for _, file := range []string{from, to} {
					if file != "" && g[file] == nil {
						g[file] = map[string]bool{}
					}
				}
				if to != "" {
					g[from][to] = true
				}
			}
			if got := strings.Join(g.largestCycle(), " "); got != c.want {
				t.Errorf("largest cycle %q, want %q", got, c.want)
			}
		})
	}
}
