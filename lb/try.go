package lb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Attempt is a connection that [Dialer.Try] makes.
type Attempt struct {
	Mode resource.ConnectMode
	// Security is that of the endpoint's cluster; nil for none.
	Security *resource.Security
	// Hostname is that of the endpoint.
	Hostname string
	Address  string
}

// Try connects to an address as a SubConn of such an endpoint does, within timeout, and closes the
// connection. It waits for none of the dialer's slots: its callers limit how many run at once. Of SubConns, it
// only ends the back-off of those that wait for the address. It returns the certificate of the server; nil
// without TLS.
func (d *Dialer) Try(ctx context.Context, a Attempt, timeout time.Duration) (*x509.Certificate, error) {
	c := tcpConnector{dialer: d, security: a.Security, tls: a.Mode == resource.ConnectTLS}.named(a.Hostname)
	conn, err := c.dial(ctx, a.Address, timeout, func() {})
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	if secured, ok := conn.(*tls.Conn); ok {
		return secured.ConnectionState().PeerCertificates[0], nil
	}
	return nil, nil
}
