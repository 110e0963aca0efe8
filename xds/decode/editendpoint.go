package decode

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"
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
// of a ClusterLoadAssignment, or nil for an assignment without endpoints; canonicalHosts says that each address in it has
// its canonical spelling. The result, which is
// protobuf too, is not validated: decode it. An error is an *EndpointError, or that of a raw that is no
// ClusterLoadAssignment.
func SetEndpoint(raw []byte, canonicalHosts bool, name, address string, edit *EndpointEdit) (changed []byte, added bool, err error) {
	own, err := parseEndpointAddress(address)
	if err != nil {
		return nil, false, err
	}
	a, err := editAssignment(raw)
	if err != nil {
		return nil, false, err
	}
	if len(a.head) == 0 {
		a.head = protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
	}
	found, err := a.find(canonicalHosts, own)
	if err != nil {
		return nil, false, err
	}
	is := placedEndpoint{LbEndpoint: own.endpoint()}
	if added = len(found) == 0; !added {
		is = found[0]
	}
	to, err := a.locality(is.group, edit)
	if err != nil {
		return nil, false, err
	}
	if err := edit.apply(is.LbEndpoint); err != nil {
		return nil, false, err
	}
	element, err := canonical.Marshal(&endpointv3.LocalityLbEndpoints{LbEndpoints: []*endpointv3.LbEndpoint{is.LbEndpoint}})
	if err != nil {
		return nil, false, fmt.Errorf("encode the endpoint: %w", err)
	}
	switch from := is.group; {
	case to == from:
		to.endpoints = [][]byte{to.list[:is.begin], element, to.list[is.end:]}
	case from != nil:
		from.endpoints = [][]byte{from.list[:is.begin], from.list[is.end:]}
		fallthrough
	default:
		to.endpoints = append(to.endpoints, element)
	}
	return a.marshal(), added, nil
}

// RemoveEndpoints returns an assignment without some endpoints, as SetEndpoint does, and how many of
// them were there. Their localities stay, without endpoints if there are no others: they keep their weights,
// and there is no gap in the priorities.
func RemoveEndpoints(raw []byte, canonicalHosts bool, addresses ...string) (changed []byte, removed int, err error) {
	gone := make([]endpointAddress, len(addresses))
	for i, text := range addresses {
		if gone[i], err = parseEndpointAddress(text); err != nil {
			return nil, 0, err
		}
	}
	a, err := editAssignment(raw)
	if err != nil {
		return nil, 0, err
	}
	found, err := a.find(canonicalHosts, gone...)
	if err != nil || len(found) == 0 {
		return raw, 0, err
	}
	for i, is := range found {
		g, rest := is.group, 0 // of the list that is not in the parts yet
		if i == 0 || found[i-1].group != g {
			g.endpoints = nil
		} else {
			rest = found[i-1].end
		}
		g.endpoints = append(g.endpoints, g.list[rest:is.begin])
		if i+1 == len(found) || found[i+1].group != g {
			g.endpoints = append(g.endpoints, g.list[is.end:])
		}
	}
	return a.marshal(), len(found), nil
}

// assignmentEdit is a ClusterLoadAssignment that is changed. Of the endpoints, it decodes only those that change.
type assignmentEdit struct {
	head, tail []byte // its fields before and after the localities
	groups     []*groupEdit
}

// groupEdit is one of its localities.
type groupEdit struct {
	*endpointv3.LocalityLbEndpoints // without its endpoints

	head, tail []byte   // its fields before and after the endpoints
	list       []byte   // the endpoints before the change, with their tags
	endpoints  [][]byte // the parts of those after the change
}

// placedEndpoint is an endpoint, and its place in the list of its locality.
type placedEndpoint struct {
	*endpointv3.LbEndpoint

	group      *groupEdit
	begin, end int
}

func editAssignment(raw []byte) (*assignmentEdit, error) {
	if a := readEdit(raw); a != nil {
		return a, nil
	}
	m := &endpointv3.ClusterLoadAssignment{}
	if err := proto.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("the assignment cannot be read: %s", plain(err))
	}
	raw, err := canonical.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the assignment: %w", err)
	}
	if a := readEdit(raw); a != nil {
		return a, nil
	}
	return nil, errors.New("the assignment cannot be read: its fields are out of order")
}

// readEdit returns nil if a list has another field in between.
func readEdit(raw []byte) *assignmentEdit {
	head, groups, tail, ok := splitList(raw)
	if !ok {
		return nil
	}
	a := &assignmentEdit{head: head, tail: tail}
	for len(groups) > 0 {
		body, n := protowire.ConsumeBytes(groups[1:])
		groups = groups[1+n:]
		g := readGroupEdit(body)
		if g == nil {
			return nil
		}
		a.groups = append(a.groups, g)
	}
	return a
}

func readGroupEdit(body []byte) *groupEdit {
	g := &groupEdit{LocalityLbEndpoints: &endpointv3.LocalityLbEndpoints{}}
	var ok bool
	if g.head, g.list, g.tail, ok = splitList(body); !ok || proto.Unmarshal(slices.Concat(g.head, g.tail), g.LocalityLbEndpoints) != nil {
		return nil
	}
	g.endpoints = [][]byte{g.list}
	return g
}

