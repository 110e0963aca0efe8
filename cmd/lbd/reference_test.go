package main

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/lbd-dev/lbd/cmd/lbd/reference"
)

// output returns the standard output of lbd.
func output(t *testing.T, args ...string) string {
	t.Helper()
	out, err := command(args...).Output()
	if err != nil {
		t.Fatalf("lbd %q: %v", args, err)
	}
	return string(out)
}

// TestReferenceIsComplete: completions and the manual page have all commands and flags.
func TestReferenceIsComplete(t *testing.T) {
	t.Parallel()
	texts := map[string]string{"man": strings.ReplaceAll(output(t, "man"), `\-`, "-")}
	for _, shell := range reference.Shells {
		texts[shell] = output(t, "completion", shell)
	}
	var check func(*kong.Node, string)
	check = func(node *kong.Node, path string) {
		for name, text := range texts {
			if !strings.Contains(text, path) {
				t.Errorf("%s does not have %s", name, path)
			}
			for _, flag := range node.Flags {
				form := "--" + flag.Name
				if name == "fish" {
					form = "-l " + flag.Name
				}
				if !flag.Hidden && !strings.Contains(text, form) {
					t.Errorf("%s does not have %s of %s", name, form, path)
				}
				for _, v := range flag.Envs {
					if name == "man" && !strings.Contains(text, v) {
						t.Errorf("the manual page does not have the variable %s", v)
					}
				}
			}
		}
		for _, child := range node.Children {
			if !child.Hidden {
				check(child, path+" "+child.Name)
			}
		}
	}
	check(kong.Must(new(cli), kong.Name("lbd")).Model.Node, "lbd")
	expectFailure(t, command("completion", "tcsh"), `"tcsh"`)
}

// completions are command lines, and what completes them, in a directory with the file orders.yaml.
var completions = map[string]string{
	"lbd c":                            "check ctl completion",
	"lbd ctl ge":                       "get",
	"lbd ctl -o name get ":             "clusters targets endpoints",
	"lbd ctl get en":                   "endpoints",
	"lbd ctl get --outp":               "--output",
	"lbd ctl get --output = j":         "json",
	"lbd ctl -o ":                      "table json yaml name",
	"lbd ctl --context get ":           "get pick explain diff push delete drain undrain weight overlays reconnect history restore leases fleet bench top watch context",
	"lbd ctl push endpoints orders or": "orders.yaml",
	"lbd ctl --token-file or":          "orders.yaml",
	"lbd ctl --url or":                 "",
	"lbd --log-level w":                "warn",
	"lbd completion ":                  "bash zsh fish",
}

// TestBashCompletion completes command lines with a real bash.
func TestBashCompletion(t *testing.T) {
	t.Parallel()
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	script := output(t, "completion", "bash")
	dir := t.TempDir()
	writeFile(t, dir+"/orders.yaml", nil)
	for line, want := range completions {
		words := strings.Split(line, " ")
		cmd := exec.CommandContext(t.Context(), shell, append([]string{"--norc", "-c", script +
			"\nCOMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)); _lbd; echo \"${COMPREPLY[*]}\"", "bash"}, words...)...)
		cmd.Dir = dir
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != want || stderr.Len() > 0 {
			t.Errorf("%q: %v: %q, want %q\n%s", line, err, got, want, stderr.String())
		}
	}
}

// TestFishCompletion completes command lines with a real fish.
func TestFishCompletion(t *testing.T) {
	t.Parallel()
	shell, err := exec.LookPath("fish")
	if err != nil {
		t.Skip("fish is not installed")
	}
	dir := t.TempDir()
	writeFile(t, dir+"/orders.yaml", nil)
	writeFile(t, dir+"/lbd.fish", []byte(output(t, "completion", "fish")))
	for line, want := range completions {
		if strings.Contains(line, " = ") { // only bash splits words at =
			continue
		}
		cmd := exec.CommandContext(t.Context(), shell, "--no-config", "-c", "source lbd.fish; complete -C $argv[1]", line)
		cmd.Dir = dir
		out, err := cmd.Output()
		var got []string
		for one := range strings.Lines(string(out)) {
			word, _, _ := strings.Cut(strings.TrimSpace(one), "\t")
			got = append(got, word)
		}
		if all := strings.Fields(want); err != nil || !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(all))) {
			t.Errorf("%q: %v: %q, want %q", line, err, got, want)
		}
	}
}

// TestShellsAcceptCompletions: other shells read the completions, if they are installed.
func TestShellsAcceptCompletions(t *testing.T) {
	t.Parallel()
	for _, shell := range reference.Shells {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skip(shell + " is not installed")
			}
			file := t.TempDir() + "/completions"
			writeFile(t, file, []byte(output(t, "completion", shell)))
			if out, err := exec.CommandContext(t.Context(), path, "-n", file).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s -n: %v: %s", shell, err, out)
			}
		})
	}
}

// TestManualPage: groff has nothing to say about it, if it is installed.
func TestManualPage(t *testing.T) {
	t.Parallel()
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is not installed")
	}
	cmd := exec.CommandContext(t.Context(), groff, "-man", "-Tascii", "-ww", "-z")
	cmd.Stdin = strings.NewReader(output(t, "man"))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("groff: %v: %s", err, out)
	}
}
