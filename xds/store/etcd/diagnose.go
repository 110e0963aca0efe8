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
