package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"

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

// activated returns the sockets that systemd passes (sd_listen_fds(3)), in the order of the
// socket unit. Closing a listener does not remove its socket file, which systemd owns.
func activated() (listeners []net.Listener, err error) {
	files := activation.Files(true)
	for _, f := range files {
		l, listenErr := net.FileListener(f)
		err = errors.Join(err, f.Close()) // the listener has its own descriptor
		if listenErr != nil {
			err = errors.Join(err, fmt.Errorf("listen on %s, which systemd passed: %w", f.Name(), listenErr))
			continue
		}
		listeners = append(listeners, l)
	}
	if err != nil {
		closeAll(listeners)
		return nil, err
	}
	return listeners, nil
}

// replaced returns the addresses, without the default, that no listener serves.
func replaced(specs []listen.Spec, listeners []net.Listener) (missing []string) {
	for _, s := range specs {
		if a := s.Address; a != defaultListen && !slices.ContainsFunc(listeners, func(l net.Listener) bool { return serves(l, a) }) {
			missing = append(missing, a)
		}
	}
	return missing
}

// serves reports whether a listener serves an address of --listen, which a socket unit may
// spell differently. It resolves no names but localhost.
func serves(l net.Listener, address string) bool {
	if printable(l) == address {
		return true
	}
	at, ok := l.Addr().(*net.TCPAddr)
	host, port, err := net.SplitHostPort(address)
	if !ok || err != nil || port != strconv.Itoa(at.Port) {
		return false
	}
	ip := net.ParseIP(host)
	switch {
	case host == "" || ip != nil && ip.IsUnspecified():
		return at.IP.IsUnspecified()
	case host == "localhost":
		return at.IP.IsLoopback() || at.IP.IsUnspecified()
	default:
		return ip.Equal(at.IP) || ip != nil && at.IP.IsUnspecified()
	}
}

// notify sends a state to systemd if NOTIFY_SOCKET is set (sd_notify(3)). An error is only
// logged: systemd reports the missing state itself.
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("cannot notify systemd", "state", state, "error", err)
	}
}
