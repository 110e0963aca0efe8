package resource

import "reflect"

// Security is how connections to a cluster's endpoints are secured by TLS (gRFC
// A29). Instances are the names of the bootstrap's certificate providers,
// certificates what they are asked for.
type Security struct {
	// RootInstance has the roots that a server's certificate is checked with;
	// empty where SystemRoots is true (gRFC A82).
	RootInstance, RootCertificate string
	SystemRoots                   bool
	// IdentityInstance has the client's own certificate; empty for none.
	IdentityInstance, IdentityCertificate string
	// SANs are the subject alternative names of which a server's certificate must
	// bear one; any will do where there are none. Nothing else of the server is
	// compared with its name.
	SANs []StringMatch
	// SNI is the server name that is sent; AutoHostSNI sends the endpoint's
	// hostname, and AutoSANValidation wants the certificate to bear the name that
	// was sent (gRFC A101).
	SNI               string
	AutoHostSNI       bool
	AutoSANValidation bool
}

// Equal reports whether s and o, either of which may be nil, say the same.
func (s *Security) Equal(o *Security) bool { return s == o || reflect.DeepEqual(s, o) }
