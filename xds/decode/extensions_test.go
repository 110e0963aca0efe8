package decode_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// The extensions of Clusters and ClusterLoadAssignments, by package in envoy.extensions.
const extensions = `
clusters.aggregate clusters.composite clusters.dns clusters.dynamic_forward_proxy clusters.dynamic_modules
clusters.mcp_multicluster clusters.original_dst clusters.redis clusters.reverse_connection
filters.http.upstream_codec filters.network.redis_proxy filters.network.thrift_proxy
health_check.event_sinks.file health_checkers.dynamic_modules health_checkers.redis health_checkers.thrift
health_checkers.udp http.header_validators.envoy_default key_value.file_based
load_balancing_policies.client_side_weighted_round_robin load_balancing_policies.cluster_provided
load_balancing_policies.common load_balancing_policies.dynamic_modules load_balancing_policies.least_request
load_balancing_policies.load_aware_locality load_balancing_policies.maglev
load_balancing_policies.override_host load_balancing_policies.pick_first load_balancing_policies.random
load_balancing_policies.random_subsetting load_balancing_policies.ring_hash
load_balancing_policies.round_robin load_balancing_policies.subset load_balancing_policies.wrr_locality
local_address_selectors.filter_state_override matching.actions.transform_stat
matching.common_inputs.environment_variable matching.common_inputs.network matching.common_inputs.ssl
matching.common_inputs.stats matching.common_inputs.transport_socket
matching.input_matchers.consistent_hashing matching.input_matchers.dynamic_modules matching.input_matchers.ip
matching.input_matchers.metadata matching.input_matchers.runtime_fraction network.dns_resolver.apple
network.dns_resolver.cares network.dns_resolver.getaddrinfo network.dns_resolver.hickory
outlier_detection_monitors.common outlier_detection_monitors.consecutive_errors queue_policy.fifo
retry.host.omit_canary_hosts retry.host.omit_host_metadata retry.host.previous_hosts
retry.priority.previous_priorities string_matcher.lua transport_sockets.alts transport_sockets.dynamic_modules
transport_sockets.http_11_proxy transport_sockets.internal_upstream transport_sockets.proxy_protocol
transport_sockets.quic transport_sockets.raw_buffer transport_sockets.s2a transport_sockets.starttls
transport_sockets.tap transport_sockets.tcp_stats transport_sockets.tls.cert_mappers.filter_state_override
transport_sockets.tls.cert_mappers.sni transport_sockets.tls.cert_mappers.static_name
transport_sockets.tls.cert_selectors.on_demand_secret transport_sockets.tls.cert_validator.dynamic_modules
transport_sockets.tls.handshakers.dynamic_modules transport_sockets.tls upstreams.http.dynamic_modules
upstreams.http.generic upstreams.http.http upstreams.http.reverse_tunnel upstreams.http.tcp upstreams.http.udp
upstreams.http upstreams.tcp.generic upstreams.tcp`

func TestExtensionsAreLinkedIn(t *testing.T) {
	for name := range strings.FieldsSeq(extensions) {
		if protoregistry.GlobalFiles.NumFilesByPackage(protoreflect.FullName("envoy.extensions."+name+".v3")) == 0 {
			t.Error(name)
		}
	}
}
