package decode

import (
	"cmp"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"

	"github.com/lbd-dev/lbd/xds/resource"
)

// aggregateName is what cluster_type calls an aggregate of clusters (gRFC A37).
const aggregateName = "envoy.clusters.aggregate"

// The ways in which a cluster may find its endpoints, for errors.
const (
	supportedTypes = "supported are EDS, LOGICAL_DNS, and the cluster_type " + aggregateName
	pushInstead    = "write type: EDS, and give the endpoints as a ClusterLoadAssignment: pushed under the cluster's endpoints, or from a management server"
	logicalInstead = "write type: LOGICAL_DNS for a single name, or type: EDS, and give the endpoints as a ClusterLoadAssignment"
	whereEndpoints = "the endpoints are those that are pushed, in lbd's own files, or from a management server"
	wantedName     = "{socket_address: {address: orders.example.com, port_value: 8080}}"
)

func (v clusterValidator) discovery(m *clusterv3.Cluster, c *resource.Cluster) {
	switch t := m.GetClusterDiscoveryType().(type) {
	case *clusterv3.Cluster_Type:
		switch t.Type {
		case clusterv3.Cluster_EDS:
			c.Type, c.EDSServiceName = resource.ClusterEDS, v.eds(m)
		case clusterv3.Cluster_LOGICAL_DNS:
			c.Type, c.DNSHostname = resource.ClusterLogicalDNS, v.logicalDNS(m.GetLoadAssignment())
		case clusterv3.Cluster_STATIC:
			v.reject("type", "%s is not supported: %s", t.Type, pushInstead)
		case clusterv3.Cluster_STRICT_DNS:
			v.reject("type", "%s is not supported: %s", t.Type, logicalInstead)
		default:
			v.reject("type", "%s is not supported: %s", t.Type, supportedTypes)
		}
	case *clusterv3.Cluster_ClusterType:
		if name := t.ClusterType.GetName(); name != aggregateName {
			v.reject("cluster_type.name", "%q is not supported: %s", name, supportedTypes)
			return
		}
		c.Type, c.Leaves = resource.ClusterAggregate, v.aggregate(t.ClusterType)
	default:
		v.reject("type", "is absent, which means STATIC, and that is not supported: %s", pushInstead)
	}
}

// eds validates an EDS cluster's eds_cluster_config, and returns its service_name.
func (v clusterValidator) eds(m *clusterv3.Cluster) string {
	const field = "eds_cluster_config"
	service := m.GetEdsClusterConfig().GetServiceName()
	v.fields(m.GetEdsClusterConfig(), field)
	if strings.HasPrefix(m.GetName(), "xdstp:") && service == "" {
		v.reject(field+".service_name", "is absent, and a cluster whose name begins with xdstp: must have one")
	}
	if v.byHand && service != "" {
		v.rejectIf(field+".service_name", badName(service))
	}
	v.configSource(m.GetEdsClusterConfig().GetEdsConfig(), field+".eds_config", whereEndpoints)
	return service
}

// configSource validates the source of a resource that another one names. where is the
// source that lbd uses for one that is written by hand and names a file.
func (r *report) configSource(source *corev3.ConfigSource, field, where string) {
	r.apiVersions(source, field)
	switch name := specifier(source); {
	case name == "ads", name == "self", r.byHand && source.GetConfigSourceSpecifier() == nil:
	case r.byHand && (name == "path_config_source" || name == "path"):
		r.warn(field+"."+name, "is not read: %s", where)
	default:
		r.reject(field, "is %s: it must be ads or self", name)
	}
}

func (r *report) apiVersions(source *corev3.ConfigSource, field string) {
	r.apiVersion(source.GetResourceApiVersion(), field+".resource_api_version")
	r.apiVersion(source.GetSelf().GetTransportApiVersion(), field+".self.transport_api_version")
}

func (r *report) apiVersion(version corev3.ApiVersion, field string) {
	if version != corev3.ApiVersion_AUTO && version != corev3.ApiVersion_V3 {
		r.warnByHand(field, "is not applied: it is %s, and resources are V3", version)
	}
}

func specifier(s *corev3.ConfigSource) string {
	return cmp.Or(oneof(s, "config_source_specifier"), "absent")
}

// logicalDNS validates load_assignment, and returns the "host:port" that it names (gRFC A37).
func (v clusterValidator) logicalDNS(m *endpointv3.ClusterLoadAssignment) string {
	field := "load_assignment"
	if m == nil {
		v.reject(field, "is absent: LOGICAL_DNS takes from it the one name that is resolved")
		return ""
	}
	v.fieldsAs(m, field, logicalDNS)
	field += ".endpoints"
	if n := len(m.GetEndpoints()); n != 1 {
		v.reject(field, "holds %d localities: LOGICAL_DNS takes exactly one", n)
		return ""
	}
	endpoints := m.GetEndpoints()[0].GetLbEndpoints()
	field += "[0].lb_endpoints"
	if n := len(endpoints); n != 1 {
		v.reject(field, "holds %d endpoints: LOGICAL_DNS takes exactly one", n)
		return ""
	}
	field += "[0].endpoint"
	if endpoints[0].GetEndpoint() == nil {
		v.reject(field, "is absent: write endpoint: {address: %s}", wantedName)
		return ""
	}
	field += ".address.socket_address"
	socket := endpoints[0].GetEndpoint().GetAddress().GetSocketAddress()
	if socket == nil {
		v.reject(field, "is absent: write address: %s", wantedName)
		return ""
	}
	if name := socket.GetResolverName(); name != "" {
		v.reject(field+".resolver_name", "is %q, which is not supported: names are resolved by the system", name)
	}
	if socket.GetAddress() == "" {
		v.reject(field+".address", "is empty: it must be the name that is resolved")
	} else if v.byHand {
		v.rejectIf(field+".address", badHost(socket.GetAddress()))
	}
	if name, reason := badPort(socket); v.byHand || socket.GetPortValue() == 0 { // gRPC accepts ports above 65535
		v.rejectIf(field+"."+name, reason)
	}
	return hostPort(socket)
}

// aggregate validates an aggregate's clusters, and returns their names, each once.
func (v clusterValidator) aggregate(t *clusterv3.Cluster_CustomClusterType) []string {
	const field = "cluster_type.typed_config"
	var m aggregatev3.ClusterConfig
	config := t.GetTypedConfig()
	// gRPC does not compare the type.
	if v.byHand && config.MessageName() != nameOf(&m) {
		v.reject(field, "is %q: it must be a %s", config.GetTypeUrl(), nameOf(&m))
		return nil
	}
	if !v.carries(config, &m, field) {
		return nil
	}
	v.fields(&m, field)
	if len(m.GetClusters()) == 0 {
		v.reject(field+".clusters", "is empty: an aggregate takes at least one cluster")
		return nil
	}
	var leaves []string
	first := make(map[string]int, len(m.GetClusters()))
	for i, name := range m.GetClusters() {
		at := element(field+".clusters", i)
		if n, twice := first[name]; twice {
			v.warnByHand(at, "is %q, as clusters[%d] is: it counts once", name, n)
			continue
		}
		first[name] = i
		leaves = append(leaves, name)
		if v.byHand {
			v.rejectIf(at, badReference(name))
		}
	}
	return leaves
}
