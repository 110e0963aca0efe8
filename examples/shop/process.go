package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	// starting is the time in which a process has to listen.
	starting = 30 * time.Second
	// ending is the time that a process has to end after a signal.
	ending = 5 * time.Second
)

// process is a process that listens on a port of loopback.
type process struct {
	name        string
	port        int
	command     []string
	environment []string // in addition to that of the shop

	running *exec.Cmd
	ended   chan struct{} // closed when it has ended, and why is set
	why     error
}

// start starts the process, and waits until it listens. What it started is ended if it does not.
func (p *process) start(ctx context.Context) error {
	if err := portIsFree(ctx, p.port); err != nil {
		return fmt.Errorf("cannot start %s: %w (use -free-ports)", p.name, err)
	}
	p.running = exec.Command(p.command[0], p.command[1:]...) //nolint:gosec,noctx // stop ends it, and gives it time
	p.running.Env = append(os.Environ(), p.environment...)
	p.running.Stdout, p.running.Stderr = os.Stdout, os.Stderr
	p.running.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches the shop only, which ends all in order
	if err := p.running.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w", p.name, err)
	}
	p.ended = make(chan struct{})
	go p.wait()
	if err := p.listens(ctx); err != nil {
		p.stop()
		return fmt.Errorf("cannot start %s: %w", p.name, err)
	}
	return nil
}

// wait waits for the end of the process, and ends its children then.
func (p *process) wait() {
	p.why = p.running.Wait()
	if p.why == nil {
		p.why = errors.New("exit status 0")
	}
	p.signal(syscall.SIGKILL)
	close(p.ended)
}

// signal sends a signal to the process and its children.
func (p *process) signal(signal syscall.Signal) { _ = syscall.Kill(-p.running.Process.Pid, signal) }

// listens waits until the process listens.
func (p *process) listens(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, starting, fmt.Errorf("it does not listen on %s after %v", address(p.port), starting))
	defer cancel()
	for {
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", address(p.port))
		if err == nil {
			return connection.Close()
		}
		select {
		case <-p.ended:
			return fmt.Errorf("it ended: %w", p.why)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// keep starts the process again, some time after its end, until ctx ends.
func (p *process) keep(ctx context.Context, restart time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.ended:
		}
		fmt.Printf("%s ended: %v\n", p.name, p.why)
		for again := false; !again; {
			if restart == 0 || !sleep(ctx, restart) {
				return
			}
			err := p.start(ctx)
			if again = err == nil; !again {
				fmt.Println(err)
			}
		}
		fmt.Printf("%s runs again, as process %d\n", p.name, p.running.Process.Pid)
	}
}

// stop ends the process, and gives it time for its last report.
func (p *process) stop() {
	select {
	case <-p.ended:
		return
	default:
	}
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(ending):
		fmt.Printf("%s is killed: it does not end after %v\n", p.name, ending)
		p.signal(syscall.SIGKILL)
		<-p.ended
	}
}
