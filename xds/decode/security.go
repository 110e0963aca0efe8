package decode

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	// tlsName is what a transport_socket of TLS is called.
	tlsName = "envoy.transport_sockets.tls"
	// plainName is what a transport_socket without TLS is called. gRPC rejects it
	// from a server.
	plainName = "envoy.transport_sockets.raw_buffer"
	// plainConfig is the message that it may have as its config.
	plainConfig = "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"
	// maxSNIBytes is the longest server name of TLS.
	maxSNIBytes = 255
)

// plainConnect says how to ask for connections without TLS.
const plainConnect = `for connections without TLS write metadata: {filter_metadata: {lbd: {connect: tcp}}}`

// tlsValidator validates transport sockets.
type tlsValidator struct{ *report }

// cluster judges a cluster's transport_socket, and returns nil if connections are
// plain. A transport_socket that lbd cannot honor is a reason to refuse the
// cluster, unless the author asks for plain connections: it may be meant for
// Envoy, which obtains certificates in other ways.
func (v tlsValidator) cluster(m *clusterv3.Cluster, connect resource.ConnectMode) *resource.Security {
	socket := m.GetTransportSocket()
	if socket == nil {
		return nil
	}
	const field = "transport_socket"
	if !v.byHand {
		return v.upstream(socket, field)
	}
	if isPlain(socket) && connect != resource.ConnectTLS {
		return nil
	}
	plain := connect == resource.ConnectTCP || connect == resource.ConnectTCPHold || connect == resource.ConnectNone
	aside := tlsValidator{&report{byHand: true, stored: v.stored && !plain, secured: v.secured, certificates: v.certificates}}
	s := aside.upstream(socket, field)
	v.warnings.append(&aside.warnings)
	if aside.problems.empty() {
		v.unapplied.list = append(v.unapplied.list, aside.unapplied.list...)
		return s
	}
	for i, why := range aside.problems.list {
		switch {
		case plain:
			v.warn(why.Field, "%s; connections are plain, without TLS, as lbd.connect %q asks for", why.Reason, connect)
		case i == 0:
			v.rejectNew(why.Field, why.Reason+"; "+plainConnect, "transport_socket is not applied")
		default:
			v.rejectNew(why.Field, why.Reason, "transport_socket is not applied")
		}
	}
	return nil
}

// isPlain reports whether a transport_socket is one without TLS by its name and by
// its config: Envoy goes by the type of the config, whatever the name.
func isPlain(socket *corev3.TransportSocket) bool {
	config := socket.GetTypedConfig()
	return socket.GetName() == plainName && (config == nil || config.GetTypeUrl() == typeURLPrefix+plainConfig)
}

// upstream judges a transport_socket, which gRPC takes only where it is TLS with
// certificate providers of the bootstrap.
func (v tlsValidator) upstream(socket *corev3.TransportSocket, field string) *resource.Security {
	var m tlsv3.UpstreamTlsContext
	if !v.tlsSocket(socket, &m, field) {
		return nil
	}
	field += ".typed_config"
	v.fields(&m, field)
	s, problem := tlsSide{}.security(m.GetCommonTlsContext())
	if problem != nil {
		v.reject(join(field, problem.Field), "%s", problem.Reason)
		return nil
	}
	v.instances(s, field+".common_tls_context")
	v.provided(s, field+".common_tls_context")
	if n := len(m.GetSni()); n > maxSNIBytes {
		v.reject(field+".sni", "is %d bytes long, of at most %d", n, maxSNIBytes)
	}
	s.SNI, s.AutoHostSNI, s.AutoSANValidation = m.GetSni(), m.GetAutoHostSni(), m.GetAutoSniSanValidation()
	return s
}

// tlsSocket reads a transport_socket that must be TLS.
func (v tlsValidator) tlsSocket(socket *corev3.TransportSocket, m proto.Message, field string) bool {
	if name := socket.GetName(); name != tlsName {
		v.reject(field+".name", "is %q: it must be %q", name, tlsName)
		return false
	}
	if url := socket.GetTypedConfig().GetTypeUrl(); url != typeURLPrefix+string(nameOf(m)) {
		v.reject(field+".typed_config", "is %q: it must be a %s", url, nameOf(m))
		return false
	}
	return v.carries(socket.GetTypedConfig(), m, field+".typed_config")
}

