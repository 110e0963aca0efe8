package decode_test

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// dns is a LOGICAL_DNS cluster with this load_assignment.
func dns(assignment string) string {
	return `{"name":"orders","type":"LOGICAL_DNS","load_assignment":` + assignment + `}`
}

// dnsEndpoint is a LOGICAL_DNS cluster with this one endpoint.
func dnsEndpoint(endpoint string) string {
	return dns(`{"endpoints":[{"lb_endpoints":[` + endpoint + `]}]}`)
}

// dnsSocket is a LOGICAL_DNS cluster with this socket_address.
func dnsSocket(socket string) string {
	return dnsEndpoint(`{"endpoint":{"address":{"socket_address":` + socket + `}}}`)
}

// aggregate is a cluster of these, with further fields.
func aggregate(clusters string, more ...string) string {
	fields := append([]string{
		`"name":"orders"`, `"cluster_type":{"name":"envoy.clusters.aggregate","typed_config":` +
			`{"@type":"type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig","clusters":` + clusters + `}}`,
	}, more...)
	return "{" + strings.Join(fields, ",") + "}"
}

func TestClustersOfOtherTypes(t *testing.T) {
	host := func(hostport string) *resource.Cluster {
		c := resource.DefaultCluster("orders")
		c.Type, c.DNSHostname = resource.ClusterLogicalDNS, hostport
		return c
	}
	leaves := func(names ...string) *resource.Cluster {
		c := resource.DefaultCluster("orders")
		c.Type, c.Leaves = resource.ClusterAggregate, names
		return c
	}
	limited := leaves("a")
	limited.MaxRequests, limited.MaxRequestsConfigured, limited.Connect, limited.LRSToSelf, limited.MaxBackoff = 7, true, resource.ConnectNone, true, time.Second
	const inLocality = "load_assignment.endpoints[0].lb_endpoints[0]"
	const onlyTheName = ": is not applied: LOGICAL_DNS takes one name from it and nothing else"
	const own = ": is not applied: the clusters of an aggregate have their own"
	for _, c := range []struct {
		name, body string
		want       *resource.Cluster
		byHand     []string // warnings by hand; there are no others
	}{
		{"a name", dnsSocket(`{"address":"orders.example.com","port_value":8080}`), host("orders.example.com:8080"), nil},
		{"an IPv6 address", dnsSocket(`{"address":"::1","port_value":65535}`), host("[::1]:65535"), nil},
		{
			"a name with what has no effect",
			`{"name":"orders","type":"LOGICAL_DNS","dns_lookup_family":"V4_ONLY","eds_cluster_config":{"service_name":"x"},` +
				`"load_assignment":{"cluster_name":"x","policy":{},"endpoints":[{"priority":3,"load_balancing_weight":2,"lb_endpoints":[` +
				`{"health_status":"UNHEALTHY","endpoint":{"hostname":"x","address":{"socket_address":{"address":"h","port_value":1}}}}]}]}}`,
			host("h:1"),
			[]string{
				"dns_lookup_family: is not applied: names are resolved to the addresses that the system prefers", "eds_cluster_config: is not applied: the type is LOGICAL_DNS",
				"load_assignment.policy" + onlyTheName,
				"load_assignment.endpoints[0].priority" + onlyTheName, "load_assignment.endpoints[0].load_balancing_weight" + onlyTheName,
				inLocality + ".health_status" + onlyTheName, inLocality + ".endpoint.hostname" + onlyTheName,
			},
		},
		{"an aggregate", aggregate(`["b","a"]`), leaves("b", "a"), nil},
		{
			"an aggregate that repeats itself", aggregate(`["b","a","b","b"]`), leaves("b", "a"),
			[]string{
				`cluster_type.typed_config.clusters[2]: is "b", as clusters[0] is: it counts once`,
				`cluster_type.typed_config.clusters[3]: is "b", as clusters[0] is: it counts once`,
			},
		},
		{
			"an aggregate with what its clusters have",
			aggregate(`["a"]`, `"load_assignment":{}`, `"eds_cluster_config":{"service_name":"x"}`, `"outlier_detection":{}`,
				`"circuit_breakers":{"thresholds":[{"max_requests":7}]}`, `"lrs_server":{"self":{}}`, `"connect_timeout":"1s"`,
				`"metadata":{"filter_metadata":{"lbd":{"connect":"none","max_backoff":"1s"}}}`),
			limited,
			[]string{
				"load_assignment" + own, "eds_cluster_config" + own, "outlier_detection" + own, "circuit_breakers" + own, "lrs_server" + own,
				"connect_timeout: is not applied: each address has 20 s", `metadata.filter_metadata["lbd"].connect` + own,
				`metadata.filter_metadata["lbd"].max_backoff` + own,
			},
		},
	} {
		for _, origin := range []decode.Origin{decode.ByHand, decode.FromServer} {
			t.Run(fmt.Sprintf("%d/%s", origin, c.name), func(t *testing.T) {
				o := decode.Options{Origin: origin}
				d := accept(t, resource.TypeCluster, c.body, o)
				got := *d.Cluster
				got.OutlierDetection = nil
				if !reflect.DeepEqual(&got, c.want) {
					t.Errorf("cluster %+v, want %+v", d.Cluster, c.want)
				}
				want := c.byHand
				if origin == decode.FromServer {
					want = nil
				}
				expect(t, "warnings", lines(d.Warnings), want)
				o.Format = decode.FormatProtobuf
				again, err := decode.One(resource.TypeCluster, d.Raw, o)
				if err != nil || !reflect.DeepEqual(again.Cluster, d.Cluster) || !bytes.Equal(again.Raw, d.Raw) {
					t.Errorf("raw: %+v, %v", again, err)
				}
			})
		}
	}
}

