package deploy_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// buildPackages builds packages of a binary, or skips the test if that is not possible.
func buildPackages(t *testing.T, version, binary string, formats ...string) (dir string) {
	t.Helper()
	nfpm := os.Getenv("LBD_TEST_NFPM")
	if nfpm == "" {
		t.Skip("no LBD_TEST_NFPM: make test-deploy builds it")
	}
	dir = t.TempDir()
	cmd := exec.Command(filepath.Join(root, "deploy/packages/build"), append([]string{version, architecture(t), binary, dir}, formats...)...)
	cmd.Env = append(os.Environ(), "LBD="+lbd, "NFPM="+nfpm, "SOURCE_DATE_EPOCH=1700000000")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build packages: %v\n%s", err, out)
	}
	return dir
}

// needs skips the test if a program is not installed.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
}

func architecture(t *testing.T) string {
	t.Helper()
	return output(t, "go", "env", "GOARCH")
}

// only returns the only file that matches a pattern.
func only(t *testing.T, dir, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	return files[0]
}

// small is a file that is packaged quickly instead of the binary.
const small = root + "/go.mod"

// TestPackagesAreReproducible: two builds have the same bytes, also of a copy of the binary.
func TestPackagesAreReproducible(t *testing.T) {
	other := filepath.Join(t.TempDir(), "lbd")
	must(t, os.WriteFile(other, []byte(read(t, "go.mod")), 0o600))
	first, second := buildPackages(t, "v1.2.3", small, "deb", "rpm"), buildPackages(t, "v1.2.3", other, "deb", "rpm")
	for _, pattern := range []string{"*.deb", "*.rpm"} {
		a, err := os.ReadFile(only(t, first, pattern))
		must(t, err)
		b, err := os.ReadFile(only(t, second, pattern))
		must(t, err)
		if string(a) != string(b) {
			t.Errorf("two builds of %s differ", pattern)
		}
	}
}

// TestPackageVersions: what git describe prints becomes a valid version, and sorts as it should.
func TestPackageVersions(t *testing.T) {
	needs(t, "dpkg-deb")
	last := ""
	for _, test := range []struct{ described, want string }{
		{"1a2b3c4-dirty", "0.0.0+git.1a2b3c4~dirty-1"},
		{"v1.2.3-rc.1", "1.2.3~rc.1-1"},
		{"v1.2.3", "1.2.3-1"},
		{"v1.2.3-5-g1a2b3c4", "1.2.3+5.g1a2b3c4-1"},
		{"v1.2.4-rc.1-5-g1a2b3c4", "1.2.4~rc.1+5.g1a2b3c4-1"},
		{"v1.2.10", "1.2.10-1"},
	} {
		got := output(t, "dpkg-deb", "--field", only(t, buildPackages(t, test.described, small, "deb"), "*.deb"), "Version")
		if got != test.want {
			t.Errorf("%s: version %s, want %s", test.described, got, test.want)
		}
		if last != "" && exec.Command("dpkg", "--compare-versions", last, "lt", got).Run() != nil {
			t.Errorf("%s does not sort after %s", got, last)
		}
		last = got
	}
}

// packaged are the files that packages of all formats have, with their modes.
var packaged = map[string]fs.FileMode{
	"/usr/bin/lbd": 0o755, "/usr/bin/lbd-proxy": 0o755, "/usr/lib/systemd/system/lbd-proxy.service": 0o644, "/etc/lbd/lbd.env": 0o600, "/etc/lbd": fs.ModeDir | 0o755,
	"/usr/lib/systemd/system/lbd.service": 0o644, "/usr/lib/systemd/system/lbd.socket": 0o644,
	"/usr/share/man/man1/lbd.1.gz":               0o644,
	"/usr/share/bash-completion/completions/lbd": 0o644, "/usr/share/fish/vendor_completions.d/lbd.fish": 0o644,
	"/usr/share/doc/lbd/changelog.gz": 0o644, "/usr/share/doc/lbd/docs/deployment.md": 0o644,
}

