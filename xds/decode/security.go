package decode

import (
	"cmp"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	tlsName = "envoy.transport_sockets.tls" // of a transport_socket of TLS
	// plainName and plainConfig are the name and the config of a transport_socket without
	// TLS. gRPC rejects it from a server.
	plainName   = "envoy.transport_sockets.raw_buffer"
	plainConfig = "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"
	maxSNIBytes = 255 // of a server name of TLS
)

const plainConnect = `for connections without TLS write metadata: {filter_metadata: {lbd: {connect: tcp}}}`

type tlsValidator struct{ *report }

// cluster validates a cluster's transport_socket, and returns nil if connections are
// plain. A transport_socket that lbd does not support rejects the cluster, unless the
// author asks for plain connections: it may be meant for Envoy, which obtains certificates
// in other ways.
func (v tlsValidator) cluster(m *clusterv3.Cluster, connect resource.ConnectMode) *resource.Security {
	socket := m.GetTransportSocket()
	if socket == nil {
		return nil
	}
	if !v.byHand {
		return v.upstream(socket)
	}
	// Envoy goes by the type of the config, whatever the name.
	isPlain := socket.GetName() == plainName && (socket.GetTypedConfig() == nil || socket.GetTypedConfig().GetTypeUrl() == typeURLPrefix+plainConfig)
	if isPlain && connect != resource.ConnectTLS {
		return nil
	}
	plain := connect == resource.ConnectTCP || connect == resource.ConnectTCPHold || connect == resource.ConnectNone
	aside := tlsValidator{&report{Options: v.Options, byHand: true}}
	aside.Stored = v.Stored && !plain
	s := aside.upstream(socket)
	v.warnings.append(&aside.warnings)
	if aside.problems.empty() {
		v.unapplied.list = append(v.unapplied.list, aside.unapplied.list...)
		return s
	}
	for i, why := range aside.problems.list {
		reason := why.Reason
		if i == 0 {
			reason += "; " + plainConnect
		}
		if plain {
			v.warn(why.Field, "%s; ignored: lbd.connect is %q, so connections do not use TLS", why.Reason, connect)
		} else {
			v.reject(why.Field, "%s", reason)
		}
	}
	return nil
}

// upstream validates a transport_socket, which gRPC accepts only if it is TLS with
// certificate providers of the bootstrap.
func (v tlsValidator) upstream(socket *corev3.TransportSocket) *resource.Security {
	field := "transport_socket"
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
	v.contents(s, field+".common_tls_context")
	if n := len(m.GetSni()); n > maxSNIBytes {
		v.reject(field+".sni", "is %d bytes long, of at most %d", n, maxSNIBytes)
	}
	s.SNI, s.AutoHostSNI, s.AutoSANValidation = m.GetSni(), m.GetAutoHostSni(), m.GetAutoSniSanValidation()
	return s
}

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

// instances rejects certificate providers that the bootstrap does not have. A stored cluster
// stays, and its connections do not become plain, when a provider is removed from the bootstrap,
// or the bootstrap is.
func (v tlsValidator) instances(s *resource.Security, field string) {
	const reason = "names the certificate provider instance %q, which the bootstrap does not have"
	for _, name := range []string{s.RootInstance, s.IdentityInstance} {
		if _, _, ok := v.instance(name); name == "" || ok {
			continue
		}
		if v.byHand && v.Stored {
			v.warn(field, reason+": every TLS handshake fails", name)
		} else {
			v.reject(field, reason, name)
		}
		return
	}
}

func (v tlsValidator) instance(name string) (roots, identity, ok bool) {
	if v.Certificates == nil {
		return false, false, false
	}
	return v.Certificates(name)
}

// contents validates that the certificate providers have what the cluster uses them for.
// gRPC accepts others from a server: without roots it trusts the system's, which lbd does
// not, and without an identity it shows no certificate.
func (v tlsValidator) contents(s *resource.Security, field string) {
	check := func(reason, name, effect, remedy string) {
		if !v.byHand || v.Stored {
			v.warn(field, reason+effect, name)
		} else {
			v.reject(field, reason+remedy, name)
		}
	}
	if roots, _, ok := v.instance(s.RootInstance); ok && !roots {
		check("takes the roots from the certificate provider instance %q, which has no ca_certificate_file in the bootstrap: ", s.RootInstance,
			"every TLS handshake fails; add it, or write system_root_certs",
			"add it, or write system_root_certs: {} to trust the system's roots")
	}
	if _, identity, ok := v.instance(s.IdentityInstance); ok && !identity {
		check("takes the client's certificate from the certificate provider instance %q, which has no certificate_file in the bootstrap: ", s.IdentityInstance,
			"no certificate is shown to servers",
			"add it with private_key_file, or remove tls_certificate_provider_instance")
	}
}

