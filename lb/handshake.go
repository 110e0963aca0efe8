package lb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Certificates has the certificates that clusters' security names by the instance
// of their provider (gRFC A29).
type Certificates interface {
	// Certificates returns what the provider of an instance has now: the
	// certificates to show and the roots to trust, each nil if it has none. They are
	// not changed. It may be called from any goroutine, and may read files.
	Certificates(instance string) (identity []tls.Certificate, roots *x509.CertPool, err error)
}

// verdictTime is how long, beyond what the handshake took, a server that asked for
// a certificate has to refuse it. In TLS 1.3 a client's side of the handshake ends
// before the server has seen the certificate.
const verdictTime = 250 * time.Millisecond

// protocols are offered by ALPN: gRPC's, and, as lbd's upstreams are not all of
// gRPC, the one that most others have. A server that knows neither may refuse.
var protocols = []string{"h2", "http/1.1"}

// handshake is one handshake of TLS.
type handshake struct {
	security *resource.Security // nil where the system's roots and the name count
	roots    *x509.CertPool     // nil for the system's, if security asks for them
	identity []tls.Certificate
	name     string // that is sent, and may count; empty for none

	asked, shown bool // a certificate of the client
}

// roots asks a certificate provider for roots. It must have some: x509 takes none
// for the system's, which the cluster does not ask for.
func rootsOf(c Certificates, instance string) (*x509.CertPool, error) {
	_, roots, err := provided(c, instance)
	if err == nil && roots == nil {
		err = fmt.Errorf("certificate provider %q has no roots to check the server's certificate with: add ca_certificate_file to it in the bootstrap", instance)
	}
	return roots, err
}

// provided asks a certificate provider.
func provided(c Certificates, instance string) (identity []tls.Certificate, roots *x509.CertPool, err error) {
	if c == nil {
		return nil, nil, fmt.Errorf("certificate provider %q: there is no bootstrap that has it", instance)
	}
	identity, roots, err = c.Certificates(instance)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate provider %q: %w", instance, err)
	}
	return identity, roots, nil
}

func (h *handshake) config() *tls.Config {
	c := &tls.Config{ServerName: h.name, NextProtos: protocols, GetClientCertificate: h.certificate}
	if h.security != nil {
		// crypto/tls checks the name with the chain, or nothing: verify checks what
		// gRPC does.
		c.InsecureSkipVerify, c.VerifyConnection = true, h.verify
	}
	return c
}

// certificate chooses what to show to a server that asks.
func (h *handshake) certificate(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	h.asked = true
	for i := range h.identity {
		if request.SupportsCertificate(&h.identity[i]) == nil {
			h.shown = true
			return &h.identity[i], nil
		}
	}
	return new(tls.Certificate), nil
}

// awaitVerdict waits until the server has refused the certificate that it asked
// for, or for so long that it will have taken it. A server that has nothing to say
// is told that nothing will come from here, where the connection is not to be
// held: then it hangs up, and nobody waits.
func (h *handshake) awaitVerdict(ctx context.Context, conn *tls.Conn, hold bool, limit time.Duration) error {
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	unhook := context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })
	defer unhook()
	if !hold {
		_ = conn.CloseWrite() // reading tells what is wrong
	}
	_ = conn.SetReadDeadline(time.Now().Add(limit))
	_, err := conn.Read(make([]byte, 1)) // what an endpoint sends is thrown away
	_ = conn.SetReadDeadline(time.Time{})
	var timeout net.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil
	case isAlert(err):
		return h.explain(err)
	case hold:
		return fmt.Errorf("connection lost: %w", err)
	default: // it hung up
		return nil
	}
}

// isAlert reports whether the server has sent why it ends the connection.
func isAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// explain adds to what a server refused what it knew of the client.
func (h *handshake) explain(err error) error {
	switch {
	case !h.asked || !isAlert(err):
		return err
	case h.shown:
		return fmt.Errorf("%w: it was shown the certificate of provider %q", err, h.security.IdentityInstance)
	case len(h.identity) > 0:
		return fmt.Errorf("%w: it asked for a certificate, and none of provider %q is one that it takes", err, h.security.IdentityInstance)
	default:
		return fmt.Errorf("%w: it asked for a certificate, and the cluster has none to show", err)
	}
}

// verify judges the server's certificate as gRPC does: the chain, then the names.
func (h *handshake) verify(cs tls.ConnectionState) error {
	leaf := cs.PeerCertificates[0] // crypto/tls refuses a server without one
	intermediates := x509.NewCertPool()
	for _, c := range cs.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots: h.roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}); err != nil {
		return fmt.Errorf("the server's certificate, of %s, checked with the roots of %s: %w", presented(leaf), h.rootsName(), err)
	}
	wanted := h.wanted(leaf)
	if wanted == "" {
		return nil
	}
	return fmt.Errorf("the server's certificate is of %s: wanted %s", presented(leaf), wanted)
}

func (h *handshake) rootsName() string {
	if h.security.SystemRoots {
		return "the system"
	}
	return fmt.Sprintf("certificate provider %q", h.security.RootInstance)
}

// bareHost is a host without the port that may follow it.
func bareHost(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}