// instances judges whether the bootstrap has the certificate providers.
func (v tlsValidator) instances(s *resource.Security, field string) {
	for _, name := range []string{s.RootInstance, s.IdentityInstance} {
		if _, _, ok := v.instance(name); name != "" && !ok {
			v.rejectInstance(field, name)
			return
		}
	}
}

// provided judges whether the certificate providers of a cluster have what they are
// named for.
func (v tlsValidator) provided(s *resource.Security, field string) {
	if roots, _, ok := v.instance(s.RootInstance); ok && !roots {
		v.withoutRoots(field, s.RootInstance)
	}
	if _, identity, ok := v.instance(s.IdentityInstance); ok && !identity {
		v.withoutIdentity(field, s.IdentityInstance)
	}
}

func (v tlsValidator) instance(name string) (roots, identity, ok bool) {
	if v.certificates == nil {
		return false, false, false
	}
	return v.certificates(name)
}

// rejectInstance refuses a provider that the bootstrap does not have. The
// connections of a stored cluster do not become plain because a provider was
// removed from the bootstrap, or the bootstrap was. But an older lbd that had no
// bootstrap accepted such a cluster, and made plain connections.
func (v tlsValidator) rejectInstance(field, name string) {
	const reason = "names the certificate provider instance %q, which the bootstrap does not have"
	if v.byHand && v.stored && (v.certificates != nil || v.secured) {
		v.warn(field, reason+": every TLS handshake fails", name)
		return
	}
	v.reject(field, reason, name)
}

// withoutRoots judges a provider of roots that has none. gRPC accepts it from a
// server, and then trusts the system's roots; lbd does not.
func (v tlsValidator) withoutRoots(field, name string) {
	const reason = "takes the roots from the certificate provider instance %q, which has no ca_certificate_file in the bootstrap: "
	if !v.byHand || v.stored {
		v.warn(field, reason+"every TLS handshake fails; add it, or write system_root_certs", name)
		return
	}
	v.reject(field, reason+"add it, or write system_root_certs: {} to trust the system's roots", name)
}

// withoutIdentity judges a provider of the client's certificate that has none. gRPC
// accepts it from a server, and shows no certificate.
func (v tlsValidator) withoutIdentity(field, name string) {
	const reason = "takes the client's certificate from the certificate provider instance %q, which has no certificate_file in the bootstrap: "
	if !v.byHand || v.stored {
		v.warn(field, reason+"no certificate is shown to servers", name)
		return
	}
	v.reject(field, reason+"add it with private_key_file, or remove tls_certificate_provider_instance", name)
}

// tlsSide is whose side of TLS is judged.
type tlsSide struct{ server bool }

// security judges a CommonTlsContext. The problem's field begins at the context
// that holds it.
func (t tlsSide) security(m *tlsv3.CommonTlsContext) (*resource.Security, *Problem) {
	const field = "common_tls_context"
	switch {
	case m == nil:
		return nil, &Problem{Field: field, Reason: "is absent"}
	case m.GetTlsParams() != nil:
		return nil, &Problem{Field: field + ".tls_params", Reason: "is not supported"}
	case m.GetCustomHandshaker() != nil:
		return nil, &Problem{Field: field + ".custom_handshaker", Reason: "is not supported"}
	}
	s, why := t.instances(m)
	if s == nil || s.Equal(&resource.Security{}) {
		var problem *Problem
		if s, problem = t.deprecated(m); problem != nil {
			if why == nil {
				why = problem
			}
			return nil, &Problem{Field: within(field, why.Field), Reason: why.Reason}
		}
	}
	switch {
	case t.server && s.IdentityInstance == "":
		if why == nil {
			why = &Problem{Field: "tls_certificate_provider_instance", Reason: "is absent"}
		}
	case !t.server && !s.SystemRoots && s.RootInstance == "":
		if why == nil {
			why = &Problem{
				Field:  "validation_context",
				Reason: "names no certificate provider instance for the roots: write ca_certificate_provider_instance, or system_root_certs",
			}
		}
	default:
		return s, nil
	}
	return nil, &Problem{Field: within(field, why.Field), Reason: why.Reason}
}

