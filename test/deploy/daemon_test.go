package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the repository.
const root = "../.."

// lbd is the binary of the daemon: LBD_TEST_DAEMON, or a file that TestMain builds.
var lbd = os.Getenv("LBD_TEST_DAEMON")

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if lbd != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "lbd-deploy")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	lbd = filepath.Join(dir, "lbd")
	if out, err := exec.Command("go", "build", "-C", root, "-o", lbd, "./cmd/lbd").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build lbd: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// must ends the test if err is not nil.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	must(t, err)
	return string(text)
}

// accepts checks that lbd accepts a command line and environment. It adds an unknown flag,
// which must be the only error.
func accepts(t *testing.T, args, env []string) {
	t.Helper()
	const none = "--none-such"
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		args = append([]string{"serve"}, args...)
	}
	cmd := exec.Command(lbd, append(args, none)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "unknown flag "+none) {
		t.Errorf("lbd %s: %s", strings.Join(args, " "), lastLine(out))
	}
	known := regexp.MustCompile(`\$LBD_[A-Z_]+`).FindAllString(help(t), -1)
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "LBD_") && !slices.Contains(known, "$"+name) {
			t.Errorf("lbd does not read %s", name)
		}
	}
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

func help(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(lbd, "serve", "--help").Output()
	must(t, err)
	return string(out)
}

// flagValue returns the value of the last flag with this name.
func flagValue(args []string, name string) (value string, ok bool) {
	for _, a := range args {
		if v, is := strings.CutPrefix(a, "--"+name+"="); is {
			value, ok = v, true
		}
	}
	return value, ok
}

// served reports whether the contract has a GET of this path.
func served(t *testing.T, path string) bool {
	t.Helper()
	return regexp.MustCompile(`(?m)^  ` + regexp.QuoteMeta(path) + `:\n(?:    .*\n)*?    get:`).MatchString(read(t, "openapi.yaml"))
}
