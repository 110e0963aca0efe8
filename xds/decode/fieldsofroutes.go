package decode

import "google.golang.org/protobuf/reflect/protoreflect"

// routeFields are the messages of a Listener and a RouteConfiguration.
var routeFields = []messageFields{
	{
		message: "envoy.config.listener.v3.Listener",
		applied: "name api_listener",
		unused: "address additional_addresses stat_prefix stats_matcher filter_chains fcds_config filter_chain_matcher " +
			"use_original_dst default_filter_chain per_connection_buffer_limit_bytes " +
			"per_connection_buffer_high_watermark_timeout metadata deprecated_v1 drain_type listener_filters " +
			"listener_filters_timeout continue_on_listener_filters_timeout transparent freebind socket_options " +
			"tcp_fast_open_queue_length traffic_direction udp_listener_config connection_balance_config reuse_port " +
			"enable_reuse_port access_log tcp_backlog_size max_connections_to_accept_per_socket_event bind_to_port " +
			"internal_listener enable_mptcp ignore_global_conn_limit bypass_overload_manager tcp_keepalive",
	},
	{
		message: "envoy.config.listener.v3.ApiListener",
		applied: "api_listener",
	},
	{
		message: "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		applied: "rds route_config http_filters",
		judged: map[protoreflect.Name]string{
			"scoped_routes":                    "refused: write rds or route_config",
			"xff_num_trusted_hops":             "refused unless it is 0",
			"original_ip_detection_extensions": "refused",
		},
		ignored: map[protoreflect.Name]string{
			"stat_prefix":                  "lbd's metrics are called by cluster and target",
			"common_http_protocol_options": "lbd sends no requests",
		},
		unused: "codec_type add_user_agent tracing http1_safe_max_connection_duration http_protocol_options " +
			"http2_protocol_options http3_protocol_options server_name server_header_transformation " +
			"scheme_header_transformation max_request_headers_kb stream_idle_timeout stream_flush_timeout request_timeout " +
			"request_headers_timeout drain_timeout drain_timeout_jitter delayed_close_timeout access_log " +
			"access_log_flush_interval flush_access_log_on_new_request access_log_options use_remote_address " +
			"early_header_mutation_extensions internal_address_config skip_xff_append via generate_request_id " +
			"preserve_external_request_id always_set_request_id_in_response forward_client_cert_details " +
			"set_current_client_cert_details forward_client_cert_matcher proxy_100_continue " +
			"represent_ipv4_remote_address_as_ipv4_mapped_ipv6 upgrade_configs normalize_path merge_slashes " +
			"path_with_escaped_slashes_action request_id_extension local_reply_config strip_matching_host_port " +
			"strip_any_host_port stream_error_on_invalid_http_message path_normalization_options strip_trailing_host_dot " +
			"proxy_status_config typed_header_validation_config append_x_forwarded_port append_local_overload " +
			"add_proxy_protocol_connection_state forward_proto_config record_route_resolution_stats",
	},
	{
		message: "envoy.extensions.filters.network.http_connection_manager.v3.Rds",
		applied: "config_source route_config_name",
	},
	{
		message: "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter",
		applied: "name typed_config is_optional",
		judged: map[protoreflect.Name]string{
			"config_discovery": "refused: write typed_config",
		},
		ignored: map[protoreflect.Name]string{
			"disabled": "picks pass no HTTP filters",
		},
	},
	{
		message: "envoy.extensions.filters.http.router.v3.Router",
		unused: "dynamic_stats start_child_span upstream_log upstream_log_options suppress_envoy_headers strict_check_headers " +
			"respect_expected_rq_timeout suppress_grpc_request_failure_code_stats upstream_http_filters " +
			"reject_connect_request_early_data",
	},
	{
		message: "envoy.config.route.v3.RouteConfiguration",
		applied: "name virtual_hosts",
		judged: map[protoreflect.Name]string{
			"cluster_specifier_plugins": "refused unless is_optional is true: the routes that use one are left out",
		},
		ignored: map[protoreflect.Name]string{
			"typed_per_filter_config": "picks pass no HTTP filters",
		},
		unused: "vhds internal_only_headers response_headers_to_add response_headers_to_remove request_headers_to_add " +
			"request_headers_to_remove most_specific_header_mutations_wins validate_clusters " +
			"max_direct_response_body_size_bytes request_mirror_policies ignore_port_in_host_matching vhost_header " +
			"ignore_path_parameters_in_path_matching metadata route_specifiers",
	},
	{
		message: "envoy.config.route.v3.VirtualHost",
		applied: "name domains routes",
		judged: map[protoreflect.Name]string{
			"typed_per_filter_config": "a warning: picks pass no HTTP filters",
		},
		ignored: map[protoreflect.Name]string{
			"retry_policy": "callers of the pick API retry",
		},
		unused: "matcher require_tls virtual_clusters rate_limits request_headers_to_add request_headers_to_remove " +
			"response_headers_to_add response_headers_to_remove cors include_request_attempt_count " +
			"include_attempt_count_in_response retry_policy_typed_config hedge_policy include_is_timeout_retry_header " +
			"per_request_buffer_limit_bytes request_body_buffer_limit request_mirror_policies metadata route_specifiers",
	},
	{
		message: "envoy.config.route.v3.Route",
		applied: "name match route",
		judged: map[protoreflect.Name]string{
			"redirect":                "a warning: picks that the route takes are refused",
			"direct_response":         "a warning: picks that the route takes are refused",
			"filter_action":           "a warning: picks that the route takes are refused",
			"non_forwarding_action":   "a warning: picks that the route takes are refused",
			"typed_per_filter_config": "a warning: picks pass no HTTP filters",
		},
		unused: "metadata decorator request_headers_to_add request_headers_to_remove response_headers_to_add " +
			"response_headers_to_remove tracing per_request_buffer_limit_bytes stat_prefix request_body_buffer_limit " +
			"route_specifiers",
	},
	{
		message: "envoy.config.route.v3.RouteMatch",
		applied: "prefix path safe_regex case_sensitive headers runtime_fraction",
		judged: map[protoreflect.Name]string{
			"connect_matcher":       "refused",
			"path_separated_prefix": "refused: write path and prefix",
			"path_match_policy":     "refused",
			"query_parameters":      "a warning: the route is left out, as in gRPC",
			"cookies":               "refused: no pick meets it",
			"tls_context":           "refused: no pick meets it",
			"dynamic_metadata":      "refused: no pick meets it",
			"filter_state":          "refused: no pick meets it",
		},
		unused: "grpc",
	},
	{
		message: "envoy.config.route.v3.HeaderMatcher",
		applied: "name exact_match safe_regex_match range_match present_match prefix_match suffix_match contains_match " +
			"string_match invert_match",
		ignored: map[protoreflect.Name]string{
			"treat_missing_header_as_empty": "an absent header meets no condition but present_match",
		},
	},
	{
		message: "envoy.type.v3.Int64Range",
		applied: "start end",
	},
	{
		message: "envoy.config.core.v3.RuntimeFractionalPercent",
		applied: "default_value",
		ignored: map[protoreflect.Name]string{
			"runtime_key": "default_value counts",
		},
	},
	{
		message: "envoy.config.route.v3.RouteAction",
		applied: "cluster weighted_clusters hash_policy",
		judged: map[protoreflect.Name]string{
			"cluster_header":                  "refused: write cluster or weighted_clusters",
			"cluster_specifier_plugin":        "refused: write cluster or weighted_clusters",
			"inline_cluster_specifier_plugin": "refused: write cluster or weighted_clusters",
		},
		ignored: map[protoreflect.Name]string{
			"metadata_match":      "gRPC has no subsets",
			"auto_host_rewrite":   "lbd sends no requests",
			"timeout":             "lbd sends no requests",
			"idle_timeout":        "lbd sends no requests",
			"retry_policy":        "callers of the pick API retry",
			"max_stream_duration": "lbd sends no requests",
		},
		unused: "cluster_not_found_response_code prefix_rewrite regex_rewrite path_rewrite_policy path_rewrite " +
			"host_rewrite_literal host_rewrite_header host_rewrite_path_regex host_rewrite append_x_forwarded_host " +
			"flush_timeout early_data_policy retry_policy_typed_config request_mirror_policies priority rate_limits " +
			"include_vh_rate_limits cors max_grpc_timeout grpc_timeout_offset upgrade_configs internal_redirect_policy " +
			"internal_redirect_action max_internal_redirects hedge_policy",
	},
	{
		message: "envoy.config.route.v3.WeightedCluster",
		applied: "clusters",
		ignored: map[protoreflect.Name]string{
			"total_weight": "it is the sum of the weights",
		},
		unused: "runtime_key_prefix header_name use_hash_policy",
	},
	{
		message: "envoy.config.route.v3.WeightedCluster.ClusterWeight",
		applied: "name weight",
		judged: map[protoreflect.Name]string{
			"cluster_header":          "refused: write name",
			"typed_per_filter_config": "a warning: picks pass no HTTP filters",
		},
		unused: "metadata_match request_headers_to_add request_headers_to_remove response_headers_to_add " +
			"response_headers_to_remove host_rewrite_literal",
	},
	{
		message: "envoy.config.route.v3.RouteAction.HashPolicy",
		applied: "header filter_state terminal",
		judged: map[protoreflect.Name]string{
			"cookie":                "a warning: write header",
			"connection_properties": "a warning: write header",
			"query_parameter":       "a warning: write header",
		},
	},
	{
		message: "envoy.config.route.v3.RouteAction.HashPolicy.Header",
		applied: "header_name regex_rewrite",
	},
	{
		message: "envoy.config.route.v3.RouteAction.HashPolicy.FilterState",
		applied: "key",
	},
	{
		message: "envoy.type.matcher.v3.RegexMatchAndSubstitute",
		applied: "pattern substitution",
	},
}