// checkFiles checks the files of a package that is unpacked in a directory.
func checkFiles(t *testing.T, dir string, also ...string) {
	t.Helper()
	want := map[string]fs.FileMode{}
	for _, name := range also {
		want[name] = 0o644
	}
	maps.Copy(want, packaged)
	for name, mode := range want {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, want mode %v; %v", name, info, mode, err)
		}
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, dir)
		if err == nil && !d.IsDir() && want[name] == 0 && !strings.HasPrefix(name, "/usr/share/doc/lbd/") {
			t.Errorf("unexpected file %s", name)
		}
		return err
	})
	must(t, err)
	binary, err := os.ReadFile(lbd)
	must(t, err)
	installed, err := os.ReadFile(filepath.Join(dir, "usr/bin/lbd"))
	if err != nil || string(installed) != string(binary) {
		t.Errorf("/usr/bin/lbd is another binary: %v", err)
	}
	unit, err := os.ReadFile(filepath.Join(dir, "usr/lib/systemd/system/lbd.service"))
	must(t, err)
	if want := strings.ReplaceAll(read(t, serviceUnit), "/usr/local/bin/lbd", "/usr/bin/lbd"); string(unit) != want {
		t.Errorf("the packaged unit:\n%s", unit)
	}
}

// TestDeb: files, owners, conffiles and dependencies of the Debian package.
func TestDeb(t *testing.T) {
	needs(t, "dpkg-deb")
	file := only(t, buildPackages(t, "v1.2.3", lbd, "deb"), "*.deb")
	dir := t.TempDir()
	output(t, "dpkg-deb", "--raw-extract", file, dir)
	control := filepath.Join(dir, "DEBIAN")
	conffiles, err := os.ReadFile(filepath.Join(control, "conffiles"))
	must(t, err)
	if got := strings.Fields(string(conffiles)); !slices.Equal(got, []string{"/etc/lbd/lbd.env"}) {
		t.Errorf("conffiles: %q", got)
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		text, err := os.ReadFile(filepath.Join(control, script))
		if err != nil || string(text) != read(t, "deploy/packages/deb/"+script) {
			t.Errorf("%s: %v\n%s", script, err, text)
		}
	}
	must(t, os.RemoveAll(control))
	checkFiles(t, dir, "/usr/share/zsh/vendor-completions/_lbd", "/usr/share/doc/lbd/copyright", "/usr/share/doc/lbd/THIRD-PARTY-LICENSES.txt")
	for line := range strings.Lines(output(t, "dpkg-deb", "--contents", file)) {
		if !strings.Contains(line, " root/root ") {
			t.Errorf("not root's: %s", line)
		}
	}
	if got := output(t, "dpkg-deb", "--field", file, "Architecture"); got != architecture(t) {
		t.Errorf("architecture %s", got)
	}
}

// TestRPM: files, configuration and scripts of the RPM package.
func TestRPM(t *testing.T) {
	needs(t, "rpm", "rpm2cpio", "cpio")
	file := only(t, buildPackages(t, "v1.2.3", lbd, "rpm"), "*.rpm")
	dir := t.TempDir()
	output(t, "sh", "-euc", `rpm2cpio "$1" | (cd "$2" && cpio --quiet -id --no-absolute-filenames)`, "sh", file, dir)
	checkFiles(t, dir, "/usr/share/zsh/site-functions/_lbd", "/usr/share/licenses/lbd/LICENSE", "/usr/share/licenses/lbd/THIRD-PARTY-LICENSES.txt")
	query := func(args ...string) string {
		return output(t, "rpm", append([]string{"-qp", "--dbpath", filepath.Join(dir, "db"), "--nosignature"}, append(args, file)...)...)
	}
	if got := query("--configfiles"); got != "/etc/lbd/lbd.env" {
		t.Errorf("configuration: %q", got)
	}
	scripts := query("--scripts")
	for _, script := range []string{"post", "preun", "postun"} {
		if !strings.Contains(scripts, strings.TrimSpace(read(t, "deploy/packages/rpm/"+script))) {
			t.Errorf("%s is not in\n%s", script, scripts)
		}
	}
	if got := query("--queryformat", "%{VERSION} %{LICENSE} %{BUILDHOST}"); got != "1.2.3 Apache-2.0 localhost" {
		t.Errorf("version, license and build host: %s", got)
	}
}

