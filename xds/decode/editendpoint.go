package decode

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// EndpointEdit is what SetEndpoint sets of an endpoint. What is nil stays as it is; a new endpoint has
// the defaults of EDS, and belongs to the only locality.
type EndpointEdit struct {
	// Weight is the load_balancing_weight.
	Weight *uint32
	// Health is the name of a health_status, such as DRAINING.
	Health *string
	// Hostname is the hostname; empty for none.
	Hostname *string
	// Locality and Priority are those of the locality that has the endpoint.
	Locality *resource.Locality
	Priority *uint32
	// TTL makes it a registered endpoint, which is removed unless it is renewed; 0 makes it one that
	// stays.
	TTL *time.Duration
}

// EndpointError is why an endpoint of an assignment cannot be changed as requested.
type EndpointError struct {
	// Field is the part of the request that is wrong: address, or a field of EndpointEdit in
	// lower case.
	Field  string
	Reason string
}

func (e *EndpointError) Error() string { return e.Field + ": " + e.Reason }

// SetEndpoint returns an assignment with an endpoint that is added, or changed as edit says. The
// endpoint is the one that has the address, host:port, as its own or as an additional one. raw is the Raw
// of a ClusterLoadAssignment, or nil for an assignment without endpoints. The result, which is
// protobuf too, is not validated: decode it. An error is an *EndpointError, or that of a raw that is no
// ClusterLoadAssignment.
func SetEndpoint(raw []byte, name, address string, edit *EndpointEdit) (changed []byte, added bool, err error) {
	own, err := parseEndpointAddress(address)
	if err != nil {
		return nil, false, err
	}
	a, err := editAssignment(raw)
	if err != nil {
		return nil, false, err
	}
	a.ClusterName = cmp.Or(a.ClusterName, name)
	from, at := a.find(own)
	added = from == nil
	e := own.endpoint()
	if !added {
		e = from.GetLbEndpoints()[at]
	}
	to, err := a.locality(from, edit)
	if err != nil {
		return nil, false, err
	}
	if err := edit.apply(e); err != nil {
		return nil, false, err
	}
	if to != from {
		if !added {
			from.LbEndpoints = slices.Delete(from.GetLbEndpoints(), at, at+1)
		}
		to.LbEndpoints = append(to.GetLbEndpoints(), e)
	}
	changed, err = a.marshal()
	return changed, added, err
}

// RemoveEndpoints returns an assignment without some endpoints, as SetEndpoint does, and how many of
// them were there. Their localities stay, without endpoints if there are no others: they keep their weights,
// and there is no gap in the priorities.
func RemoveEndpoints(raw []byte, addresses ...string) (changed []byte, removed int, err error) {
	gone := make(map[endpointAddress]bool, len(addresses))
	for _, text := range addresses {
		address, err := parseEndpointAddress(text)
		if err != nil {
			return nil, 0, err
		}
		gone[address] = true
	}
	a, err := editAssignment(raw)
	if err != nil {
		return nil, 0, err
	}
	for _, group := range a.GetEndpoints() {
		before := len(group.GetLbEndpoints())
		group.LbEndpoints = slices.DeleteFunc(group.GetLbEndpoints(), func(e *endpointv3.LbEndpoint) bool {
			return slices.ContainsFunc(addressesOf(e), func(a endpointAddress) bool { return gone[a] })
		})
		removed += before - len(group.GetLbEndpoints())
	}
	if removed == 0 {
		return raw, 0, nil
	}
	changed, err = a.marshal()
	return changed, removed, err
}

// assignmentEdit is an assignment that is changed.
type assignmentEdit struct {
	*endpointv3.ClusterLoadAssignment
}

func editAssignment(raw []byte) (*assignmentEdit, error) {
	a := &assignmentEdit{&endpointv3.ClusterLoadAssignment{}}
	if err := proto.Unmarshal(raw, a.ClusterLoadAssignment); err != nil {
		return nil, fmt.Errorf("the assignment cannot be read: %s", plain(err))
	}
	return a, nil
}

func (a *assignmentEdit) marshal() ([]byte, error) {
	raw, err := canonical.Marshal(a.ClusterLoadAssignment)
	if err != nil {
		return nil, fmt.Errorf("encode the assignment: %w", err)
	}
	return raw, nil
}

// find returns the locality that has the endpoint, and the place of the endpoint in it; nil if there is
// none.
func (a *assignmentEdit) find(address endpointAddress) (group *endpointv3.LocalityLbEndpoints, at int) {
	for _, group := range a.GetEndpoints() {
		for i, e := range group.GetLbEndpoints() {
			if slices.Contains(addressesOf(e), address) {
				return group, i
			}
		}
	}
	return nil, 0
}

// locality returns the locality that has the endpoint after the change; it adds one if necessary. from is the one
// that has the endpoint before; nil if it is new.
func (a *assignmentEdit) locality(from *endpointv3.LocalityLbEndpoints, edit *EndpointEdit) (*endpointv3.LocalityLbEndpoints, error) {
	var found []*endpointv3.LocalityLbEndpoints
	for _, g := range a.GetEndpoints() {
		if (edit.Locality == nil || localityOf(g) == *edit.Locality) && (edit.Priority == nil || g.GetPriority() == *edit.Priority) {
			found = append(found, g)
		}
	}
	switch {
	case from != nil && slices.Contains(found, from):
		return from, nil
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, a.ambiguous(edit)
	default:
		return a.addLocality(from, edit)
	}
}

