package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// setting returns the last value of a key of a unit.
func setting(t *testing.T, file, key string) string {
	t.Helper()
	value := ""
	for line := range strings.Lines(read(t, file)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok {
			value = v
		}
	}
	return value
}

const (
	serviceUnit = "deploy/systemd/lbd.service"
	socketUnit  = "deploy/systemd/lbd.socket"
)

// TestServiceUnit: lbd accepts the command line of the unit, and the settings match what lbd does.
func TestServiceUnit(t *testing.T) {
	command := strings.Fields(setting(t, serviceUnit, "ExecStart"))
	env := strings.Fields(setting(t, serviceUnit, "Environment"))
	accepts(t, command[1:], env)
	if len(command) != 1 {
		t.Errorf("%v takes precedence over lbd.env", command[1:])
	}
	if data := "LBD_DATA=/var/lib/" + setting(t, serviceUnit, "StateDirectory"); !slices.Contains(env, data) {
		t.Errorf("lbd has no write access to its data: no %s in %v", data, env)
	}
	if setting(t, serviceUnit, "Type") != "notify" || setting(t, serviceUnit, "Requires") != filepath.Base(socketUnit) {
		t.Error("the unit does not wait for READY=1, or has no sockets")
	}
	if mode := setting(t, socketUnit, "SocketMode"); mode != "0660" { // as lbd's own
		t.Errorf("the unix socket has mode %s", mode)
	}
	drain := regexp.MustCompile(`(?s)--drain-timeout=.*?\(default\s+(\w+)`).FindStringSubmatch(help(t))[1]
	if stop := setting(t, serviceUnit, "TimeoutStopSec"); seconds(t, stop) < seconds(t, drain)+2 {
		t.Errorf("lbd has %s to drain for %s", stop, drain)
	}
}

// TestSocketGroupDiffersFromUser: systemd creates the user and the group of a DynamicUser with the name of
// the unit; an existing group of that name prevents the start.
func TestSocketGroupDiffersFromUser(t *testing.T) {
	name := strings.TrimSuffix(filepath.Base(serviceUnit), ".service")
	group := setting(t, socketUnit, "SocketGroup")
	if setting(t, serviceUnit, "DynamicUser") != "true" || group == name {
		t.Errorf("the socket's group is %q, beside a dynamic user %q", group, name)
	}
	for _, file := range []string{socketUnit, "docs/deployment.md"} {
		if made := regexp.MustCompile(`groupadd \S+ (\S+)`).FindStringSubmatch(read(t, file)); made == nil || made[1] != group {
			t.Errorf("%s has %q, and the socket's group is %s", file, made, group)
		}
	}
}

// systemdAnalyze runs systemd-analyze on copies of the units that run the tested binary.
func systemdAnalyze(t *testing.T, args ...string) string {
	t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	dir := t.TempDir()
	for _, unit := range []string{serviceUnit, socketUnit} {
		text := strings.ReplaceAll(read(t, unit), "/usr/local/bin/lbd", lbd)
		must(t, os.WriteFile(filepath.Join(dir, filepath.Base(unit)), []byte(text), 0o600))
	}
	cmd := exec.Command(analyze, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestUnitsAreValid(t *testing.T) {
	out := systemdAnalyze(t, "verify", "./lbd.service", "./lbd.socket")
	for line := range strings.Lines(out) {
		if strings.Contains(line, "lbd.s") { // others are about units of the machine
			t.Error(line)
		}
	}
}

// TestServiceIsConfined: systemd-analyze rates the exposure at most 1.5 of 10.
func TestServiceIsConfined(t *testing.T) {
	const most = 1.5
	out := systemdAnalyze(t, "security", "--offline=true", "./lbd.service")
	_, after, _ := strings.Cut(out, "Overall exposure level for lbd.service: ")
	fields := strings.Fields(after)
	if len(fields) == 0 {
		t.Fatalf("no exposure in\n%s", out)
	}
	if exposure, err := strconv.ParseFloat(fields[0], 64); err != nil || exposure > most {
		t.Errorf("exposure is %s, of at most %v", fields[0], most)
	} else {
		t.Logf("exposure %.1f", exposure)
	}
}