// bootWithPackages starts a machine that has no lbd, but two versions of its package in /opt.
func bootWithPackages(t *testing.T, format string, files func(dir string)) *machine {
	t.Helper()
	old, recent := only(t, buildPackages(t, "v1.0.0", lbd, format), "*"), only(t, buildPackages(t, "v1.1.0", lbd, format), "*")
	return bootFrom(t, writableUsr, func(t *testing.T, dir string) {
		t.Helper()
		prepare(t, dir)
		for name, file := range map[string]string{"old": old, "new": recent} {
			text, err := os.ReadFile(file)
			must(t, err)
			put(t, dir, "opt/"+name+"."+format, string(text), 0o644)
		}
		files(dir)
	})
}

// shell runs a command of the administrator.
func (m *machine) shell(t *testing.T, command string) string {
	t.Helper()
	return m.must(t, "env", "-i", "PATH=/usr/sbin:/usr/bin", "HOME=/root", "LC_ALL=C.UTF-8", "sh", "-euc", command)
}

// states checks whether the service and its socket are active and enabled.
func (m *machine) states(t *testing.T, when, active, enabled string) {
	t.Helper()
	for _, unit := range []string{"lbd.service", "lbd.socket"} {
		if got := m.property(t, unit, "ActiveState"); got != active {
			t.Errorf("%s: %s is %s, want %s\n%s", when, unit, got, active, m.logged())
		}
		if got, _ := m.run("systemctl", "is-enabled", unit); got != enabled {
			t.Errorf("%s: %s is %s, want %s", when, unit, got, enabled)
		}
	}
}

// exists reports whether the machine has a file.
func (m *machine) exists(file string) bool {
	_, err := os.Lstat(m.path(file))
	return !errors.Is(err, fs.ErrNotExist)
}

// push pushes an endpoint that is reachable.
func (m *machine) push(t *testing.T) {
	t.Helper()
	if status, answer, err := m.ask("PUT", "/v1/snapshot", self); err != nil || status != http.StatusOK {
		t.Fatalf("push: %d, %v\n%s", status, err, answer)
	}
}

// upgrade runs a command while callers pick: none of their requests may fail.
func (m *machine) upgrade(t *testing.T, command string) {
	t.Helper()
	before := m.property(t, "lbd.service", "MainPID")
	upgraded, asked := make(chan struct{}), make(chan string, 1)
	go func() {
		failed := ""
		for running := true; running && failed == ""; {
			failed = m.repeat("/pick?cluster=orders", 100)
			select {
			case <-upgraded:
				running = false
			default:
			}
		}
		asked <- failed
	}()
	out, err := m.run("env", "PATH=/usr/sbin:/usr/bin", "sh", "-euc", command)
	close(upgraded)
	if failed := <-asked; failed != "" || err != nil {
		t.Errorf("across the upgrade: %v, %s\n%s\n%s", err, failed, out, m.logged())
	}
	if after := m.property(t, "lbd.service", "MainPID"); after == before || after == "0" {
		t.Errorf("lbd was not restarted: process %s, then %s", before, after)
	}
	m.picks(t, "upgraded") // from the store of the old version
}

const environment = "LBD_DENY_ENDPOINTS=none\n"

