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

// activated returns the sockets that systemd listens on for this process
// (sd_listen_fds(3)), in the order of the socket unit; none where it was not
// started so. A socket file among them stays when its listener is closed: it is
// systemd's.
func activated() (listeners []net.Listener, err error) {
	files := activation.Files(true)
	for _, f := range files {
		l, listenErr := net.FileListener(f)
		err = errors.Join(err, f.Close()) // the listener has a descriptor of its own
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

// replaced returns the addresses, the default aside, that none of the listeners
// serves.
func replaced(specs []listen.Spec, listeners []net.Listener) (missing []string) {
	for _, s := range specs {
		if a := s.Address; a != defaultListen && !slices.ContainsFunc(listeners, func(l net.Listener) bool { return serves(l, a) }) {
			missing = append(missing, a)
		}
	}
	return missing
}

// serves reports whether a listener is what an address of --listen asks for: a
// socket unit may spell it in another way. A name but localhost is not looked up.
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

// notify tells systemd, where it asked to be told (sd_notify(3)). That it cannot
// be told stops nothing here: it will say so itself.
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd cannot be told", "state", state, "error", err)
	}
}
