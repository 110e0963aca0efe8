package attack_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// cgroup limits the memory of one process, as a container does. It is of version 2, or
// of version 1 where that has the memory controller.
type cgroup struct {
	dir   string
	limit int64
	v2    bool
}

const groups = "/sys/fs/cgroup"

// newCgroup makes a memory cgroup, or skips the test where it cannot.
func newCgroup(t testing.TB, limit int64) *cgroup {
	t.Helper()
	g := &cgroup{limit: limit}
	parent := groups
	if controllers, err := os.ReadFile(groups + "/cgroup.subtree_control"); err == nil && strings.Contains(string(controllers), "memory") {
		g.v2 = true
	} else {
		parent = groups + "/memory"
	}
	g.dir = filepath.Join(parent, fmt.Sprintf("lbd-attack-%d", os.Getpid()))
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		t.Skipf("cannot limit memory: %v", err)
	}
	file := "memory.limit_in_bytes"
	if g.v2 {
		file = "memory.max"
	}
	if err := os.WriteFile(filepath.Join(g.dir, file), []byte(strconv.FormatInt(limit, 10)), 0o600); err != nil {
		g.remove()
		t.Skipf("cannot limit memory: %v", err)
	}
	return g
}

// attach makes cmd start in the group: with version 1, by a shell that enters it.
func (g *cgroup) attach(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if g.v2 {
		dir, err := os.Open(g.dir)
		noError(t, err)
		t.Cleanup(func() { _ = dir.Close() })
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
		return
	}
	cmd.Args = append([]string{"sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(g.dir, "cgroup.procs"), cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
}

// peak returns the most memory that the group has used, page cache included.
func (g *cgroup) peak() int64 {
	file := "memory.max_usage_in_bytes"
	if g.v2 {
		file = "memory.peak"
	}
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}

func (g *cgroup) remove() {
	if g != nil {
		_ = os.Remove(g.dir)
	}
}
