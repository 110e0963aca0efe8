package main

import (
	"bytes"
	"os"
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
	man := strings.ReplaceAll(output(t, "man"), `\-`, "-")
	app := kong.Must(new(cli), kong.Name("lbd")).Model
	completes := func(path, word, want string) {
		t.Helper()
		all := reference.Complete(app, append(strings.Fields(path), word)).Words
		if !slices.ContainsFunc(all, func(one [2]string) bool { return one[0] == want && one[1] != "" }) {
			t.Errorf("%s is not completed with %s and its help", path, want)
		}
	}
	var check func(*kong.Node, string)
	check = func(node *kong.Node, path string) {
		if !strings.Contains(man, path) {
			t.Errorf("the manual page does not have %s", path)
		}
		for _, flag := range node.Flags {
			if flag.Hidden {
				continue
			}
			completes(path, "--", "--"+flag.Name)
			for _, text := range append(flag.Envs, "--"+flag.Name) {
				if !strings.Contains(man, text) {
					t.Errorf("the manual page does not have %s of %s", text, path)
				}
			}
		}
		for _, child := range node.Children {
			if !child.Hidden {
				completes(path, "", child.Name)
				check(child, path+" "+child.Name)
			}
		}
	}
	check(app.Node, "lbd")
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
	// Names of a running daemon.
	"lbd ctl --url URL get endpoints ord":       "orders",
	"lbd ctl --url URL drain orders 10.0.0.1":   "10.0.0.1:80",
	"lbd ctl --url URL overlays delete orders ": "drain-1",
	"lbd ctl --url URL leases --cluster ord":    "orders",
	"lbd ctl --url URL leases --cluster = ord":  "orders",
	"lbd ctl --url URL explain un":              "",       // a shell would expand it
	"lbd ctl --url URL explain ":                "orders", // and no name that would be a flag
	"lbd ctl context use ":                      "prod",
	"lbd ctl --context p":                       "prod",
	"lbd ctl --url http://127.0.0.1:1 drain ":   "",
}

// completing starts a daemon with names. It returns its URL, and the environment of a shell that finds lbd and a context.
func completing(t *testing.T, dir string) (url string, env []string) {
	t.Helper()
	p := startProcess(t, "--data=", "--connect=none")
	do(t, "PUT", p.url+"/v1/clusters/orders/endpoints", "10.0.0.1:80\n10.9.0.2:80\n")
	do(t, "PUT", p.url+"/v1/clusters/un$(reboot)/endpoints", "10.0.0.1:80\n")
	do(t, "PUT", p.url+"/v1/clusters/--force/endpoints", "10.0.0.1:80\n")
	do(t, "PUT", p.url+"/v1/clusters/orders/overlays/drain-1", `{"kind": "drain", "endpoint": "10.0.0.1:80"}`)
	self := command("ctl", "context", "set", "prod", "--url="+p.url)
	if err := os.Symlink(self.Path, dir+"/lbd"); err != nil {
		t.Fatal(err)
	}
	self.Env = append(self.Env, "LBD_TEST_MAIN="+withInput, "XDG_CONFIG_HOME="+dir+"/config", "PATH="+dir+":"+os.Getenv("PATH"))
	self.Stdin = nil
	if out, err := self.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return p.url, self.Env
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
	url, env := completing(t, t.TempDir())
	for line, want := range completions {
		// bash splits words at colons.
		words := strings.Split(strings.ReplaceAll(strings.ReplaceAll(line, "URL", url), ":", " : "), " ")
		cmd := exec.CommandContext(t.Context(), shell, append([]string{"--norc", "-c", script +
			"\nCOMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)); _lbd; echo \"${COMPREPLY[*]}\"", "bash"}, words...)...)
		cmd.Dir, cmd.Env = dir, env
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != want || stderr.Len() > 0 {
			t.Errorf("%q: %v: %q, want %q\n%s", line, err, got, want, stderr.String())
		}
	}
}

// zshBuiltins are what a script has of zsh only while it completes: they print what begins like the word.
const zshBuiltins = `
compdef() {}
compset() { PREFIX=${PREFIX#*=} }
compadd() { shift; local -a all=(${(M)@:#${PREFIX}*}); ((${#all})) && print -l -- $all }
_describe() { local -a words=(${${(P)2}//\\:/|}); compadd -- ${${words%%:*}//|/:} }
_files() { compadd -- *(N) }
`

// TestZshCompletion calls the function of the completions in a real zsh.
func TestZshCompletion(t *testing.T) {
	t.Parallel()
	shell, err := exec.LookPath("zsh")
	if err != nil {
		t.Skip("zsh is not installed")
	}
	script := zshBuiltins + output(t, "completion", "zsh")
	dir := t.TempDir()
	writeFile(t, dir+"/orders.yaml", nil)
	url, env := completing(t, t.TempDir())
	for line, want := range completions {
		line = strings.ReplaceAll(strings.ReplaceAll(line, "URL", url), " = ", "=")
		cmd := exec.CommandContext(t.Context(), shell, append([]string{"-f", "-c", script +
			"\nwords=(\"$@\") CURRENT=$#; PREFIX=${words[-1]}; _lbd", "zsh"}, strings.Split(line, " ")...)...)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		got, all := strings.Fields(string(out)), strings.Fields(want)
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(all))) {
			t.Errorf("%q: %v: %q, want %q", line, err, got, want)
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
	url, env := completing(t, t.TempDir())
	for line, want := range completions {
		if strings.Contains(line, " = ") { // only bash splits words at =
			continue
		}
		cmd := exec.CommandContext(t.Context(), shell, "--no-config", "-c", "source lbd.fish; complete -C $argv[1]", strings.ReplaceAll(line, "URL", url))
		cmd.Dir, cmd.Env = dir, env
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
