package main

import (
	"reflect"
	"strings"
	"testing"
)

// TestHelpShowsTheFlagsOfServe: lbd --help is enough to run the daemon.
func TestHelpShowsTheFlagsOfServe(t *testing.T) {
	t.Parallel()
	out, err := command("--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for field := range reflect.TypeFor[Config]().Fields() {
		if env := "($" + field.Tag.Get("env") + ")"; !strings.Contains(string(out), env) {
			t.Errorf("lbd --help does not show the flag with %s:\n%s", env, out)
		}
	}
	for _, name := range []string{"demo", "check", "version", "healthcheck"} {
		if !strings.Contains(string(out), "\n  "+name+" ") {
			t.Errorf("lbd --help does not show the command %s:\n%s", name, out)
		}
	}
}

// TestHelpGivesEveryDefault: the help of a flag is a phrase that ends with its
// default.
func TestHelpGivesEveryDefault(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"serve", "demo", "check", "healthcheck"} {
		out, err := command(name, "--help").CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		_, flags, _ := strings.Cut(string(out), "--version")
		_, flags, _ = strings.Cut(flags, "\n\n")
		for _, flag := range strings.Split(strings.Join(strings.Fields(flags), " "), " --")[1:] {
			if !strings.Contains(flag, "(default ") || strings.Contains(flag, "(default )") || strings.HasSuffix(flag, ".") {
				t.Errorf("%s: the help of --%s gives no default", name, flag)
			}
		}
	}
}
