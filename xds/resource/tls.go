package resource

import "reflect"

// Security is the TLS of connections to a cluster's endpoints (gRFC A29). Instances are the
// names of the bootstrap's certificate providers, certificates the names within them.
type Security struct {
	// RootInstance has the roots for a server's certificate; empty if SystemRoots is true
	// (gRFC A82).
	RootInstance, RootCertificate string
	SystemRoots                   bool
	// IdentityInstance has the client's own certificate; empty for none.
	IdentityInstance, IdentityCertificate string
	// SANs are the accepted subject alternative names of a server's certificate; empty
	// accepts any. The server's name is not compared with anything else.
	SANs []StringMatch
	// SNI is the server name that is sent; AutoHostSNI sends the endpoint's hostname, and
	// AutoSANValidation requires the name that was sent in the certificate (gRFC A101).
	SNI               string
	AutoHostSNI       bool
	AutoSANValidation bool
}

// Equal reports whether s and o are equal. Both may be nil.
func (s *Security) Equal(o *Security) bool { return s == o || reflect.DeepEqual(s, o) }
