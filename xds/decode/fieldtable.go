package decode

// fieldTable is what lbd does with each field of each message that it reads through
// applied fields. A line that is not indented is the full name of a message, with
// logicalDNS after it for the rules that hold only there. The lines below it list fields:
//
//   - "+" are applied; the messages in them are in the table too, except those that an
//     Any carries
//   - "?" are applied, rejected or warned about, depending on the rest of the resource: by
//     the code that reads it; the words are for the documentation
//   - "-" are not applied, and cause a warning; the words say what lbd does instead
//
// A deeper indent continues a line. The endpoint policies add the part for their protos.
var fieldTable = `envoy.service.discovery.v3.Resource
  ? name version resource: the resource itself has its name and its fields
  - ttl: a resource stays until it is replaced or removed
  - aliases resource_name cache_control metadata
envoy.config.endpoint.v3.ClusterLoadAssignment
  + cluster_name endpoints policy
  - named_endpoints: write each endpoint in lb_endpoints
envoy.config.endpoint.v3.ClusterLoadAssignment.Policy
  + drop_overloads
  - overprovisioning_factor weighted_priority_health: a priority is used until it fails as a whole
  - endpoint_stale_after: endpoints stay until they are replaced
envoy.config.endpoint.v3.ClusterLoadAssignment.Policy.DropOverload
  + category drop_percentage
envoy.type.v3.FractionalPercent
  + numerator denominator
envoy.config.endpoint.v3.LocalityLbEndpoints
  + locality lb_endpoints load_balancing_weight priority
  ? load_balancer_endpoints leds_cluster_locality_config: rejected: write lb_endpoints
  - metadata: only the metadata of Clusters and endpoints is read
  - proximity: localities are chosen by priority and weight
envoy.config.endpoint.v3.LbEndpoint
  + endpoint health_status metadata load_balancing_weight
  ? endpoint_name: rejected: write the endpoint itself
envoy.config.endpoint.v3.Endpoint
  + address hostname additional_addresses
  - health_check_config: lbd makes no health checks of its own
  - observability_name: endpoints are called by their address
envoy.config.endpoint.v3.Endpoint.AdditionalAddress
  + address
envoy.config.core.v3.Address
  + socket_address
  ? pipe envoy_internal_address: rejected: write socket_address
envoy.config.core.v3.SocketAddress
  + address port_value
  ? named_port: rejected: write port_value
  - protocol: connections are TCP
  - resolver_name: names are resolved by the system
  - network_namespace_filepath: connections are made in lbd's own network namespace
  - ipv4_compat
envoy.config.core.v3.Locality
  + region zone sub_zone
envoy.config.core.v3.Metadata
  + filter_metadata
  - typed_filter_metadata: only filter_metadata is read
envoy.config.endpoint.v3.ClusterLoadAssignment (LOGICAL_DNS)
  + cluster_name endpoints
  - named_endpoints policy: LOGICAL_DNS takes one name from it and nothing else
envoy.config.endpoint.v3.LocalityLbEndpoints (LOGICAL_DNS)
  + lb_endpoints
  - locality metadata load_balancer_endpoints leds_cluster_locality_config load_balancing_weight priority proximity:
    LOGICAL_DNS takes one name from it and nothing else
envoy.config.endpoint.v3.LbEndpoint (LOGICAL_DNS)
  + endpoint
  - endpoint_name health_status metadata load_balancing_weight: LOGICAL_DNS takes one name from it and nothing else
envoy.config.endpoint.v3.Endpoint (LOGICAL_DNS)
  + address
  - health_check_config hostname additional_addresses observability_name: LOGICAL_DNS takes one name from it and
    nothing else
envoy.config.core.v3.Address (LOGICAL_DNS)
  + socket_address
  ? pipe envoy_internal_address: rejected: write socket_address
envoy.config.core.v3.SocketAddress (LOGICAL_DNS)
  + address port_value
  ? named_port: rejected: write port_value
  ? resolver_name: rejected: names are resolved by the system
  - protocol: connections are TCP
  - network_namespace_filepath: connections are made in lbd's own network namespace
  - ipv4_compat
envoy.config.cluster.v3.Cluster
  + name type cluster_type lb_policy circuit_breakers outlier_detection transport_socket metadata
  + load_balancing_policy lrs_server lrs_report_endpoint_metrics
  ? transport_socket_matches: rejected
  ? eds_cluster_config: applied if type is EDS
  ? load_assignment: applied if type is LOGICAL_DNS: the one name that is resolved
  ? ring_hash_lb_config: applied if lb_policy is RING_HASH
  ? least_request_lb_config: applied if lb_policy is LEAST_REQUEST
  - transport_socket_matcher: all endpoints have the transport_socket of the cluster
  - connect_timeout: each address has 20 s
  - per_connection_buffer_limit_bytes max_requests_per_connection upstream_http_protocol_options
    common_http_protocol_options http_protocol_options http2_protocol_options typed_extension_protocol_options: lbd
    sends no requests
  - health_checks: health is what EDS says, and whether an endpoint can be connected to
  - dns_refresh_rate: a name is resolved every 30 s, and sooner when connections fail
  - dns_lookup_family: names are resolved to the addresses that the system prefers
  - dns_resolvers dns_resolution_config typed_dns_resolver_config: names are resolved by the system
  - lb_subset_config: gRPC has no subsets
  - common_lb_config: a priority is used until it fails as a whole, and there is no panic mode
  - alt_stat_name stats_matcher per_connection_buffer_high_watermark_timeout dns_jitter dns_failure_refresh_rate
  - respect_dns_ttl use_tcp_for_dns_lookups wait_for_warm_on_init cleanup_interval upstream_bind_config
  - maglev_lb_config original_dst_lb_config round_robin_lb_config protocol_selection upstream_connection_options
  - close_connections_on_host_health_failure ignore_health_on_host_removal filters track_timeout_budgets
  - upstream_config track_cluster_stats preconnect_policy connection_pool_per_downstream_connection queuing_policies
envoy.config.cluster.v3.Cluster.EdsClusterConfig
  + eds_config service_name
envoy.config.core.v3.ConfigSource
  + ads self
  ? path path_config_source: a warning: the file is not read
  ? api_config_source: rejected: it must be ads or self
  ? resource_api_version: applied if it is V3: lbd has no other
  - authorities: the authority is in the name of the resource
  - initial_fetch_timeout: it is 15 s, as in gRPC
envoy.config.core.v3.SelfConfigSource
  ? transport_api_version: applied if it is V3: lbd has no other
envoy.config.core.v3.AggregatedConfigSource
envoy.config.cluster.v3.CircuitBreakers
  + thresholds
  - per_host_thresholds: the limit is the cluster's
envoy.config.cluster.v3.CircuitBreakers.Thresholds
  ? priority: the first threshold of priority DEFAULT is applied
  ? max_requests: applied in the first threshold of priority DEFAULT
  - max_connections max_pending_requests max_retries retry_budget track_remaining max_connection_pools: the limit is
    max_requests
envoy.config.cluster.v3.OutlierDetection
  + interval base_ejection_time max_ejection_percent enforcing_success_rate success_rate_minimum_hosts
  + success_rate_request_volume success_rate_stdev_factor failure_percentage_threshold enforcing_failure_percentage
  + failure_percentage_minimum_hosts failure_percentage_request_volume max_ejection_time
  - consecutive_5xx enforcing_consecutive_5xx consecutive_gateway_failure enforcing_consecutive_gateway_failure
    split_external_local_origin_errors consecutive_local_origin_failure enforcing_consecutive_local_origin_failure
    enforcing_local_origin_success_rate enforcing_failure_percentage_local_origin monitors: endpoints are ejected by
    success rate and failure percentage only
  - max_ejection_time_jitter successful_active_health_check_uneject_host always_eject_one_host detect_degraded_hosts
envoy.config.cluster.v3.Cluster.RingHashLbConfig
  + minimum_ring_size hash_function maximum_ring_size
envoy.config.cluster.v3.Cluster.LeastRequestLbConfig
  + choice_count
  - active_request_bias slow_start_config
envoy.config.cluster.v3.LoadBalancingPolicy
  + policies
envoy.config.cluster.v3.LoadBalancingPolicy.Policy
  + typed_extension_config
envoy.config.core.v3.TypedExtensionConfig
  + name typed_config
envoy.config.cluster.v3.Cluster.CustomClusterType
  + name typed_config
envoy.extensions.clusters.aggregate.v3.ClusterConfig
  + clusters
envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality
  + endpoint_picking_policy
xds.type.v3.TypedStruct
  + type_url value
udpa.type.v1.TypedStruct
  + type_url value
envoy.config.core.v3.TransportSocket
  + name typed_config
envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
  + common_tls_context sni auto_host_sni auto_sni_san_validation
  - allow_renegotiation max_session_keys enforce_rsa_key_usage
envoy.extensions.transport_sockets.tls.v3.CommonTlsContext
  + tls_certificate_provider_instance tls_certificate_certificate_provider_instance validation_context
  + combined_validation_context validation_context_certificate_provider_instance
  ? tls_params validation_context_sds_secret_config validation_context_certificate_provider custom_handshaker:
    rejected
  - tls_certificates tls_certificate_sds_secret_configs: the certificate is the one of the certificate provider
  - tls_certificate_certificate_provider: write tls_certificate_provider_instance
  - alpn_protocols: ALPN offers h2 and http/1.1
  - custom_tls_certificate_selector key_log
envoy.extensions.transport_sockets.tls.v3.CertificateProviderPluginInstance
  + instance_name certificate_name
envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.CertificateProviderInstance
  + instance_name certificate_name
envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.CombinedCertificateValidationContext
  + default_validation_context validation_context_certificate_provider_instance
  - validation_context_sds_secret_config: lbd has no SDS
  - validation_context_certificate_provider: write ca_certificate_provider_instance
envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext
  + ca_certificate_provider_instance system_root_certs match_subject_alt_names
  ? verify_certificate_spki verify_certificate_hash require_signed_certificate_timestamp crl custom_validator_config:
    rejected
  - trusted_ca: the roots are those of ca_certificate_provider_instance or system_root_certs
  - match_typed_subject_alt_names: write match_subject_alt_names, as gRPC reads it
  - watched_directory allow_expired_certificate trust_chain_verification only_verify_leaf_cert_crl max_verify_depth
  - suppress_client_ca_list
envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext.SystemRootCerts
envoy.type.matcher.v3.StringMatcher
  + exact prefix suffix safe_regex contains ignore_case
  ? custom: rejected
envoy.type.matcher.v3.RegexMatcher
  + google_re2 regex
envoy.type.matcher.v3.RegexMatcher.GoogleRE2
  - max_program_size
envoy.config.listener.v3.Listener
  + name api_listener
  - address additional_addresses stat_prefix stats_matcher filter_chains fcds_config filter_chain_matcher
  - use_original_dst default_filter_chain per_connection_buffer_limit_bytes
  - per_connection_buffer_high_watermark_timeout metadata deprecated_v1 drain_type listener_filters
  - listener_filters_timeout continue_on_listener_filters_timeout transparent freebind socket_options
  - tcp_fast_open_queue_length traffic_direction udp_listener_config connection_balance_config reuse_port
  - enable_reuse_port access_log tcp_backlog_size max_connections_to_accept_per_socket_event bind_to_port
  - internal_listener enable_mptcp ignore_global_conn_limit bypass_overload_manager tcp_keepalive
envoy.config.listener.v3.ApiListener
  + api_listener
envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
  + rds route_config http_filters
  ? scoped_routes: rejected: write rds or route_config
  ? xff_num_trusted_hops: rejected unless it is 0
  ? original_ip_detection_extensions: rejected
  - stat_prefix: lbd's metrics are called by cluster and target
  - common_http_protocol_options: lbd sends no requests
  - codec_type add_user_agent tracing http1_safe_max_connection_duration http_protocol_options http2_protocol_options
  - http3_protocol_options server_name server_header_transformation scheme_header_transformation
  - max_request_headers_kb stream_idle_timeout stream_flush_timeout request_timeout request_headers_timeout
  - drain_timeout drain_timeout_jitter delayed_close_timeout access_log access_log_flush_interval
  - flush_access_log_on_new_request access_log_options use_remote_address early_header_mutation_extensions
  - internal_address_config skip_xff_append via generate_request_id preserve_external_request_id
  - always_set_request_id_in_response forward_client_cert_details set_current_client_cert_details
  - forward_client_cert_matcher proxy_100_continue represent_ipv4_remote_address_as_ipv4_mapped_ipv6 upgrade_configs
  - normalize_path merge_slashes path_with_escaped_slashes_action request_id_extension local_reply_config
  - strip_matching_host_port strip_any_host_port stream_error_on_invalid_http_message path_normalization_options
  - strip_trailing_host_dot proxy_status_config typed_header_validation_config append_x_forwarded_port
  - append_local_overload add_proxy_protocol_connection_state forward_proto_config record_route_resolution_stats
envoy.extensions.filters.network.http_connection_manager.v3.Rds
  + config_source route_config_name
envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter
  + name typed_config is_optional
  ? config_discovery: rejected: write typed_config
  - disabled: picks pass no HTTP filters
envoy.extensions.filters.http.router.v3.Router
  - dynamic_stats start_child_span upstream_log upstream_log_options suppress_envoy_headers strict_check_headers
  - respect_expected_rq_timeout suppress_grpc_request_failure_code_stats upstream_http_filters
  - reject_connect_request_early_data
envoy.config.route.v3.RouteConfiguration
  + name virtual_hosts
  ? cluster_specifier_plugins: rejected unless is_optional is true: the routes that use one are left out
  - typed_per_filter_config: picks pass no HTTP filters
  - vhds internal_only_headers response_headers_to_add response_headers_to_remove request_headers_to_add
  - request_headers_to_remove most_specific_header_mutations_wins validate_clusters
  - max_direct_response_body_size_bytes request_mirror_policies ignore_port_in_host_matching vhost_header
  - ignore_path_parameters_in_path_matching metadata route_specifiers
envoy.config.route.v3.VirtualHost
  + name domains routes
  ? typed_per_filter_config: a warning: picks pass no HTTP filters
  - retry_policy: callers of the pick API retry
  - matcher require_tls virtual_clusters rate_limits request_headers_to_add request_headers_to_remove
  - response_headers_to_add response_headers_to_remove cors include_request_attempt_count
  - include_attempt_count_in_response retry_policy_typed_config hedge_policy include_is_timeout_retry_header
  - per_request_buffer_limit_bytes request_body_buffer_limit request_mirror_policies metadata route_specifiers
envoy.config.route.v3.Route
  + name match route
  ? redirect direct_response filter_action non_forwarding_action: a warning: picks that match the route fail
  ? typed_per_filter_config: a warning: picks pass no HTTP filters
  - metadata decorator request_headers_to_add request_headers_to_remove response_headers_to_add
  - response_headers_to_remove tracing per_request_buffer_limit_bytes stat_prefix request_body_buffer_limit
  - route_specifiers
envoy.config.route.v3.RouteMatch
  + prefix path safe_regex case_sensitive runtime_fraction headers
  ? connect_matcher path_match_policy: rejected
  ? path_separated_prefix: rejected: write path and prefix
  ? query_parameters: a warning: the route is left out, as in gRPC
  ? cookies tls_context dynamic_metadata filter_state: rejected: no pick meets it
  - grpc
envoy.config.route.v3.HeaderMatcher
  + name exact_match safe_regex_match range_match present_match prefix_match suffix_match contains_match string_match
  + invert_match
  - treat_missing_header_as_empty: an absent header meets no condition but present_match
envoy.type.v3.Int64Range
  + start end
envoy.config.core.v3.RuntimeFractionalPercent
  + default_value
  - runtime_key: default_value counts
envoy.config.route.v3.RouteAction
  + cluster weighted_clusters hash_policy
  ? cluster_header cluster_specifier_plugin inline_cluster_specifier_plugin: rejected: write cluster or
    weighted_clusters
  - metadata_match: gRPC has no subsets
  - auto_host_rewrite timeout idle_timeout max_stream_duration: lbd sends no requests
  - retry_policy: callers of the pick API retry
  - cluster_not_found_response_code prefix_rewrite regex_rewrite path_rewrite_policy path_rewrite host_rewrite_literal
  - host_rewrite_header host_rewrite_path_regex host_rewrite append_x_forwarded_host flush_timeout early_data_policy
  - retry_policy_typed_config request_mirror_policies priority rate_limits include_vh_rate_limits cors
  - max_grpc_timeout grpc_timeout_offset upgrade_configs internal_redirect_policy internal_redirect_action
  - max_internal_redirects hedge_policy
envoy.config.route.v3.WeightedCluster
  + clusters
  - total_weight: it is the sum of the weights
  - runtime_key_prefix header_name use_hash_policy
envoy.config.route.v3.WeightedCluster.ClusterWeight
  + name weight
  ? cluster_header: rejected: write name
  ? typed_per_filter_config: a warning: picks pass no HTTP filters
  - metadata_match request_headers_to_add request_headers_to_remove response_headers_to_add response_headers_to_remove
  - host_rewrite_literal
envoy.config.route.v3.RouteAction.HashPolicy
  + header filter_state terminal
  ? cookie connection_properties query_parameter: a warning: write header
envoy.config.route.v3.RouteAction.HashPolicy.Header
  + header_name regex_rewrite
envoy.config.route.v3.RouteAction.HashPolicy.FilterState
  + key
envoy.type.matcher.v3.RegexMatchAndSubstitute
  + pattern substitution
`