// listTag is the tag of field 2: the localities of an assignment, and the endpoints of a locality.
const listTag = 2<<3 | byte(protowire.BytesType)

// splitList splits a message at its field 2. It reports false if there are other fields within the list, or a tag that is
// longer than it must be.
func splitList(m []byte) (head, list, tail []byte, ok bool) {
	take := func(belongs func(n protowire.Number, element bool, tag byte) bool) (fields []byte) {
		at := 0
		for at < len(m) {
			n, typ, size := protowire.ConsumeField(m[at:])
			if size < 0 || !belongs(n, n == 2 && typ == protowire.BytesType, m[at]) {
				break
			}
			at += size
		}
		fields, m = m[:at:at], m[at:]
		return fields
	}
	head = take(func(n protowire.Number, _ bool, _ byte) bool { return n < 2 })
	list = take(func(_ protowire.Number, element bool, tag byte) bool { return element && tag == listTag })
	tail = take(func(_ protowire.Number, element bool, _ byte) bool { return !element })
	return head, list, tail, len(m) == 0
}

// marshal returns the assignment after the change.
func (a *assignmentEdit) marshal() []byte {
	parts := [][]byte{a.head}
	for _, g := range a.groups {
		size := len(g.head) + len(g.tail)
		for _, part := range g.endpoints {
			size += len(part)
		}
		parts = append(parts, protowire.AppendVarint([]byte{listTag}, uint64(size)), g.head)
		parts = append(append(parts, g.endpoints...), g.tail)
	}
	return slices.Concat(append(parts, a.tail)...)
}

// find returns the endpoints that have one of some addresses, in their order.
func (a *assignmentEdit) find(canonicalHosts bool, addresses ...endpointAddress) (found []placedEndpoint, err error) {
	var text []byte // that these endpoints have
	if canonicalHosts && len(addresses) == 1 {
		text = protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), addresses[0].host)
	}
	wanted := make(map[endpointAddress]bool, len(addresses))
	for _, address := range addresses {
		wanted[address] = true
	}
	for _, g := range a.groups {
		for at, hit := 0, -1; at < len(g.list); {
			if hit < at {
				next := bytes.Index(g.list[at:], text)
				if next < 0 {
					break
				}
				hit = at + next
			}
			begin := at
			body, n := protowire.ConsumeBytes(g.list[at+1:])
			if at += 1 + n; hit >= at {
				continue
			}
			is := placedEndpoint{&endpointv3.LbEndpoint{}, g, begin, at}
			if err := proto.Unmarshal(body, is.LbEndpoint); err != nil {
				return nil, fmt.Errorf("the assignment cannot be read: %s", plain(err))
			}
			if slices.ContainsFunc(addressesOf(is.LbEndpoint), func(a endpointAddress) bool { return wanted[a] }) {
				found = append(found, is)
			}
		}
	}
	return found, nil
}

// locality returns the locality that has the endpoint after the change; it adds one if necessary. from is the one
// that has the endpoint before; nil if it is new.
func (a *assignmentEdit) locality(from *groupEdit, edit *EndpointEdit) (*groupEdit, error) {
	var found []*groupEdit
	for _, g := range a.groups {
		if (edit.Locality == nil || localityOf(g.LocalityLbEndpoints) == *edit.Locality) && (edit.Priority == nil || g.GetPriority() == *edit.Priority) {
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
func (a *assignmentEdit) addLocality(from *groupEdit, edit *EndpointEdit) (*groupEdit, error) {
	var id resource.Locality
	var priority uint32
	ids, priorities := map[resource.Locality]bool{}, map[uint32]bool{}
	for _, g := range a.groups {
		id, priority = localityOf(g.LocalityLbEndpoints), g.GetPriority() // the only ones, or they are not used
		ids[id], priorities[priority] = true, true
	}
	switch {
	case edit.Locality != nil:
		id = *edit.Locality
	case from != nil:
		id = localityOf(from.LocalityLbEndpoints)
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
	for _, g := range a.groups {
		if g.GetLoadBalancingWeight().GetValue() > 0 {
			return nil, &EndpointError{"locality", fmt.Sprintf("%s is not in priority %d, and a new one would need a weight, because others have one; push the assignment with it; there are %s",
				localityName(id), priority, a.names())}
		}
	}
	m := &endpointv3.LocalityLbEndpoints{Priority: priority}
	if id != (resource.Locality{}) {
		m.Locality = &corev3.Locality{Region: id.Region, Zone: id.Zone, SubZone: id.SubZone}
	}
	body, err := canonical.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the locality: %w", err)
	}
	g := readGroupEdit(body)
	a.groups = append(a.groups, g)
	return g, nil
}

// maxNamedLocalities limits how many localities an error names.
const maxNamedLocalities = 10

// names lists the localities, with their priorities if there are several.
func (a *assignmentEdit) names() string {
	several := slices.ContainsFunc(a.groups, func(g *groupEdit) bool {
		return g.GetPriority() != a.groups[0].GetPriority()
	})
	var names []string
	for i, g := range a.groups {
		if i == maxNamedLocalities {
			names = append(names, fmt.Sprintf("and %d more", len(a.groups)-i))
			break
		}
		name := localityName(localityOf(g.LocalityLbEndpoints))
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
