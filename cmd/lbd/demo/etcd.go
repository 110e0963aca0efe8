package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// etcdProgram is the program of tools/lbd-etcd: an etcd of its own, so that lbd does not contain one.
const etcdProgram = "lbd-etcd"

// WithEtcd calls f with the address of an etcd that begins empty, is only on loopback, and ends with f, or
// when this process is killed.
func WithEtcd(ctx context.Context, f func(ctx context.Context, address string) error) error {
	path, err := findEtcd()
	if err != nil {
		return err
	}
	// It serves until f has returned, which may be after the end of ctx.
	etcd := exec.CommandContext(context.WithoutCancel(ctx), path) //nolint:gosec // the program of lbd, where its user has installed it
	etcd.Stderr = os.Stderr
	in, err := etcd.StdinPipe() // etcd ends when this end of the pipe is closed, by whatever
	if err != nil {
		return err
	}
	out, err := etcd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := etcd.Start(); err != nil {
		return fmt.Errorf("start the demo's etcd: %w", err)
	}
	starting := context.AfterFunc(ctx, func() { _ = in.Close() })
	address, err := bufio.NewReader(out).ReadString('\n')
	if !starting() || err != nil {
		_ = in.Close()
		err = errors.Join(err, etcd.Wait())
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("start the demo's etcd, %s: %w", path, err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		err := etcd.Wait()
		stop()
		ended <- err
	}()
	err = f(ctx, strings.TrimSpace(address))
	_ = in.Close() // fails if etcd has ended
	if end := <-ended; end != nil {
		err = errors.Join(err, fmt.Errorf("the demo's etcd: %w", end))
	}
	return err
}

// findEtcd returns the path of the program, which is beside this one or in PATH.
func findEtcd() (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), etcdProgram)); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(etcdProgram)
	if err != nil {
		return "", fmt.Errorf(`--replicas starts the program %s, which is neither beside lbd nor in PATH: build it with "make bin/%[1]s" `+
			"in the source of lbd; or start an etcd, and give its address with --store etcd://127.0.0.1:2379/demo", etcdProgram)
	}
	return path, nil
}
