package decode

import "google.golang.org/protobuf/reflect/protoreflect"

// clusterFields are the messages of a Cluster.
var clusterFields = []messageFields{
	{
		message: "envoy.config.cluster.v3.Cluster",
		applied: "name type cluster_type lb_policy load_balancing_policy circuit_breakers outlier_detection lrs_server " +
			"lrs_report_endpoint_metrics metadata transport_socket",
		judged: map[protoreflect.Name]string{
			"transport_socket_matches": "refused",
			"eds_cluster_config":       "applied if type is EDS",
			"load_assignment":          "applied if type is LOGICAL_DNS: the one name that is resolved",
			"ring_hash_lb_config":      "applied if lb_policy is RING_HASH",
			"least_request_lb_config":  "applied if lb_policy is LEAST_REQUEST",
		},
		ignored: map[protoreflect.Name]string{
			"transport_socket_matcher":          "all endpoints have the transport_socket of the cluster",
			"connect_timeout":                   "each address has 20 s",
			"per_connection_buffer_limit_bytes": "lbd sends no requests",
			"health_checks":                     "health is what EDS says, and whether an endpoint can be connected to",
			"max_requests_per_connection":       "lbd sends no requests",
			"upstream_http_protocol_options":    "lbd sends no requests",
			"common_http_protocol_options":      "lbd sends no requests",
			"http_protocol_options":             "lbd sends no requests",
			"http2_protocol_options":            "lbd sends no requests",
			"typed_extension_protocol_options":  "lbd sends no requests",
			"dns_refresh_rate":                  "a name is resolved every 30 s, and sooner when connections fail",
			"dns_lookup_family":                 "names are resolved to the addresses that the system prefers",
			"dns_resolvers":                     "names are resolved by the system",
			"dns_resolution_config":             "names are resolved by the system",
			"typed_dns_resolver_config":         "names are resolved by the system",
			"lb_subset_config":                  "gRPC has no subsets",
			"common_lb_config":                  "a priority is used until it fails as a whole, and there is no panic mode",
		},
		unused: "alt_stat_name stats_matcher per_connection_buffer_high_watermark_timeout dns_jitter dns_failure_refresh_rate " +
			"respect_dns_ttl use_tcp_for_dns_lookups wait_for_warm_on_init cleanup_interval upstream_bind_config " +
			"maglev_lb_config original_dst_lb_config round_robin_lb_config protocol_selection upstream_connection_options " +
			"close_connections_on_host_health_failure ignore_health_on_host_removal filters track_timeout_budgets " +
			"upstream_config track_cluster_stats preconnect_policy connection_pool_per_downstream_connection " +
			"queuing_policies",
	},
	{
		message: "envoy.config.cluster.v3.Cluster.EdsClusterConfig",
		applied: "eds_config service_name",
	},
	{
		message: "envoy.config.core.v3.ConfigSource",
		applied: "ads self",
		judged: map[protoreflect.Name]string{
			"path":                 "a warning: the file is not read",
			"path_config_source":   "a warning: the file is not read",
			"api_config_source":    "refused: it must be ads or self",
			"resource_api_version": "applied if it is V3: lbd has no other",
		},
		ignored: map[protoreflect.Name]string{
			"authorities":           "the authority is in the name of the resource",
			"initial_fetch_timeout": "it is 15 s, as in gRPC",
		},
	},
	{
		message: "envoy.config.core.v3.SelfConfigSource",
		judged: map[protoreflect.Name]string{
			"transport_api_version": "applied if it is V3: lbd has no other",
		},
	},
	{
		message: "envoy.config.core.v3.AggregatedConfigSource",
	},
	{
		message: "envoy.config.cluster.v3.CircuitBreakers",
		applied: "thresholds",
		ignored: map[protoreflect.Name]string{
			"per_host_thresholds": "the limit is the cluster's",
		},
	},
	{
		message: "envoy.config.cluster.v3.CircuitBreakers.Thresholds",
		judged: map[protoreflect.Name]string{
			"priority":     "the first threshold of priority DEFAULT is applied",
			"max_requests": "applied in the first threshold of priority DEFAULT",
		},
		ignored: map[protoreflect.Name]string{
			"max_connections":      "the limit is max_requests",
			"max_pending_requests": "the limit is max_requests",
			"max_retries":          "the limit is max_requests",
			"retry_budget":         "the limit is max_requests",
			"track_remaining":      "the limit is max_requests",
			"max_connection_pools": "the limit is max_requests",
		},
	},
	{
		message: "envoy.config.cluster.v3.OutlierDetection",
		applied: "interval base_ejection_time max_ejection_time max_ejection_percent enforcing_success_rate " +
			"success_rate_stdev_factor success_rate_minimum_hosts success_rate_request_volume enforcing_failure_percentage " +
			"failure_percentage_threshold failure_percentage_minimum_hosts failure_percentage_request_volume",
		ignored: map[protoreflect.Name]string{
			"consecutive_5xx":                            "endpoints are ejected by success rate and failure percentage only",
			"enforcing_consecutive_5xx":                  "endpoints are ejected by success rate and failure percentage only",
			"consecutive_gateway_failure":                "endpoints are ejected by success rate and failure percentage only",
			"enforcing_consecutive_gateway_failure":      "endpoints are ejected by success rate and failure percentage only",
			"split_external_local_origin_errors":         "endpoints are ejected by success rate and failure percentage only",
			"consecutive_local_origin_failure":           "endpoints are ejected by success rate and failure percentage only",
			"enforcing_consecutive_local_origin_failure": "endpoints are ejected by success rate and failure percentage only",
			"enforcing_local_origin_success_rate":        "endpoints are ejected by success rate and failure percentage only",
			"enforcing_failure_percentage_local_origin":  "endpoints are ejected by success rate and failure percentage only",
			"monitors": "endpoints are ejected by success rate and failure percentage only",
		},
		unused: "max_ejection_time_jitter successful_active_health_check_uneject_host always_eject_one_host " +
			"detect_degraded_hosts",
	},
	{
		message: "envoy.config.cluster.v3.Cluster.RingHashLbConfig",
		applied: "hash_function minimum_ring_size maximum_ring_size",
	},
	{
		message: "envoy.config.cluster.v3.Cluster.LeastRequestLbConfig",
		applied: "choice_count",
		unused:  "active_request_bias slow_start_config",
	},
	{
		message: "envoy.config.cluster.v3.LoadBalancingPolicy",
		applied: "policies",
	},
	{
		message: "envoy.config.cluster.v3.LoadBalancingPolicy.Policy",
		applied: "typed_extension_config",
	},
	{
		message: "envoy.config.core.v3.TypedExtensionConfig",
		applied: "name typed_config",
	},
	{
		message: "envoy.config.cluster.v3.Cluster.CustomClusterType",
		applied: "name typed_config",
	},
	{
		message: "envoy.extensions.clusters.aggregate.v3.ClusterConfig",
		applied: "clusters",
	},
	{
		message: "envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality",
		applied: "endpoint_picking_policy",
	},
	{
		message: "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin",
		unused:  "slow_start_config locality_lb_config",
	},
	{
		message: "envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin",
		applied: "blackout_period weight_expiration_period weight_update_period error_utilization_penalty",
		judged: map[protoreflect.Name]string{
			"enable_oob_load_report": "a warning if it is true: loads are those that are reported with the outcomes of picks",
		},
		ignored: map[protoreflect.Name]string{
			"oob_reporting_period":                   "loads are those that are reported with the outcomes of picks",
			"metric_names_for_computing_utilization": "the weight is computed from qps, eps, application and CPU utilization",
			"oob_reporting_config":                   "loads are those that are reported with the outcomes of picks",
		},
		unused: "slow_start_config",
	},
	{
		message: "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest",
		applied: "choice_count",
		unused:  "active_request_bias slow_start_config locality_lb_config enable_full_scan selection_method",
	},
	{
		message: "envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash",
		applied: "hash_function minimum_ring_size maximum_ring_size",
		unused:  "use_hostname_for_hashing hash_balance_factor consistent_hashing_lb_config locality_weighted_lb_config",
	},
	{
		message: "envoy.extensions.load_balancing_policies.pick_first.v3.PickFirst",
		applied: "shuffle_address_list",
	},
	{
		message: "xds.type.v3.TypedStruct",
		applied: "type_url value",
	},
	{
		message: "udpa.type.v1.TypedStruct",
		applied: "type_url value",
	},
	{
		message: "envoy.config.core.v3.TransportSocket",
		applied: "name typed_config",
	},
	{
		message: "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
		applied: "common_tls_context sni auto_host_sni auto_sni_san_validation",
		unused:  "allow_renegotiation max_session_keys enforce_rsa_key_usage",
	},
	{
		message: "envoy.extensions.transport_sockets.tls.v3.CommonTlsContext",
		applied: "tls_certificate_provider_instance tls_certificate_certificate_provider_instance validation_context " +
			"combined_validation_context validation_context_certificate_provider_instance",
		judged: map[protoreflect.Name]string{
			"tls_params":                              "refused",
			"validation_context_sds_secret_config":    "refused",
			"validation_context_certificate_provider": "refused",
			"custom_handshaker":                       "refused",
		},
		ignored: map[protoreflect.Name]string{ // tls_certificates… are refused where no provider is named
			"tls_certificates":                     "the certificate is the one of the certificate provider",
			"tls_certificate_sds_secret_configs":   "the certificate is the one of the certificate provider",
			"tls_certificate_certificate_provider": "write tls_certificate_provider_instance",
			"alpn_protocols":                       "ALPN offers h2 and http/1.1",
		},
		unused: "custom_tls_certificate_selector key_log",
	},
	{
		message: "envoy.extensions.transport_sockets.tls.v3.CertificateProviderPluginInstance",
		applied: "instance_name certificate_name",
	},
	{
		message: "envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.CertificateProviderInstance",
		applied: "instance_name certificate_name",
	},
	{
		message: "envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.CombinedCertificateValidationContext",
		applied: "default_validation_context validation_context_certificate_provider_instance",
		ignored: map[protoreflect.Name]string{ //nolint:gosec // the names of fields are no credentials
			"validation_context_sds_secret_config":    "lbd has no SDS",
			"validation_context_certificate_provider": "write ca_certificate_provider_instance",
		},
	},
	{
		message: "envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext",
		applied: "ca_certificate_provider_instance system_root_certs match_subject_alt_names",
		judged: map[protoreflect.Name]string{
			"verify_certificate_spki":              "refused",
			"verify_certificate_hash":              "refused",
			"require_signed_certificate_timestamp": "refused",
			"crl":                                  "refused",
			"custom_validator_config":              "refused",
		},
		ignored: map[protoreflect.Name]string{
			"trusted_ca":                    "the roots are those of ca_certificate_provider_instance or system_root_certs",
			"match_typed_subject_alt_names": "write match_subject_alt_names, as gRPC reads it",
		},
		unused: "watched_directory allow_expired_certificate trust_chain_verification only_verify_leaf_cert_crl " +
			"max_verify_depth suppress_client_ca_list",
	},
	{
		message: "envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext.SystemRootCerts",
	},
	{
		message: "envoy.type.matcher.v3.StringMatcher",
		applied: "exact prefix suffix safe_regex contains ignore_case",
		judged: map[protoreflect.Name]string{
			"custom": "refused",
		},
	},
	{
		message: "envoy.type.matcher.v3.RegexMatcher",
		applied: "google_re2 regex",
	},
	{
		message: "envoy.type.matcher.v3.RegexMatcher.GoogleRE2",
		unused:  "max_program_size",
	},
}
