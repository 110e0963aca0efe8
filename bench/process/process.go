// Package process starts the programs of a benchmark, measures them, and ends them.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a running program.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	output *tail
}

// Start starts a program with an environment without LBD_ variables. It gets a SIGKILL
// when this process ends.
func Start(name string, args ...string) (*Process, error) {
	return start(func(*exec.Cmd) error { return nil }, name, args...)
}

// start lets prepare connect the program's input and output before it starts.
func start(prepare func(*exec.Cmd) error, name string, args ...string) (*Process, error) {
	//nolint:noctx // Stop ends it, with a SIGTERM
	cmd := exec.Command(name, args...) //nolint:gosec // the peers are programs that the caller chose
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "LBD_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	p := &Process{cmd: cmd, exited: make(chan struct{}), output: new(tail)}
	if err := prepare(cmd); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", filepath.Base(name), err)
	}
	if cmd.Stderr = p.output; cmd.Stdout == nil {
		cmd.Stdout = p.output
	}
	endWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(name), err)
	}
	go func() {
		_ = cmd.Wait() // ProcessState has the result
		close(p.exited)
	}()
	return p, nil
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// stopTimeout is how long a program may take to end after a SIGTERM.
const stopTimeout = 20 * time.Second

// Stop ends the program, by a SIGTERM first, and waits for its end.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// AwaitListen waits until the program accepts connections.
func (p *Process) AwaitListen(ctx context.Context, network, address string) error {
	var dialer net.Dialer
	for {
		c, err := dialer.DialContext(ctx, network, address)
		if err == nil {
			return c.Close()
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-p.exited:
			return fmt.Errorf("%s ended: %s", filepath.Base(p.cmd.Path), p.output.String())
		case <-ctx.Done():
			return fmt.Errorf("wait until %s listens on %s: %w: %s", filepath.Base(p.cmd.Path), address, errors.Join(ctx.Err(), err), p.output.String())
		}
	}
}

// CPU returns the CPU time of all threads of a process and of its child processes that are
// running.
func CPU(pid int) (time.Duration, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(tasks) == 0 {
		return 0, fmt.Errorf("process %d is not running: %w", pid, os.ErrNotExist)
	}
	var total time.Duration
	for _, task := range tasks {
		text, err := os.ReadFile(filepath.Join(task, "schedstat"))
		if err != nil {
			continue // the thread has ended
		}
		first, _, _ := strings.Cut(string(text), " ")
		running, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parse schedstat of process %d: %w", pid, err)
		}
		total += time.Duration(running)
		children, err := os.ReadFile(filepath.Join(task, "children"))
		if err != nil {
			continue
		}
		for child := range strings.FieldsSeq(string(children)) {
			id, err := strconv.Atoi(child)
			if err != nil {
				return 0, fmt.Errorf("parse the children of process %d: %w", pid, err)
			}
			used, err := CPU(id)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return 0, err
			}
			total += used
		}
	}
	return total, nil
}

// RSS returns the resident memory of a process in bytes, and its highest value so far.
func RSS(pid int) (now, peak int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "VmRSS:":
			now, err = strconv.ParseInt(fields[1], 10, 64)
		case "VmHWM:":
			peak, err = strconv.ParseInt(fields[1], 10, 64)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("parse the memory of process %d: %w", pid, err)
		}
	}
	return now << 10, peak << 10, nil
}

// tail keeps the end of a program's output.
type tail struct {
	mu   sync.Mutex
	last []byte
}

const maxOutput = 4096

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, b...)
	if extra := len(t.last) - maxOutput; extra > 0 {
		t.last = append(t.last[:0], t.last[extra:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.last)
}

// ResetPeak makes the highest resident memory of a process count from now on.
func ResetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("reset the peak of the memory of process %d: %w", pid, err)
	}
	return nil
}