// instances takes the certificate providers that a context names.
func (t tlsSide) instances(m *tlsv3.CommonTlsContext) (*resource.Security, *Problem) {
	identity := m.GetTlsCertificateProviderInstance()
	if identity == nil {
		const instead = "is not supported: write tls_certificate_provider_instance"
		if len(m.GetTlsCertificates()) > 0 {
			return nil, &Problem{Field: "tls_certificates", Reason: instead}
		}
		if len(m.GetTlsCertificateSdsSecretConfigs()) > 0 {
			return nil, &Problem{Field: "tls_certificate_sds_secret_configs", Reason: instead}
		}
	}
	s := &resource.Security{IdentityInstance: identity.GetInstanceName(), IdentityCertificate: identity.GetCertificateName()}
	var context *tlsv3.CertificateValidationContext
	field := oneof(m, "validation_context_type")
	switch c := m.GetValidationContextType().(type) {
	case *tlsv3.CommonTlsContext_ValidationContext:
		context = c.ValidationContext
	case *tlsv3.CommonTlsContext_CombinedValidationContext:
		context = c.CombinedValidationContext.GetDefaultValidationContext()
		field += ".default_validation_context"
	case nil:
		return s, nil
	default:
		return nil, &Problem{Field: field, Reason: "is not supported: write validation_context"}
	}
	if name := unsupported(context); name != "" {
		return nil, &Problem{Field: field + "." + name, Reason: "is not supported"}
	}
	root := context.GetCaCertificateProviderInstance()
	switch {
	case root != nil:
		s.RootInstance, s.RootCertificate = root.GetInstanceName(), root.GetCertificateName()
	case context.GetSystemRootCerts() != nil && !t.server:
		s.SystemRoots = true
	default:
		return nil, &Problem{Field: field + ".ca_certificate_provider_instance", Reason: "is absent, and there is no other way to the roots but system_root_certs"}
	}
	var problem *Problem
	s.SANs, problem = t.sans(context, field)
	if problem != nil {
		return nil, problem
	}
	return s, nil
}

// unsupported names what a context has that would have to be heeded.
func unsupported(m *tlsv3.CertificateValidationContext) string {
	switch {
	case len(m.GetVerifyCertificateSpki()) > 0:
		return "verify_certificate_spki"
	case len(m.GetVerifyCertificateHash()) > 0:
		return "verify_certificate_hash"
	case m.GetRequireSignedCertificateTimestamp().GetValue():
		return "require_signed_certificate_timestamp"
	case m.GetCrl() != nil:
		return "crl"
	case m.GetCustomValidatorConfig() != nil:
		return "custom_validator_config"
	default:
		return ""
	}
}

// sans judges the names of which a certificate must bear one.
func (t tlsSide) sans(m *tlsv3.CertificateValidationContext, field string) ([]resource.StringMatch, *Problem) {
	list := m.GetMatchSubjectAltNames()
	if len(list) == 0 {
		return nil, nil
	}
	field += ".match_subject_alt_names"
	if t.server {
		return nil, &Problem{Field: field, Reason: "is not supported in a server's listener"}
	}
	r := regexes{report: &report{}}
	sans := make([]resource.StringMatch, len(list))
	for i, san := range list {
		sans[i] = r.stringMatch(element(field, i), san)
	}
	if len(r.problems.list) > 0 {
		return nil, &r.problems.list[0]
	}
	return sans, nil
}

// deprecated takes the certificate providers by the fields that were there
// first.
func (t tlsSide) deprecated(m *tlsv3.CommonTlsContext) (*resource.Security, *Problem) {
	s := &resource.Security{}
	if identity := m.GetTlsCertificateCertificateProviderInstance(); identity != nil {
		s.IdentityInstance, s.IdentityCertificate = identity.GetInstanceName(), identity.GetCertificateName()
	}
	var root *tlsv3.CommonTlsContext_CertificateProviderInstance
	field := oneof(m, "validation_context_type")
	switch c := m.GetValidationContextType().(type) {
	case *tlsv3.CommonTlsContext_CombinedValidationContext:
		sans, problem := t.sans(c.CombinedValidationContext.GetDefaultValidationContext(), field+".default_validation_context")
		if problem != nil {
			return nil, problem
		}
		s.SANs = sans
		root = c.CombinedValidationContext.GetValidationContextCertificateProviderInstance()
	case *tlsv3.CommonTlsContext_ValidationContextCertificateProviderInstance:
		root = c.ValidationContextCertificateProviderInstance
	case nil:
	default:
		return nil, &Problem{Field: field, Reason: "is not supported: write validation_context"}
	}
	s.RootInstance, s.RootCertificate = root.GetInstanceName(), root.GetCertificateName()
	return s, nil
}