// TestDebUnderSystemd installs, upgrades, removes and purges the Debian package with dpkg.
func TestDebUnderSystemd(t *testing.T) {
	needs(t, "dpkg", "dpkg-query", "deb-systemd-helper", "deb-systemd-invoke", "groupadd")
	m := bootWithPackages(t, "deb", func(dir string) {
		var status strings.Builder
		for _, name := range []string{"passwd", "init-system-helpers"} {
			fmt.Fprintf(&status, "Package: %s\nStatus: install ok installed\nArchitecture: all\nMaintainer: none\nVersion: %s\nDescription: none\n\n",
				name, output(t, "dpkg-query", "--show", "--showformat=${Version}", name))
			put(t, dir, "var/lib/dpkg/info/"+name+".list", "", 0o644)
		}
		put(t, dir, "var/lib/dpkg/status", status.String(), 0o644)
		put(t, dir, "var/lib/dpkg/updates/.keep", "", 0o644)
		must(t, os.Remove(filepath.Join(dir, "var/lib/dpkg/updates/.keep")))
	})
	// Where policy-rc.d forbids it, as in the build of an image, the units are enabled and not started.
	m.write(t, "/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755)
	m.shell(t, "dpkg --install /opt/old.deb")
	m.states(t, "installed where policy-rc.d forbids to start", "inactive", "enabled")
	m.shell(t, "dpkg --purge lbd")
	m.shell(t, "rm /usr/sbin/policy-rc.d")

	m.shell(t, "dpkg --install /opt/old.deb")
	m.states(t, "installed", "active", "enabled")
	m.must(t, "lbd", "healthcheck")
	if group := setting(t, socketUnit, "SocketGroup"); m.shell(t, "stat -c %G /run/lbd.sock") != group {
		t.Errorf("the socket is not of the group %s", group)
	}
	m.write(t, "/etc/lbd/lbd.env", environment, 0o600)
	m.shell(t, "systemctl restart lbd.service")
	m.push(t)
	m.picks(t, "installed")

	m.upgrade(t, "dpkg --install /opt/new.deb")
	if got := m.shell(t, "cat /etc/lbd/lbd.env"); got+"\n" != environment {
		t.Errorf("the upgrade has changed the configuration: %s", got)
	}
	if got := m.shell(t, "dpkg-query --show --showformat='${Version}' lbd"); got != "1.1.0-1" {
		t.Errorf("version %s", got)
	}
	m.shell(t, "systemctl disable --now lbd.socket lbd.service && dpkg --install /opt/new.deb")
	m.states(t, "installed again after the administrator has disabled it", "inactive", "disabled")
	m.shell(t, "systemctl enable --now lbd.socket lbd.service")
	m.picks(t, "enabled again")

	m.shell(t, "dpkg --remove lbd")
	if m.exists("/usr/bin/lbd") || !m.exists(store) || !m.exists("/etc/lbd/lbd.env") {
		t.Error("removed: lbd is still there, or its data or configuration is not")
	}
	if status, answer, err := m.ask("GET", "/readyz", ""); err == nil {
		t.Errorf("removed, and answers %d %s", status, answer)
	}
	m.shell(t, "dpkg --install /opt/new.deb")
	m.picks(t, "installed after a removal, with the old data")
	m.shell(t, "dpkg --purge lbd")
	m.purged(t)
}

// purged checks that no files of lbd are left.
func (m *machine) purged(t *testing.T) {
	t.Helper()
	for _, file := range []string{"/etc/lbd", "/var/lib/lbd", "/var/lib/private/lbd", "/usr/bin/lbd", "/usr/share/doc/lbd"} {
		if m.exists(file) {
			t.Errorf("%s is left", file)
		}
	}
	if links := m.shell(t, "find /etc/systemd/system /var/lib/systemd -name 'lbd.s*' ! -name lbd.service.d"); links != "" {
		t.Errorf("units are left: %s", links)
	}
}

// TestRPMUnderSystemd installs, upgrades and removes the RPM package with rpm. Dependencies are not
// checked, because this machine may not be one with RPM packages.
func TestRPMUnderSystemd(t *testing.T) {
	needs(t, "rpm", "groupadd")
	m := bootWithPackages(t, "rpm", func(string) {})
	const rpm = "rpm --nodeps --nosignature --dbpath=/var/lib/rpm "
	m.shell(t, rpm+"--install /opt/old.rpm")
	m.states(t, "installed", "inactive", "enabled") // by systemd's default preset
	m.write(t, "/etc/lbd/lbd.env", environment, 0o600)
	m.shell(t, "systemctl start lbd.service")
	m.push(t)
	m.picks(t, "started")
	m.upgrade(t, rpm+"--upgrade /opt/new.rpm")
	if got := m.shell(t, "cat /etc/lbd/lbd.env"); got+"\n" != environment {
		t.Errorf("the upgrade has changed the configuration: %s", got)
	}
	m.shell(t, rpm+"--erase lbd")
	if m.exists("/usr/bin/lbd") || !m.exists(store) {
		t.Error("removed: lbd is still there, or its data is not")
	}
	if status, answer, err := m.ask("GET", "/readyz", ""); err == nil {
		t.Errorf("removed, and answers %d %s", status, answer)
	}
}
