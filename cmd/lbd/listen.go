package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/lbd-dev/lbd/api/listen"
)

// listenOn listens on an address. It replaces a socket file of a killed daemon, but not one on
// which a process accepts connections.
func listenOn(ctx context.Context, spec listen.Spec) (net.Listener, error) {
	path, unix := strings.CutPrefix(spec.Address, listen.UnixPrefix)
	if !unix {
		return new(net.ListenConfig).Listen(ctx, "tcp", spec.Address)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, spec.Mode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("listen on %s: the path exists and is not a socket", path)
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("listen on %s: another process listens there", path), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	return os.Remove(path)
}

// printable returns the address of a listener in the form of --listen.
func printable(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return listen.UnixPrefix + l.Addr().String()
	}
	return l.Addr().String()
}

func closeAll[L net.Listener](listeners []L) {
	for _, l := range listeners {
		_ = l.Close() // the server may have closed it
	}
}
