package deploy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is the maximum time that a test waits.
const patience = 60 * time.Second

// namespaces are the new namespaces of a machine, besides the cgroup namespace.
const namespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET

// Commands of bootScript that mount this machine's /usr in the new root.
const (
	// readOnlyUsr has lbd in /usr/local/bin.
	readOnlyUsr = `
mount --bind /usr usr
mount -o remount,bind,ro usr
mount --bind opt usr/local/bin`
	// writableUsr is a copy on write, in which nothing forbids packages to start services.
	writableUsr = `
mkdir upper
mount -t tmpfs tmpfs upper
mkdir upper/files upper/work
mount -t overlay -o lowerdir=/usr,upperdir=upper/files,workdir=upper/work overlay usr
rm -f usr/sbin/policy-rc.d`
)

// bootScript creates a root file system in $1, from this machine's /usr without its units, which the
// commands $4 mount, and the directory $2, and executes systemd.
const bootScript = `
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$1"
cd "$1"
mkdir usr proc sys dev run tmp old
cp -r "$2"/. .
chmod 1777 tmp
eval "$4"
mount -t tmpfs -o mode=755 tmpfs usr/lib/systemd/system
for link in bin sbin lib lib64; do [ ! -L /$link ] || ln -s usr/$link $link; done
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm dev/mqueue dev/hugepages
for device in null zero full random urandom tty; do : >dev/$device; mount --bind /dev/$device dev/$device; done
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mkfifo run/lbd.log
mkdir run/host
mount --bind "$3" run/host
pivot_root . old
umount -l old
mount --make-rshared /
exec env -i PATH=/usr/sbin:/usr/bin container=test NOTIFY_SOCKET=/run/host/notify SYSTEMD_UNIT_PATH=/etc/systemd/system:/usr/lib/systemd/system \
	/usr/lib/systemd/systemd --unit=basic.target --log-target=null --show-status=no
`

// machine is a systemd as process 1 of new namespaces, with the units of docs/deployment.md.
type machine struct {
	pid int
	// log has what lbd writes to standard error.
	log chan string
	// http asks /run/lbd.sock.
	http *http.Client
}

// boot starts a machine with lbd and its units, or skips the test if that is not possible.
func boot(t *testing.T) *machine {
	t.Helper()
	return bootFrom(t, readOnlyUsr, install)
}

// bootFrom starts a machine whose /usr the commands usr mount, with the files that install puts into a
// directory.
func bootFrom(t *testing.T, usr string, install func(*testing.T, string)) *machine {
	t.Helper()
	if _, err := os.Stat("/usr/lib/systemd/systemd"); err != nil {
		t.Skip("systemd is not installed")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can start a systemd of its own")
	}
	dir := t.TempDir()
	files := filepath.Join(dir, "files")
	install(t, files)
	target, host := filepath.Join(dir, "root"), filepath.Join(dir, "host")
	for _, d := range []string{target, host} {
		must(t, os.Mkdir(d, 0o755))
	}
	up, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(host, "notify")})
	must(t, err)
	defer func() { _ = up.Close() }()

	cmd := exec.Command("unshare", "--cgroup", "sh", "-euc", bootScript, "sh", target, files, host, usr)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, UseCgroupFD: true, CgroupFD: cgroup(t)}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); errors.Is(err, fs.ErrPermission) {
		t.Skipf("no namespaces can be made here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
		_ = up.SetReadDeadline(time.Now())
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // and with process 1 all others
		<-exited
	})
	must(t, up.SetReadDeadline(time.Now().Add(patience)))
	for message := ""; !strings.Contains("\n"+message, "\nREADY=1"); {
		b := make([]byte, 4096)
		n, err := up.Read(b)
		if err != nil && regexp.MustCompile(`(?i)not permitted|permission denied`).MatchString(stderr.String()) {
			t.Skipf("nothing can be mounted here: %s", stderr.String())
		}
		if err != nil {
			t.Fatalf("systemd does not come up: %v\n%s", err, stderr.String())
		}
		message = string(b[:n])
	}
	m := &machine{pid: cmd.Process.Pid}
	m.log = lines(t, m.path("/run/lbd.log"))
	m.http = &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", m.path("/run/lbd.sock"))
		},
	}}
	return m
}

// cgroup creates a control group until the end of the test.
func cgroup(t *testing.T) int {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skipf("no control groups here: %v", err)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	must(t, err)
	path := ""
	for line := range strings.Lines(string(own)) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			path = p
		}
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); f[2] == "cgroup2" {
			dir := filepath.Join(f[1], path, "lbd-test-"+strconv.Itoa(os.Getpid()))
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Skipf("no control group can be made here: %v", err)
			}
			t.Cleanup(func() { removeGroups(t, dir) })
			d, err := os.Open(dir)
			must(t, err)
			t.Cleanup(func() { _ = d.Close() })
			return int(d.Fd())
		}
	}
	t.Skip("no control groups of version 2 are mounted here")
	return 0
}

// removeGroups removes an empty control group.
func removeGroups(t *testing.T, dir string) {
	t.Helper()
	var groups []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			groups = append([]string{path}, groups...) // children first
		}
		return err
	})
	for _, g := range groups {
		err = errors.Join(err, syscall.Rmdir(g))
	}
	if err != nil {
		t.Error(err)
	}
}

