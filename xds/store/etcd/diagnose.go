package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// diagnoseTimeout is the time that a connection may take to find out what is wrong with it.
const diagnoseTimeout = 2 * time.Second

// outdated says which members of etcd are older than 3.5, the first version that lbd is tested with, of those that respond.
func (s *Store) outdated(ctx context.Context) (members []string) {
	for _, endpoint := range s.config.Endpoints {
		request, cancel := context.WithTimeout(ctx, diagnoseTimeout)
		res, err := s.client.Load().Status(request, endpoint)
		cancel()
		var major, minor int
		if err != nil {
			continue
		}
		if n, _ := fmt.Sscanf(res.Version, "%d.%d", &major, &minor); n == 2 && (major < 3 || major == 3 && minor < 5) {
			members = append(members, fmt.Sprintf("%s has version %s", endpoint, res.Version))
		}
	}
	return members
}

// checkVersions records which members are outdated.
func (s *Store) checkVersions(ctx context.Context) {
	members := s.outdated(ctx)
	if was := s.old.Swap(&members); len(members) > 0 && (was == nil || len(*was) == 0) {
		s.logger.Warn("etcd is older than 3.5, which lbd needs", "members", members)
	}
}

// unreachableError is why the members do not respond, of each one.
type unreachableError struct {
	reasons []string
	err     error
}

func (e *unreachableError) Error() string {
	return "etcd did not respond: " + strings.Join(e.reasons, "; ")
}

func (e *unreachableError) Unwrap() error { return e.err }

// diagnose connects to each endpoint to find out why etcd does not respond: its client only says
// that the time is up. Other errors stay as they are.
func (s *Store) diagnose(ctx context.Context, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, diagnoseTimeout)
	defer cancel()
	reasons := make([]string, len(s.config.Endpoints))
	var group sync.WaitGroup
	for i, endpoint := range s.config.Endpoints {
		group.Go(func() { reasons[i] = endpoint + ": " + s.checkEndpoint(ctx, endpoint) })
	}
	group.Wait()
	return &unreachableError{reasons, err}
}

// checkEndpoint says what happens to a connection.
func (s *Store) checkEndpoint(ctx context.Context, endpoint string) string {
	var d interface {
		DialContext(ctx context.Context, network, address string) (net.Conn, error)
	} = new(net.Dialer)
	silent := "it accepts connections, and does not respond"
	if s.config.TLS != nil {
		config := s.config.TLS.Clone()
		config.NextProtos = []string{"h2"}
		d = &tls.Dialer{Config: config}
	} else {
		silent += "; if it needs TLS, set --store-ca"
	}
	conn, err := d.DialContext(ctx, "tcp", endpoint)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = conn.Close() }() // nothing was written
	// A server that rejects the client certificate says so after the handshake.
	_ = conn.SetReadDeadline(time.Now().Add(diagnoseTimeout / 2))
	_, err = conn.Read(make([]byte, 1))
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		return silent
	}
	return fmt.Sprint(err)
}
