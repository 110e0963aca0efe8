package encode

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// security sets the transport_socket.
func security(m *clusterv3.Cluster, c *resource.Cluster) error {
	s := c.Security
	if s == nil {
		return nil
	}
	roots := &tlsv3.CertificateValidationContext{MatchSubjectAltNames: sans(s.SANs)}
	if s.SystemRoots {
		roots.SystemRootCerts = &tlsv3.CertificateValidationContext_SystemRootCerts{}
	} else {
		roots.CaCertificateProviderInstance = provider(s.RootInstance, s.RootCertificate)
	}
	config, err := anypb.New(&tlsv3.UpstreamTlsContext{
		CommonTlsContext: &tlsv3.CommonTlsContext{
			TlsCertificateProviderInstance: provider(s.IdentityInstance, s.IdentityCertificate),
			ValidationContextType:          &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: roots},
		},
		Sni: s.SNI, AutoHostSni: s.AutoHostSNI, AutoSniSanValidation: s.AutoSANValidation,
	})
	if err != nil {
		return err
	}
	m.TransportSocket = &corev3.TransportSocket{
		Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config},
	}
	return nil
}

func provider(instance, certificate string) *tlsv3.CertificateProviderPluginInstance {
	if instance == "" {
		return nil
	}
	return &tlsv3.CertificateProviderPluginInstance{InstanceName: instance, CertificateName: certificate}
}

func sans(list []resource.StringMatch) []*matcherv3.StringMatcher {
	var out []*matcherv3.StringMatcher
	for _, s := range list {
		m := &matcherv3.StringMatcher{IgnoreCase: s.CaseInsensitive}
		switch s.Kind {
		case resource.MatchExact:
			m.MatchPattern = &matcherv3.StringMatcher_Exact{Exact: s.Value}
		case resource.MatchPrefix:
			m.MatchPattern = &matcherv3.StringMatcher_Prefix{Prefix: s.Value}
		case resource.MatchSuffix:
			m.MatchPattern = &matcherv3.StringMatcher_Suffix{Suffix: s.Value}
		case resource.MatchContains:
			m.MatchPattern = &matcherv3.StringMatcher_Contains{Contains: s.Value}
		case resource.MatchRegex:
			m.MatchPattern = &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: resource.WholePattern(s.Regex)}}
		}
		out = append(out, m)
	}
	return out
}
