package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/lbd-dev/lbd/api/listen"
)

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
