package decode

import (
	"net"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/xds/resource"
)

// aggregateName is what cluster_type calls an aggregate of clusters (gRFC A37).
const aggregateName = "envoy.clusters.aggregate"

// Where a cluster's endpoints may come from, as a refusal says it.
const (
	supportedTypes = "supported are EDS, LOGICAL_DNS, and the cluster_type " + aggregateName
	pushInstead    = "write type: EDS, and give the endpoints as a ClusterLoadAssignment: pushed under the cluster's endpoints, or from a management server"
	logicalInstead = "write type: LOGICAL_DNS for a single name, or type: EDS, and give the endpoints as a ClusterLoadAssignment"
	whereEndpoints = "the endpoints are those that are pushed, in lbd's own files, or from a management server"
)

// discovery judges how the cluster finds its endpoints, and fills in what it
// needs for that. Each kind that lbd can run has its arm.
func (v clusterValidator) discovery(m *clusterv3.Cluster, c *resource.Cluster) {
	switch t := m.GetClusterDiscoveryType().(type) {
	case *clusterv3.Cluster_Type:
		switch t.Type {
		case clusterv3.Cluster_EDS:
			c.Type, c.EDSServiceName = resource.ClusterEDS, v.eds(m)
		case clusterv3.Cluster_LOGICAL_DNS:
			c.Type, c.DNSHostname = resource.ClusterLogicalDNS, v.logicalDNS(m.GetLoadAssignment())
		case clusterv3.Cluster_STATIC:
			v.refuse("type", "%s is not supported: %s", t.Type, pushInstead)
		case clusterv3.Cluster_STRICT_DNS:
			v.refuse("type", "%s is not supported: %s", t.Type, logicalInstead)
		default:
			v.refuse("type", "%s is not supported: %s", t.Type, supportedTypes)
		}
	case *clusterv3.Cluster_ClusterType:
		if name := t.ClusterType.GetName(); name != aggregateName {
			v.refuse("cluster_type.name", "%q is not supported: %s", name, supportedTypes)
			return
		}
		c.Type, c.Leaves = resource.ClusterAggregate, v.aggregate(t.ClusterType)
	default:
		v.refuse("type", "is absent, which means STATIC, and that is not supported: %s", pushInstead)
	}
}

// eds judges an EDS cluster's eds_cluster_config, and returns its service_name.
func (v clusterValidator) eds(m *clusterv3.Cluster) string {
	const field = "eds_cluster_config"
	service := m.GetEdsClusterConfig().GetServiceName()
	v.fields(m.GetEdsClusterConfig(), field)
	if strings.HasPrefix(m.GetName(), "xdstp:") && service == "" {
		v.refuse(field+".service_name", "is absent, and a cluster whose name begins with xdstp: must have one")
	}
	if v.byHand && service != "" {
		v.refuseIf(field+".service_name", badName(service))
	}
	v.configSource(m.GetEdsClusterConfig().GetEdsConfig(), field+".eds_config", whereEndpoints)
	return service
}

// logicalDNS judges a LOGICAL_DNS cluster's load_assignment, and returns the
// "host:port" that it names (gRFC A37).
func (v clusterValidator) logicalDNS(m *endpointv3.ClusterLoadAssignment) string {
	field := "load_assignment"
	if m == nil {
		v.refuse(field, "is absent: LOGICAL_DNS takes from it the one name that is resolved")
		return ""
	}
	v.fieldsAs(m, field, logicalDNS)
	field += ".endpoints"
	if n := len(m.GetEndpoints()); n != 1 {
		v.refuse(field, "holds %d localities: LOGICAL_DNS takes exactly one", n)
		return ""
	}
	locality := m.GetEndpoints()[0]
	field += "[0].lb_endpoints"
	if n := len(locality.GetLbEndpoints()); n != 1 {
		v.refuse(field, "holds %d endpoints: LOGICAL_DNS takes exactly one", n)
		return ""
	}
	endpoint := locality.GetLbEndpoints()[0]
	field += "[0].endpoint"
	if endpoint.GetEndpoint() == nil {
		v.refuse(field, "is absent: write endpoint: {address: %s}", wantedName)
		return ""
	}
	field += ".address.socket_address"
	socket := endpoint.GetEndpoint().GetAddress().GetSocketAddress()
	if socket == nil {
		v.refuse(field, "is absent: write address: %s", wantedName)
		return ""
	}
	v.dnsName(socket, field)
	return net.JoinHostPort(socket.GetAddress(), strconv.FormatUint(uint64(socket.GetPortValue()), 10))
}

// wantedName is how a name to resolve is to be written.
const wantedName = "{socket_address: {address: orders.example.com, port_value: 8080}}"

// dnsName judges the name and the port of a LOGICAL_DNS cluster.
func (v clusterValidator) dnsName(s *corev3.SocketAddress, field string) {
	if s.GetResolverName() != "" {
		v.refuse(field+".resolver_name", "is %q, which is not supported: names are resolved by the system", s.GetResolverName())
	}
	if s.GetAddress() == "" {
		v.refuse(field+".address", "is empty: it must be the name that is resolved")
	} else if v.byHand {
		v.refuseIf(field+".address", badHost(s.GetAddress()))
	}
	port, named := s.GetPortValue(), s.GetNamedPort() != ""
	switch {
	case named:
		v.refuse(field+".named_port", "is not supported: write the number in port_value")
	case port == 0, v.byHand && port > 65535:
		v.refuse(field+".port_value", "is %d: it must be from 1 to 65535", port)
	}
}

// aggregate judges an aggregate's list of clusters, and returns their names,
// each once.
func (v clusterValidator) aggregate(t *clusterv3.Cluster_CustomClusterType) []string {
	const field = "cluster_type.typed_config"
	var m aggregatev3.ClusterConfig
	config := t.GetTypedConfig()
	// gRPC does not look at the type.
	if v.byHand && config.MessageName() != nameOf(&m) {
		v.refuse(field, "is %q: it must be a %s", config.GetTypeUrl(), nameOf(&m))
		return nil
	}
	if err := proto.Unmarshal(config.GetValue(), &m); err != nil {
		v.refuse(field, "cannot be read as %s: %s", nameOf(&m), plain(err))
		return nil
	}
	v.fields(&m, field)
	if len(m.GetClusters()) == 0 {
		v.refuse(field+".clusters", "is empty: an aggregate takes at least one cluster")
		return nil
	}
	return v.leaves(m.GetClusters(), field+".clusters")
}

func (v clusterValidator) leaves(names []string, field string) []string {
	leaves := make([]string, 0, len(names))
	first := make(map[string]int, len(names))
	for i, name := range names {
		at := element(field, i)
		if n, twice := first[name]; twice {
			v.warnByHand(at, "is %q, as clusters[%d] is: it counts once", name, n)
			continue
		}
		first[name] = i
		leaves = append(leaves, name)
		if v.byHand {
			v.refuseIf(at, badReference(name))
		}
	}
	return leaves
}
