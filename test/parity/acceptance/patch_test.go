package acceptance_test

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// patches are changes that a rule is about, by the type of the changed message: JSON is
// merged into the message; otherwise, the last element of a list is doubled, the first is
// moved to the end, or a field is cleared.
var patches = map[protoreflect.FullName][]string{
	"envoy.config.route.v3.RouteConfiguration": {
		`{"clusterSpecifierPlugins":[{"extension":{"name":"p","typedConfig":{"@type":"type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy"}}}]}`,
		`{"clusterSpecifierPlugins":[{"isOptional":true,"extension":{"name":"p","typedConfig":{"@type":"type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy"}}}]}`,
		"clear name", "double virtual_hosts",
	},
	"envoy.config.route.v3.VirtualHost": {
		"clear domains", `{"domains":["a*b",""]}`, "double routes", "clear routes", `{"retryPolicy":{"numRetries":0}}`, overriding("router.v3.Router"), overriding("cors.v3.CorsPolicy"),
	},
	"envoy.config.route.v3.Route": {
		"clear match", "clear route", `{"redirect":{}}`, `{"nonForwardingAction":{}}`, overriding("fault.v3.HTTPFault"), overriding("router.v3.Router"), overriding("cors.v3.CorsPolicy"),
		overriding("rbac.v3.RBAC"),
		`{"typedPerFilterConfig":{"f":{"@type":"type.googleapis.com/envoy.config.route.v3.FilterConfig","isOptional":true,"config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy"}}}}`,
		`{"typedPerFilterConfig":{"f":{"@type":"type.googleapis.com/envoy.config.route.v3.FilterConfig","config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy"}}}}`,
	},
	"envoy.config.route.v3.RouteMatch": {
		"clear prefix", "clear safe_regex", `{"path":"a"}`, `{"pathSeparatedPrefix":"/a"}`, `{"connectMatcher":{}}`, `{"safeRegex":{"regex":"("}}`, `{"safeRegex":{}}`,
		`{"queryParameters":[{"name":"q"}]}`, `{"tlsContext":{}}`, `{"headers":[{"name":"x"}]}`, `{"headers":[{"stringMatch":{}}]}`, `{"caseSensitive":false}`,
		`{"headers":[{"name":"x","prefixMatch":""}]}`, `{"headers":[{"name":"x","suffixMatch":""}]}`, `{"headers":[{"name":"x","containsMatch":""}]}`,
		`{"headers":[{"name":"x","exactMatch":""}]}`, `{"headers":[{"name":"x","safeRegexMatch":{"regex":"["}}]}`, `{"headers":[{"name":"x","safeRegexMatch":{}}]}`,
		`{"headers":[{"name":"x","rangeMatch":{}}]}`, `{"headers":[{"presentMatch":false}]}`, `{"runtimeFraction":{"defaultValue":{"numerator":4294967295,"denominator":7}}}`,
		`{"headers":[{"name":"x","stringMatch":{"prefix":""}}]}`, `{"headers":[{"name":"x","stringMatch":{"suffix":""}}]}`,
		`{"headers":[{"name":"x","stringMatch":{"contains":""}}]}`, `{"headers":[{"name":"x","stringMatch":{"safeRegex":{"regex":"["}}}]}`,
	},
	"envoy.config.route.v3.RouteAction": {
		`{"cluster":""}`, `{"clusterHeader":"x"}`, `{"clusterSpecifierPlugin":"p"}`, `{"clusterSpecifierPlugin":"q"}`, `{"weightedClusters":{}}`, "clear cluster",
		`{"retryPolicy":{"numRetries":0}}`, `{"retryPolicy":{"retryBackOff":{}}}`, `{"retryPolicy":{"retryBackOff":{"baseInterval":"-1s"}}}`,
		`{"retryPolicy":{"retryBackOff":{"baseInterval":"1s","maxInterval":"0s"}}}`, `{"hashPolicy":[{"header":{"headerName":"x","regexRewrite":{"pattern":{"regex":"*"}}}}]}`,
		`{"hashPolicy":[{"cookie":{"name":"c"}},{"filterState":{"key":"k"}},{"header":{}},{}]}`,
	},
	"envoy.config.route.v3.WeightedCluster": {
		`{"clusters":[{"name":"c","weight":4294967295}]}`, `{"clusters":[{"name":"c","weight":4294967292}]}`, `{"clusters":[{"weight":0,` + overriding("cors.v3.CorsPolicy")[1:] + `]}`,
		`{"clusters":[{"weight":1,` + overriding("cors.v3.CorsPolicy")[1:] + `]}`, "clear clusters",
	},
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager": {
		"double http_filters", "rotate http_filters", "clear http_filters", `{"xffNumTrustedHops":1}`, `{"originalIpDetectionExtensions":[{}]}`, "clear route_config",
		`{"rds":{"configSource":{"ads":{}},"routeConfigName":"r"}}`, `{"rds":{"configSource":{"self":{}},"routeConfigName":"r"}}`, `{"rds":{"configSource":{"path":"p"},"routeConfigName":"r"}}`,
		`{"rds":{"configSource":{"ads":{}}}}`, `{"scopedRoutes":{}}`,
		`{"httpFilters":[` + filterOf("last", "router.v3.Router") + `]}`, `{"httpFilters":[` + filterOf("last", "fault.v3.HTTPFault") + `]}`,
		`{"httpFilters":[` + filterOf("last", "cors.v3.CorsPolicy") + `]}`, `{"httpFilters":[` + optional("last", "cors.v3.CorsPolicy") + `]}`,
		`{"httpFilters":[` + optional("last", "rbac.v3.RBAC") + `]}`, `{"httpFilters":[` + filterOf("last", "rbac.v3.RBAC") + `]}`, `{"httpFilters":[` + optional("fault", "cors.v3.CorsPolicy") + `]}`,
		`{"httpFilters":[` + optional("", "cors.v3.CorsPolicy") + `]}`,
	},
	"envoy.config.listener.v3.Listener": {
		"double filter_chains", "clear filter_chains", "clear address", "clear api_listener", `{"listenerFilters":[{"name":"f"}]}`, `{"useOriginalDst":true}`, `{"useOriginalDst":false}`,
		`{"address":{"pipe":{"path":"p"}}}`, `{"filterChains":[{"filterChainMatch":{"transportProtocol":"raw_buffer","prefixRanges":[{"addressPrefix":"10.1.0.0","prefixLen":16}],"applicationProtocols":["h2"]}}]}`,
		`{"filterChains":[{"filterChainMatch":{"sourcePorts":[7]}}]}`, `{"defaultFilterChain":{}}`, "rotate filter_chains",
	},
	"envoy.config.listener.v3.FilterChain": {
		"double filters", "clear filters", "clear filter_chain_match", "clear transport_socket",
		`{"filters":[{"name":"other","typedConfig":{"@type":"type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy"}}]}`, `{"filters":[{}]}`,
	},
	"envoy.config.listener.v3.FilterChainMatch": {
		`{"destinationPort":1}`, `{"serverNames":["a"]}`, `{"applicationProtocols":["h2"]}`, `{"transportProtocol":"tls"}`, `{"transportProtocol":"raw_buffer"}`, `{"sourceType":9}`,
		`{"sourceType":"EXTERNAL"}`, `{"prefixRanges":[{"addressPrefix":"a"}]}`, `{"prefixRanges":[{"addressPrefix":"10.0.0.0","prefixLen":33}]}`, `{"sourcePorts":[0,9,9]}`,
		`{"prefixRanges":[{"addressPrefix":"::ffff:10.1.2.3","prefixLen":16}]}`, `{"sourcePrefixRanges":[{"addressPrefix":"::","prefixLen":128}]}`, `{"sourcePrefixRanges":[{"addressPrefix":""}]}`,
		"clear source_ports", "clear prefix_ranges", `{"sourcePorts":[1,2]}`,
	},
	"envoy.config.core.v3.TransportSocket": {`{"name":"x"}`, "clear typed_config", "clear name"},
	"envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext": {
		`{"requireSni":true}`, `{"ocspStaplePolicy":"STRICT_STAPLING"}`, "clear common_tls_context", `{"requireClientCertificate":false}`, `{"commonTlsContext":{"validationContext":null}}`,
	},
	"envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext": {`{"sni":"n","autoHostSni":true}`, "clear common_tls_context", `{"allowRenegotiation":true}`},
	"envoy.extensions.transport_sockets.tls.v3.CommonTlsContext": {
		`{"tlsParams":{}}`, `{"customHandshaker":{}}`, `{"tlsCertificates":[{}]}`, `{"tlsCertificateSdsSecretConfigs":[{}]}`, "clear tls_certificate_provider_instance", "clear validation_context",
		`{"tlsCertificateCertificateProviderInstance":{"instanceName":"known"}}`, `{"validationContextCertificateProviderInstance":{"instanceName":"known"}}`, `{"validationContextSdsSecretConfig":{}}`,
		`{"combinedValidationContext":{"defaultValidationContext":{"caCertificateProviderInstance":{"instanceName":"known"}}}}`,
		`{"combinedValidationContext":{"validationContextCertificateProviderInstance":{"instanceName":"known"}}}`, `{"combinedValidationContext":{}}`, `{"alpnProtocols":["h2"]}`,
		`{"combinedValidationContext":{"defaultValidationContext":{"matchSubjectAltNames":[{"prefix":""}]},"validationContextCertificateProviderInstance":{"instanceName":"known"}}}`,
		`{"tlsCertificateProviderInstance":{"instanceName":"unknown"}}`,
	},
	"envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext": {
		`{"verifyCertificateSpki":["a"]}`, `{"verifyCertificateHash":["a"]}`, `{"requireSignedCertificateTimestamp":true}`, `{"requireSignedCertificateTimestamp":false}`, `{"crl":{}}`,
		`{"customValidatorConfig":{}}`, "clear ca_certificate_provider_instance", `{"caCertificateProviderInstance":{"instanceName":"unknown"}}`, `{"trustedCa":{"filename":"f"}}`,
		`{"matchSubjectAltNames":[{"prefix":""}]}`, `{"matchSubjectAltNames":[{"safeRegex":{"regex":"["}}]}`, `{"matchSubjectAltNames":[{}]}`, `{"matchSubjectAltNames":[{"exact":"a"}]}`,
	},
}

func filterOf(name, config string) string {
	return `{"name":"` + name + `","typedConfig":{"@type":"type.googleapis.com/envoy.extensions.filters.http.` + config + `"}}`
}

func optional(name, config string) string {
	return strings.TrimSuffix(filterOf(name, config), "}") + `,"isOptional":true}`
}

func overriding(config string) string {
	return `{"typedPerFilterConfig":{"f":{"@type":"type.googleapis.com/envoy.extensions.filters.http.` + config + `"}}}`
}

// patch changes m by one of the patches for its type.
func (r *mutation) patch(m protoreflect.Message) {
	list := patches[m.Descriptor().FullName()]
	p := list[r.IntN(len(list))]
	if p[0] == '{' {
		parse(m.Interface(), "%s", p)
		return
	}
	what, name, _ := strings.Cut(p, " ")
	fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	if what == "clear" {
		m.Clear(fd)
		return
	}
	elements := m.Mutable(fd).List()
	n := elements.Len()
	switch {
	case n == 0:
	case what == "double":
		elements.Append(elements.Get(n - 1))
	default:
		first := elements.Get(0)
		for i := range n - 1 {
			elements.Set(i, elements.Get(i+1))
		}
		elements.Set(n-1, first)
	}
}