// put writes a file of a machine that is not started yet.
func put(t *testing.T, dir, name, text string, mode fs.FileMode) {
	t.Helper()
	name = filepath.Join(dir, name)
	must(t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), mode)))
}

// units is the directory of the units of a machine.
const units = "etc/systemd/system"

// install creates the files of a machine besides /usr: lbd, its units and their group, and what prepare
// creates.
func install(t *testing.T, dir string) {
	t.Helper()
	prepare(t, dir)
	binary, err := os.ReadFile(lbd)
	must(t, err)
	put(t, dir, "opt/lbd", string(binary), 0o755)
	put(t, dir, "etc/group", fmt.Sprintf("root:x:0:\n%s:x:%d:\n", setting(t, socketUnit, "SocketGroup"), clientsGroup), 0o644)
	for _, unit := range []string{serviceUnit, socketUnit} {
		put(t, dir, filepath.Join(units, filepath.Base(unit)), read(t, unit), 0o644)
	}
}

// prepare creates the files that a machine needs without lbd, with the targets of systemd that its units
// need, and lets lbd log to a FIFO.
func prepare(t *testing.T, dir string) {
	t.Helper()
	put(t, dir, "etc/passwd", "root:x:0:0::/root:/bin/sh\n", 0o644)
	put(t, dir, "etc/group", "root:x:0:\n", 0o644)
	put(t, dir, "etc/machine-id", "", 0o644)
	put(t, dir, "var/lib/.keep", "", 0o644)
	put(t, dir, "var/tmp/.keep", "", 0o644)
	put(t, dir, filepath.Join(units, "lbd.service.d/log.conf"), "[Service]\nStandardError=file:/run/lbd.log\n", 0o644)
	targets, err := filepath.Glob("/usr/lib/systemd/system/*.target")
	if err != nil || len(targets) == 0 {
		t.Fatalf("systemd has no targets: %v", err)
	}
	for _, file := range targets {
		text, err := os.ReadFile(file)
		must(t, err)
		put(t, dir, filepath.Join(units, filepath.Base(file)), string(text), 0o644)
	}
}

// lines returns the lines that are written to a FIFO during the test.
func lines(t *testing.T, fifo string) chan string {
	t.Helper()
	f, err := os.OpenFile(fifo, os.O_RDWR, 0) // a reader that never sees the end
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	to := make(chan string, 10_000)
	go func() {
		for s := bufio.NewScanner(f); s.Scan(); {
			to <- s.Text()
		}
	}()
	return to
}

// path returns the path of a file of the machine for this process.
func (m *machine) path(file string) string {
	return fmt.Sprintf("/proc/%d/root%s", m.pid, file)
}

func (m *machine) write(t *testing.T, file, text string, mode fs.FileMode) {
	t.Helper()
	must(t, errors.Join(os.MkdirAll(filepath.Dir(m.path(file)), 0o755), os.WriteFile(m.path(file), []byte(text), mode)))
}

// run runs a command on the machine.
func (m *machine) run(command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	args := append([]string{"--target", strconv.Itoa(m.pid), "--all", "--root", "--wd", "--"}, command...)
	out, err := exec.CommandContext(ctx, "nsenter", args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (m *machine) must(t *testing.T, command ...string) string {
	t.Helper()
	out, err := m.run(command...)
	if err != nil {
		status, _ := m.run("systemctl", "--no-pager", "status", "lbd.service", "lbd.socket")
		t.Fatalf("%s: %v\n%s\n%s\n%s", strings.Join(command, " "), err, out, status, m.logged())
	}
	return out
}

// property returns a property of a unit.
func (m *machine) property(t *testing.T, unit, name string) string {
	t.Helper()
	return m.must(t, "systemctl", "show", "--value", "--property="+name, unit)
}

// logged returns the unread log lines of lbd.
func (m *machine) logged() (all string) {
	for {
		select {
		case line := <-m.log:
			all += line + "\n"
		default:
			return all
		}
	}
}

// waitForLog waits for a log line with the words.
func (m *machine) waitForLog(t *testing.T, words string) {
	t.Helper()
	late := time.After(patience)
	for {
		select {
		case line := <-m.log:
			if strings.Contains(line, words) {
				return
			}
		case <-late:
			t.Fatalf("lbd does not log %q", words)
		}
	}
}

// repeat sends n requests, each on a new connection, and returns the first failure.
func (m *machine) repeat(path string, n int) (failed string) {
	var failures []string
	for range n {
		status, answer, err := m.ask("GET", path, "", func(r *http.Request) { r.Close = true })
		if err != nil || status != http.StatusOK {
			failures = append(failures, fmt.Sprintf("%d, %v: %s", status, err, answer))
		}
	}
	if len(failures) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d requests failed, the first with %s", len(failures), n, failures[0])
}

// ask sends a request to the unix socket of lbd.
func (m *machine) ask(method, path, body string, change ...func(*http.Request)) (status int, answer string, err error) {
	request, err := http.NewRequest(method, "http://lbd"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for _, f := range change {
		f(request)
	}
	response, err := m.http.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}
