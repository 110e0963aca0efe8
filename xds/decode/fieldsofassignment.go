package decode

import "google.golang.org/protobuf/reflect/protoreflect"

// assignmentFields are the messages of a ClusterLoadAssignment.
var assignmentFields = []messageFields{
	{
		message: "envoy.config.endpoint.v3.ClusterLoadAssignment",
		applied: "cluster_name endpoints policy",
		ignored: map[protoreflect.Name]string{
			"named_endpoints": "write each endpoint in lb_endpoints",
		},
	},
	{
		message: "envoy.config.endpoint.v3.ClusterLoadAssignment.Policy",
		applied: "drop_overloads",
		ignored: map[protoreflect.Name]string{
			"overprovisioning_factor":  "a priority is used until it fails as a whole",
			"endpoint_stale_after":     "endpoints stay until they are replaced",
			"weighted_priority_health": "a priority is used until it fails as a whole",
		},
	},
	{
		message: "envoy.config.endpoint.v3.ClusterLoadAssignment.Policy.DropOverload",
		applied: "category drop_percentage",
	},
	{
		message: "envoy.type.v3.FractionalPercent",
		applied: "numerator denominator",
	},
	{
		message: "envoy.config.endpoint.v3.LocalityLbEndpoints",
		applied: "locality lb_endpoints load_balancing_weight priority",
		judged: map[protoreflect.Name]string{
			"load_balancer_endpoints":      "refused: write lb_endpoints",
			"leds_cluster_locality_config": "refused: write lb_endpoints",
		},
		ignored: map[protoreflect.Name]string{
			"metadata":  "only the metadata of Clusters and endpoints is read",
			"proximity": "localities are chosen by priority and weight",
		},
	},
	{
		message: "envoy.config.endpoint.v3.LbEndpoint",
		applied: "endpoint health_status metadata load_balancing_weight",
		judged: map[protoreflect.Name]string{
			"endpoint_name": "refused: write the endpoint itself",
		},
	},
	{
		message: "envoy.config.endpoint.v3.Endpoint",
		applied: "address hostname additional_addresses",
		ignored: map[protoreflect.Name]string{
			"health_check_config": "lbd makes no health checks of its own",
			"observability_name":  "endpoints are called by their address",
		},
	},
	{
		message: "envoy.config.endpoint.v3.Endpoint.AdditionalAddress",
		applied: "address",
	},
	{
		message: "envoy.config.core.v3.Address",
		applied: "socket_address",
		judged: map[protoreflect.Name]string{
			"pipe":                   "refused: write socket_address",
			"envoy_internal_address": "refused: write socket_address",
		},
	},
	{
		message: "envoy.config.core.v3.SocketAddress",
		applied: "address port_value",
		judged: map[protoreflect.Name]string{
			"named_port": "refused: write port_value",
		},
		ignored: map[protoreflect.Name]string{
			"protocol":                   "connections are TCP",
			"resolver_name":              "names are resolved by the system",
			"network_namespace_filepath": "connections are made in lbd's own network namespace",
		},
		unused: "ipv4_compat",
	},
	{
		message: "envoy.config.core.v3.Locality",
		applied: "region zone sub_zone",
	},
	{
		message: "envoy.config.core.v3.Metadata",
		applied: "filter_metadata",
		ignored: map[protoreflect.Name]string{
			"typed_filter_metadata": "only filter_metadata is read",
		},
	},
	{
		message: "envoy.config.endpoint.v3.ClusterLoadAssignment (LOGICAL_DNS)",
		applied: "cluster_name endpoints",
		ignored: map[protoreflect.Name]string{
			"named_endpoints": "LOGICAL_DNS takes one name from it and nothing else",
			"policy":          "LOGICAL_DNS takes one name from it and nothing else",
		},
	},
	{
		message: "envoy.config.endpoint.v3.LocalityLbEndpoints (LOGICAL_DNS)",
		applied: "lb_endpoints",
		ignored: map[protoreflect.Name]string{
			"locality":                     "LOGICAL_DNS takes one name from it and nothing else",
			"metadata":                     "LOGICAL_DNS takes one name from it and nothing else",
			"load_balancer_endpoints":      "LOGICAL_DNS takes one name from it and nothing else",
			"leds_cluster_locality_config": "LOGICAL_DNS takes one name from it and nothing else",
			"load_balancing_weight":        "LOGICAL_DNS takes one name from it and nothing else",
			"priority":                     "LOGICAL_DNS takes one name from it and nothing else",
			"proximity":                    "LOGICAL_DNS takes one name from it and nothing else",
		},
	},
	{
		message: "envoy.config.endpoint.v3.LbEndpoint (LOGICAL_DNS)",
		applied: "endpoint",
		ignored: map[protoreflect.Name]string{
			"endpoint_name":         "LOGICAL_DNS takes one name from it and nothing else",
			"health_status":         "LOGICAL_DNS takes one name from it and nothing else",
			"metadata":              "LOGICAL_DNS takes one name from it and nothing else",
			"load_balancing_weight": "LOGICAL_DNS takes one name from it and nothing else",
		},
	},
	{
		message: "envoy.config.endpoint.v3.Endpoint (LOGICAL_DNS)",
		applied: "address",
		ignored: map[protoreflect.Name]string{
			"health_check_config":  "LOGICAL_DNS takes one name from it and nothing else",
			"hostname":             "LOGICAL_DNS takes one name from it and nothing else",
			"additional_addresses": "LOGICAL_DNS takes one name from it and nothing else",
			"observability_name":   "LOGICAL_DNS takes one name from it and nothing else",
		},
	},
	{
		message: "envoy.config.core.v3.Address (LOGICAL_DNS)",
		applied: "socket_address",
		judged: map[protoreflect.Name]string{
			"pipe":                   "refused: write socket_address",
			"envoy_internal_address": "refused: write socket_address",
		},
	},
	{
		message: "envoy.config.core.v3.SocketAddress (LOGICAL_DNS)",
		applied: "address port_value",
		judged: map[protoreflect.Name]string{
			"named_port":    "refused: write port_value",
			"resolver_name": "refused: names are resolved by the system",
		},
		ignored: map[protoreflect.Name]string{
			"protocol":                   "connections are TCP",
			"network_namespace_filepath": "connections are made in lbd's own network namespace",
		},
		unused: "ipv4_compat",
	},
}
