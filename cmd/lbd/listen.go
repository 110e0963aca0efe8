package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	unixPrefix = "unix:"
	// socketMode lets the daemon's user and group connect.
	socketMode = 0o660
)

// validAddress says what is wrong with an address to listen on.
func validAddress(address string) error {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		if path == "" {
			return errors.New("has no path after the unix prefix")
		}
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return errors.New("is neither host:port nor unix:PATH")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("has port %q, which is no number from 0 to 65535", port)
	}
	return nil
}

// listen listens on an address. A socket file that a daemon left behind when it
// was killed is replaced; one that somebody answers on is not.
func listen(ctx context.Context, address string) (net.Listener, error) {
	path, unix := strings.CutPrefix(address, unixPrefix)
	if !unix {
		return new(net.ListenConfig).Listen(ctx, "tcp", address)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
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
		return fmt.Errorf("listen on %s: the path exists and is no socket", path)
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("listen on %s: another process answers there", path), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	return os.Remove(path)
}

// printable is a listener's address as it can be given to --listen and to curl.
func printable(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return unixPrefix + l.Addr().String()
	}
	return l.Addr().String()
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		_ = l.Close() // the server may have closed it
	}
}