// ambiguous returns the error of an endpoint that could be in several localities.
func (a *assignmentEdit) ambiguous(edit *EndpointEdit) error {
	if edit.Locality != nil {
		return &EndpointError{"priority", fmt.Sprintf("required: locality %s is in several priorities; there are %s", localityName(*edit.Locality), a.names())}
	}
	return &EndpointError{"locality", "required: the assignment has several; there are " + a.names()}
}

// addLocality adds a locality. It has no weight, so no other may have one: it would get no load.
func (a *assignmentEdit) addLocality(from *endpointv3.LocalityLbEndpoints, edit *EndpointEdit) (*endpointv3.LocalityLbEndpoints, error) {
	var id resource.Locality
	var priority uint32
	ids, priorities := map[resource.Locality]bool{}, map[uint32]bool{}
	for _, g := range a.GetEndpoints() {
		id, priority = localityOf(g), g.GetPriority() // the only ones, or they are not used
		ids[id], priorities[priority] = true, true
	}
	switch {
	case edit.Locality != nil:
		id = *edit.Locality
	case from != nil:
		id = localityOf(from)
	case len(ids) > 1:
		return nil, a.ambiguous(edit)
	}
	switch {
	case edit.Priority != nil:
		priority = *edit.Priority
	case from != nil:
		priority = from.GetPriority()
	case len(priorities) > 1:
		return nil, &EndpointError{"priority", fmt.Sprintf("required: locality %s is new, and there are several priorities; there are %s", localityName(id), a.names())}
	}
	for _, g := range a.GetEndpoints() {
		if g.GetLoadBalancingWeight().GetValue() > 0 {
			return nil, &EndpointError{"locality", fmt.Sprintf("%s is not in priority %d, and a new one would need a weight, because others have one; push the assignment with it; there are %s",
				localityName(id), priority, a.names())}
		}
	}
	g := &endpointv3.LocalityLbEndpoints{Priority: priority}
	if id != (resource.Locality{}) {
		g.Locality = &corev3.Locality{Region: id.Region, Zone: id.Zone, SubZone: id.SubZone}
	}
	a.Endpoints = append(a.Endpoints, g)
	return g, nil
}

// maxNamedLocalities limits how many localities an error names.
const maxNamedLocalities = 10

// names lists the localities, with their priorities if there are several.
func (a *assignmentEdit) names() string {
	several := slices.ContainsFunc(a.GetEndpoints(), func(g *endpointv3.LocalityLbEndpoints) bool {
		return g.GetPriority() != a.GetEndpoints()[0].GetPriority()
	})
	var names []string
	for i, g := range a.GetEndpoints() {
		if i == maxNamedLocalities {
			names = append(names, fmt.Sprintf("and %d more", len(a.GetEndpoints())-i))
			break
		}
		name := localityName(localityOf(g))
		if several {
			name += fmt.Sprintf(" (priority %d)", g.GetPriority())
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

func localityOf(g *endpointv3.LocalityLbEndpoints) resource.Locality {
	id := g.GetLocality()
	return resource.Locality{Region: id.GetRegion(), Zone: id.GetZone(), SubZone: id.GetSubZone()}
}

func localityName(l resource.Locality) string {
	if l == (resource.Locality{}) {
		return "the empty locality"
	}
	return strings.TrimSuffix(strings.Join([]string{l.Region, l.Zone, l.SubZone}, "/"), "/")
}

// apply sets what is given.
func (edit *EndpointEdit) apply(e *endpointv3.LbEndpoint) error {
	if edit.Weight != nil {
		if *edit.Weight == 0 {
			return &EndpointError{"weight", "must be at least 1; to take no new picks, set health to DRAINING"}
		}
		e.LoadBalancingWeight = wrapperspb.UInt32(*edit.Weight)
	}
	if edit.Health != nil {
		status, ok := corev3.HealthStatus_value[*edit.Health]
		if !ok {
			return &EndpointError{"health", fmt.Sprintf("%q is no health status; there are %s", *edit.Health, enumNames(corev3.HealthStatus(0).Descriptor()))}
		}
		e.HealthStatus = corev3.HealthStatus(status)
	}
	if edit.Hostname != nil {
		e.GetEndpoint().Hostname = *edit.Hostname
	}
	if edit.TTL != nil {
		return setTTL(e, *edit.TTL)
	}
	return nil
}

// endpointAddress is an address of an endpoint. All spellings of it are equal.
type endpointAddress struct {
	host string
	port uint32
}

func newEndpointAddress(host string, port uint32) endpointAddress {
	return endpointAddress{resource.CanonicalHost(host), port}
}

func parseEndpointAddress(text string) (endpointAddress, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return endpointAddress{}, &EndpointError{"address", fmt.Sprintf("%q is no address and port, such as 10.0.0.7:8080 or [2001:db8::7]:8080", text)}
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return endpointAddress{}, &EndpointError{"address", fmt.Sprintf("%q has no valid port, 1 to 65535", text)}
	}
	if reason := badHost(host); reason != "" {
		return endpointAddress{}, &EndpointError{"address", reason}
	}
	return newEndpointAddress(host, uint32(number)), nil
}

// addressesOf returns the addresses of an endpoint.
func addressesOf(e *endpointv3.LbEndpoint) []endpointAddress {
	var all []endpointAddress
	add := func(a *corev3.Address) {
		if s := a.GetSocketAddress(); s != nil {
			all = append(all, newEndpointAddress(s.GetAddress(), s.GetPortValue()))
		}
	}
	add(e.GetEndpoint().GetAddress())
	for _, more := range e.GetEndpoint().GetAdditionalAddresses() {
		add(more.GetAddress())
	}
	return all
}

// endpoint returns a new endpoint that has the address.
func (a endpointAddress) endpoint() *endpointv3.LbEndpoint {
	address := &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: a.host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: a.port},
	}}}
	return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}}}
}