func TestRulesOfClustersOfOtherTypes(t *testing.T) {
	both := []decode.Origin{decode.ByHand, decode.FromServer}
	hand, server := both[:1], both[1:]
	const (
		locality = "load_assignment.endpoints[0].lb_endpoints"
		address  = locality + "[0].endpoint.address.socket_address"
		name     = "{socket_address: {address: orders.example.com, port_value: 8080}}"
		list     = "cluster_type.typed_config.clusters"
	)
	for _, c := range []struct {
		name    string
		origins []decode.Origin
		body    string
		want    []string
	}{
		{
			"no load_assignment", both, `{"name":"orders","type":"LOGICAL_DNS"}`,
			[]string{"load_assignment: is absent: LOGICAL_DNS takes from it the one name that is resolved"},
		},
		{"no locality", both, dns(`{}`), []string{"load_assignment.endpoints: holds 0 localities: LOGICAL_DNS takes exactly one"}},
		{"two localities", both, dns(`{"endpoints":[{},{}]}`), []string{"load_assignment.endpoints: holds 2 localities: LOGICAL_DNS takes exactly one"}},
		{"no endpoint", both, dnsEndpoint(``), []string{locality + ": holds 0 endpoints: LOGICAL_DNS takes exactly one"}},
		{"two endpoints", both, dnsEndpoint(`{},{}`), []string{locality + ": holds 2 endpoints: LOGICAL_DNS takes exactly one"}},
		{"an endpoint by name", server, dnsEndpoint(`{"endpoint_name":"x"}`), []string{locality + "[0].endpoint: is absent: write endpoint: {address: " + name + "}"}},
		{"an endpoint without address", both, dnsEndpoint(`{"endpoint":{}}`), []string{address + ": is absent: write address: " + name}},
		{"a pipe", both, dnsEndpoint(`{"endpoint":{"address":{"pipe":{"path":"x"}}}}`), []string{address + ": is absent: write address: " + name}},
		{
			"another resolver", both, dnsSocket(`{"address":"h","port_value":1,"resolver_name":"x"}`),
			[]string{address + `.resolver_name: is "x", which is not supported: names are resolved by the system`},
		},
		{"no host", both, dnsSocket(`{"port_value":1}`), []string{address + ".address: is empty: it must be the name that is resolved"}},
		{"no port", both, dnsSocket(`{"address":"h"}`), []string{address + ".port_value: is absent: it must be from 1 to 65535"}},
		{"a port by name", both, dnsSocket(`{"address":"h","named_port":"http"}`), []string{address + ".named_port: is not supported: write the number in port_value"}},
		{
			"neither host nor port", both, dnsSocket(`{"resolver_name":"x"}`),
			[]string{
				address + `.resolver_name: is "x", which is not supported: names are resolved by the system`,
				address + ".address: is empty: it must be the name that is resolved",
				address + ".port_value: is absent: it must be from 1 to 65535",
			},
		},
		{"a port that is none", hand, dnsSocket(`{"address":"h","port_value":65536}`), []string{address + ".port_value: is 65536: it must be from 1 to 65535"}},
		{"a host with its port", hand, dnsSocket(`{"address":"h:80","port_value":80}`), []string{address + `.address: is "h:80": the port belongs in port_value`}},

		{"an empty aggregate", both, aggregate(`[]`), []string{list + ": is empty: an aggregate takes at least one cluster"}},
		{
			"an aggregate without config", server, `{"name":"orders","cluster_type":{"name":"envoy.clusters.aggregate"}}`,
			[]string{list + ": is empty: an aggregate takes at least one cluster"},
		},
		{
			"an aggregate with another's config", hand,
			`{"name":"orders","cluster_type":{"name":"envoy.clusters.aggregate","typed_config":{"@type":"type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster"}}}`,
			[]string{`cluster_type.typed_config: is "type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster": it must be a envoy.extensions.clusters.aggregate.v3.ClusterConfig`},
		},
		{
			"an aggregate of what has no name", hand, aggregate(`["","a\nb"]`),
			[]string{list + "[0]: is empty", list + "[1]: holds the character U+000A, which cannot be printed"},
		},
		{
			"an aggregate that leaves its policy to the cluster", server, aggregate(`["a"]`, `"lb_policy":"CLUSTER_PROVIDED"`),
			[]string{"lb_policy: CLUSTER_PROVIDED is not supported: " + lbPolicies},
		},
	} {
		for _, origin := range c.origins {
			t.Run(fmt.Sprintf("%d/%s", origin, c.name), func(t *testing.T) {
				_, err := decode.One(resource.TypeCluster, []byte(c.body), decode.Options{Origin: origin})
				expect(t, "refusals", refusals(t, err, "Cluster/orders"), c.want)
			})
		}
	}
}