// tlsSide is the side of TLS that is validated.
type tlsSide struct{ server bool }

// security validates a CommonTlsContext. The problem's field begins at the context
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
		s, problem = t.deprecated(m)
		why = cmp.Or(why, problem)
	}
	switch {
	case s == nil:
	case t.server && s.IdentityInstance == "":
		why = cmp.Or(why, &Problem{Field: "tls_certificate_provider_instance", Reason: "is absent"})
	case !t.server && !s.SystemRoots && s.RootInstance == "":
		why = cmp.Or(why, &Problem{
			Field:  "validation_context",
			Reason: "names no certificate provider instance for the roots: write ca_certificate_provider_instance, or system_root_certs",
		})
	default:
		return s, nil
	}
	return nil, &Problem{Field: within(field, why.Field), Reason: why.Reason}
}

const writeValidationContext = "is not supported: write validation_context"

// instances returns the certificate providers that a context names.
func (t tlsSide) instances(m *tlsv3.CommonTlsContext) (*resource.Security, *Problem) {
	identity := m.GetTlsCertificateProviderInstance()
	for name := range set(m) {
		if identity == nil && (name == "tls_certificates" || name == "tls_certificate_sds_secret_configs") {
			return nil, &Problem{Field: string(name), Reason: "is not supported: write tls_certificate_provider_instance"}
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
		return nil, &Problem{Field: field, Reason: writeValidationContext}
	}
	for name := range set(context) {
		switch name {
		case "verify_certificate_spki", "verify_certificate_hash", "require_signed_certificate_timestamp", "crl", "custom_validator_config":
			if name != "require_signed_certificate_timestamp" || context.GetRequireSignedCertificateTimestamp().GetValue() {
				return nil, &Problem{Field: join(field, string(name)), Reason: "is not supported"}
			}
		}
	}
	root := context.GetCaCertificateProviderInstance()
	switch {
	case root != nil:
		s.RootInstance, s.RootCertificate = root.GetInstanceName(), root.GetCertificateName()
	case context.GetSystemRootCerts() != nil && !t.server:
		s.SystemRoots = true
	default:
		return nil, &Problem{Field: field + ".ca_certificate_provider_instance", Reason: "required, unless system_root_certs is set"}
	}
	var problem *Problem
	if s.SANs, problem = t.sans(context, field); problem != nil {
		return nil, problem
	}
	return s, nil
}

// sans validates the names of which a certificate must have one.
func (t tlsSide) sans(m *tlsv3.CertificateValidationContext, field string) ([]resource.StringMatch, *Problem) {
	field += ".match_subject_alt_names"
	var sans []resource.StringMatch
	r := regexes{report: &report{}}
	for i, san := range m.GetMatchSubjectAltNames() {
		if t.server {
			return nil, &Problem{Field: field, Reason: "is not supported in a server's listener"}
		}
		sans = append(sans, r.stringMatch(element(field, i), san))
	}
	if !r.problems.empty() {
		return nil, &r.problems.list[0]
	}
	return sans, nil
}

// deprecated returns the certificate providers that the older fields name.
func (t tlsSide) deprecated(m *tlsv3.CommonTlsContext) (*resource.Security, *Problem) {
	identity := m.GetTlsCertificateCertificateProviderInstance()
	s := &resource.Security{IdentityInstance: identity.GetInstanceName(), IdentityCertificate: identity.GetCertificateName()}
	var root *tlsv3.CommonTlsContext_CertificateProviderInstance
	field := oneof(m, "validation_context_type")
	switch c := m.GetValidationContextType().(type) {
	case *tlsv3.CommonTlsContext_CombinedValidationContext:
		var problem *Problem
		if s.SANs, problem = t.sans(c.CombinedValidationContext.GetDefaultValidationContext(), field+".default_validation_context"); problem != nil {
			return nil, problem
		}
		root = c.CombinedValidationContext.GetValidationContextCertificateProviderInstance()
	case *tlsv3.CommonTlsContext_ValidationContextCertificateProviderInstance:
		root = c.ValidationContextCertificateProviderInstance
	case nil:
	default:
		return nil, &Problem{Field: field, Reason: writeValidationContext}
	}
	s.RootInstance, s.RootCertificate = root.GetInstanceName(), root.GetCertificateName()
	return s, nil
}
