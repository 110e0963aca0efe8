package lb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Certificates provides the certificates that clusters' security names by provider
// instance (gRFC A29).
type Certificates interface {
	// Certificates returns the current certificates to present and roots to trust,
	// each nil if there are none. They are not changed. It may be called from any
	// goroutine, and may read files.
	Certificates(instance string) (identity []tls.Certificate, roots *x509.CertPool, err error)
}

// verdictTime is how long, beyond the handshake, a server that asked for a certificate
// has to reject it. In TLS 1.3, the client's handshake ends before the server has seen
// the certificate.
const verdictTime = 250 * time.Millisecond

// protocols are offered by ALPN: gRPC's, and, for upstreams that do not use gRPC,
// HTTP/1.1. A server that supports neither may refuse.
var protocols = []string{"h2", "http/1.1"}

type handshake struct {
	security *resource.Security // nil where the system's roots and the name count
	roots    *x509.CertPool     // nil for the system's, if security asks for them
	identity []tls.Certificate
	name     string // that is sent, and may count; empty for none

	asked, shown bool // a certificate of the client
}

// rootsOf gets roots from a certificate provider. It must have some: x509 replaces nil
// by the system's, which the cluster does not trust.
func rootsOf(c Certificates, instance string) (*x509.CertPool, error) {
	_, roots, err := provided(c, instance)
	if err == nil && roots == nil {
		err = fmt.Errorf("certificate provider %q has no roots to check the server's certificate with: add ca_certificate_file to it in the bootstrap", instance)
	}
	return roots, err
}

func provided(c Certificates, instance string) (identity []tls.Certificate, roots *x509.CertPool, err error) {
	if c == nil {
		return nil, nil, fmt.Errorf("certificate provider %q: lbd has no bootstrap", instance)
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
		// crypto/tls checks the name together with the chain: verify checks them as
		// gRPC does.
		c.InsecureSkipVerify, c.VerifyConnection = true, h.verify
	}
	return c
}

// certificate chooses the certificate to present.
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

// awaitVerdict waits until the server rejects the certificate that it asked for, or
// has had time to. If the connection is not held, it is half-closed: then a server
// that accepts hangs up without delay.
func (h *handshake) awaitVerdict(ctx context.Context, conn *tls.Conn, hold bool, limit time.Duration) error {
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })()
	if !hold {
		_ = conn.CloseWrite() // the read reports errors
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

// isAlert reports whether the server sent why it ends the connection.
func isAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// explain adds to an alert which certificate the server saw.
func (h *handshake) explain(err error) error {
	switch {
	case !h.asked || !isAlert(err):
		return err
	case h.shown:
		return fmt.Errorf("%w: it rejected the certificate of provider %q", err, h.security.IdentityInstance)
	case len(h.identity) > 0:
		return fmt.Errorf("%w: it asked for a certificate, and accepts none of provider %q", err, h.security.IdentityInstance)
	default:
		return fmt.Errorf("%w: it asked for a certificate, and the cluster has none", err)
	}
}

// verify checks the server's certificate as gRPC does: the chain, then the names.
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

// bareHost removes the port.
func bareHost(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

// maxNames limits the names in an error.
const maxNames = 10

// wanted returns the name that a server's certificate lacks; "" if none. If the name
// that was sent counts (gRFC A101), no other does.
func (h *handshake) wanted(leaf *x509.Certificate) string {
	s := h.security
	if s.AutoSANValidation && h.name != "" {
		if slices.ContainsFunc(leaf.DNSNames, func(san string) bool { return matchesDNS(h.name, san) }) {
			return ""
		}
		return "DNS " + strconv.Quote(h.name) + ", the name that was sent"
	}
	if len(s.SANs) == 0 || namesOneOf(leaf, s.SANs) {
		return ""
	}
	words := make([]string, len(s.SANs))
	for i := range s.SANs {
		words[i] = s.SANs[i].Words()
	}
	return list(words, " or ")
}

// namesOneOf reports whether a certificate has a wanted name. An exact match applies
// to DNS names, including wildcards, and to the text of other names.
func namesOneOf(leaf *x509.Certificate, wanted []resource.StringMatch) bool {
	return slices.ContainsFunc(wanted, func(m resource.StringMatch) bool {
		matches := m.Matches
		if m.Kind == resource.MatchExact && m.Value != "" {
			matches = func(san string) bool { return matchesDNS(m.Value, san) }
		}
		return slices.ContainsFunc(leaf.DNSNames, matches) ||
			slices.ContainsFunc(otherNames(leaf), func(san otherName) bool { return m.Matches(san.name) })
	})
}

// matchesDNS reports whether a certificate's DNS name matches a host. A wildcard
// replaces the whole first label; case and a final dot are ignored.
func matchesDNS(host, san string) bool {
	host, san = absolute(host), absolute(san)
	if !strings.Contains(san, "*") {
		return host == san
	}
	domain, ok := strings.CutPrefix(san, "*.")
	if !ok || domain == "" || strings.Contains(domain, "*") {
		return false
	}
	label, parent, _ := strings.Cut(host, ".")
	return label != "" && parent == domain
}

func absolute(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) + "." }

// otherName is a name in a certificate that is not a DNS name.
type otherName struct{ kind, name string }

func otherNames(leaf *x509.Certificate) []otherName {
	names := make([]otherName, 0, len(leaf.EmailAddresses)+len(leaf.IPAddresses)+len(leaf.URIs))
	for _, n := range leaf.EmailAddresses {
		names = append(names, otherName{"email", n})
	}
	for _, n := range leaf.IPAddresses {
		names = append(names, otherName{"IP", n.String()})
	}
	for _, n := range leaf.URIs {
		names = append(names, otherName{"URI", n.String()})
	}
	return names
}

// presented lists the names in a certificate.
func presented(leaf *x509.Certificate) string {
	words := make([]string, 0, len(leaf.DNSNames))
	for _, n := range leaf.DNSNames {
		words = append(words, fmt.Sprintf("DNS %.255q", n))
	}
	for _, n := range otherNames(leaf) {
		words = append(words, fmt.Sprintf("%s %.255q", n.kind, n.name))
	}
	if len(words) == 0 {
		return "no name"
	}
	return list(words, ", ")
}

func list(words []string, with string) string {
	if more := len(words) - maxNames; more > 0 {
		return strings.Join(words[:maxNames], with) + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(words, with)
}