func TestAggregateOfEnvoyByHand(t *testing.T) {
	d := accept(t, resource.TypeCluster, aggregate(`["a"]`, `"lb_policy":"CLUSTER_PROVIDED"`), decode.Options{})
	if got := lines(d.Warnings); len(got) != 0 {
		t.Errorf("warnings %q", got)
	}
	if !reflect.DeepEqual(d.Cluster.Policy, resource.RoundRobinPolicy()) || !slices.Equal(d.Cluster.Leaves, []string{"a"}) {
		t.Errorf("cluster %+v", d.Cluster)
	}
}

// TestPolicyOfAnAggregate: it is ignored (gRFC A75), and a hand-written one
// causes a warning.
func TestPolicyOfAnAggregate(t *testing.T) {
	const ignored = "is ignored: an aggregate uses the load balancing policy of each of its leaves"
	for policy, want := range map[string][]string{
		`"lb_policy":"ROUND_ROBIN"`: {},
		`"lb_policy":"RING_HASH"`:   {"lb_policy: " + ignored},
		`"load_balancing_policy":{"policies":[{"typed_extension_config":{"name":"x","typed_config":{` +
			`"@type":"type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"}}}]}`: {"load_balancing_policy: " + ignored},
	} {
		for origin, want := range map[decode.Origin][]string{decode.ByHand: want, decode.FromServer: {}} {
			d := accept(t, resource.TypeCluster, aggregate(`["a"]`, policy), decode.Options{Origin: origin})
			if got := lines(d.Warnings); !slices.Equal(got, want) {
				t.Errorf("%s from %d: warnings %q, want %q", policy, origin, got, want)
			}
		}
	}
}

// gRPC reads the config of an aggregate whatever type its Any names.
func TestAggregateFromServer(t *testing.T) {
	list, err := proto.Marshal(&aggregatev3.ClusterConfig{Clusters: []string{"a", "", "a"}})
	noError(t, err)
	o := decode.Options{Origin: decode.FromServer, Format: decode.FormatProtobuf}
	for _, c := range []struct {
		value []byte
		want  []string
	}{{list, []string{"a", ""}}, {[]byte{0xff}, nil}} {
		body, err := proto.Marshal(&clusterv3.Cluster{Name: "orders", ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{
			ClusterType: &clusterv3.Cluster_CustomClusterType{Name: "envoy.clusters.aggregate", TypedConfig: &anypb.Any{TypeUrl: "x/y", Value: c.value}},
		}})
		noError(t, err)
		d, err := decode.One(resource.TypeCluster, body, o)
		if c.want == nil {
			got := refusals(t, err, "Cluster/orders")
			if len(got) != 1 || !strings.HasPrefix(got[0], "cluster_type.typed_config: cannot be read as envoy.extensions.clusters.aggregate.v3.ClusterConfig: ") {
				t.Errorf("refusals %q", got)
			}
			continue
		}
		if err != nil || !slices.Equal(d.Cluster.Leaves, c.want) {
			t.Errorf("decoded %+v, %v", d, err)
		}
	}
}

func TestDNSPortFromServer(t *testing.T) {
	d, err := decode.One(resource.TypeCluster, []byte(dnsSocket(`{"address":"a b","port_value":70000}`)), decode.Options{Origin: decode.FromServer})
	if err != nil || d.Cluster.DNSHostname != "a b:70000" {
		t.Errorf("decoded %+v, %v", d, err)
	}
}
