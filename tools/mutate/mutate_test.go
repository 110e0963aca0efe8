package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	o := options{dir: "testdata/clamp", n: 9, seed: 1, timeout: time.Minute}
	if err := run(o, []string{"./..."}, &out); err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`\([0-9.]+m?s`).ReplaceAllString(out.String(), "(1s")
	lines := strings.SplitAfter(strings.TrimSpace(got)+"\n", "\n")
	if lines[0] != "seed 1: 3 of 3 possible mutants\n" || lines[len(lines)-2] != "2 killed, 1 survived\n" {
		t.Errorf("first and last line: %q, %q", lines[0], lines[len(lines)-2])
	}
	for _, want := range []string{
		"killed    clamp.go:6: condition negated\n\t- if n > most {\n\t+ if !(n > most) { (1s, own tests)\n",
		"SURVIVED  clamp.go:6: > becomes >=\n\t- if n > most {\n\t+ if n >= most { (1s)\n",
		"killed    clamp.go:13: + becomes -\n\t- func Double(n int) int { return n + n }\n\t+ func Double(n int) int { return n - n } (1s, tests of importers)\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("output lacks %q:\n%s", want, got)
		}
	}
}

func TestMutants(t *testing.T) {
	cases := map[string]struct {
		body string
		want []string // what each mutant of it replaces by what
	}{
		"comparison in a condition": {"if a < 1 {}", []string{"a < 1: !(a < 1)", "<: <=", "1: 2"}},
		"equality is negated once":  {"if a == b {}", []string{"==: !="}},
		"conjunction":               {"_ = x && y", []string{"_ = x && y: ", "&&: ||"}},
		"sum":                       {"a += b - 0", []string{"a += b - 0: ", "+=: -=", "-: +", "0: 1"}},
		"loop":                      {"for x {a++}", []string{"x: !(x)", "a++: ", "++: --"}},
		"boolean":                   {"b := true", []string{"true: false"}},
		"calls, not log lines":      {"f(); s.logger.Info(`x`); l.Error()", []string{"f(): ", "l.Error(): "}},
		"statements of a case":      {"switch { case x: break }", []string{"break: "}},
		"statements of a channel":   {"select { case <-c: c <- s }", []string{"c <- s: "}},
		"defer, not a declaration":  {"var a = s; defer a()", []string{"defer a(): "}},
		"error":                     {"return a, err", []string{"err: nil"}},
		"error in another function": {"go func() int { return x }(); return a, nil", []string{"go func() int { return x }(): "}},
		"results of a call":         {"return f()", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "a.go")
			if err := os.WriteFile(file, []byte("package a\nfunc g() (int, error) {\n"+c.body+"\n}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			mutants, err := mutate(file)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range mutants {
				got = append(got, string(m.source[m.from:m.to])+": "+m.text)
				if m.line != 3 {
					t.Errorf("line %d, want 3", m.line)
				}
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if !slices.Equal(got, c.want) {
				t.Errorf("mutants %q, want %q", got, c.want)
			}
		})
	}
}
