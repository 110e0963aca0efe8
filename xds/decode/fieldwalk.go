package decode

import (
	"fmt"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

// fields warns of the fields of m, at a path, and of the messages in it that are not
// applied. A stored resource got these warnings when it was pushed, or when a management
// server sent it.
func (r *report) fields(m proto.Message, at string) { r.fieldsAs(m, at, "") }

// fieldsAs is fields with a variant of the tables, such as logicalDNS.
func (r *report) fieldsAs(m proto.Message, at, variant string) {
	if r.Stored {
		return
	}
	plan := fieldPlans()[string(nameOf(m))+variant]
	if plan == nil {
		return
	}
	w := fieldWalk{report: r, at: at}
	w.message(m.ProtoReflect(), plan, make(path, 0, 16))
}

// fieldWalk visits the messages that are reached through applied fields.
type fieldWalk struct {
	*report
	at string
}

func (w *fieldWalk) message(m protoreflect.Message, plan *fieldPlan, p path) {
	if plan.endpoints {
		if e, ok := m.Interface().(*endpointv3.LbEndpoint); ok && plainEndpoint(e) {
			return
		}
	}
	for _, f := range plan.ignored {
		if m.Has(f.fd) {
			w.unapplied.add(f, func() string { return join(within(w.at, p.String()), string(f.fd.Name())) })
		}
	}
	for _, n := range plan.nested {
		if m.Has(n.fd) {
			eachMessage(m, n.fd, p, func(inner protoreflect.Message, p path) { w.message(inner, n.plan, p) })
		}
	}
}

// plainEndpoint reports whether an endpoint has no field that is not applied. A push
// has thousands of them, and reflection takes a tenth of the time to read it.
func plainEndpoint(m *endpointv3.LbEndpoint) bool {
	e := m.GetEndpoint()
	s := e.GetAddress().GetSocketAddress()
	return len(m.GetMetadata().GetTypedFilterMetadata()) == 0 && len(e.GetAdditionalAddresses()) == 0 &&
		e.GetHealthCheckConfig() == nil && e.GetObservabilityName() == "" &&
		s.GetProtocol() == corev3.SocketAddress_TCP && s.GetResolverName() == "" && !s.GetIpv4Compat() && s.GetNetworkNamespaceFilepath() == ""
}

// ignoredField is a field that is not applied.
type ignoredField struct {
	fd     protoreflect.FieldDescriptor
	name   string // of the message in fieldTable, a dot, and the name of the field
	reason string
}

// unapplied is a field that is set and not applied: the first path, and how many others.
type unapplied struct {
	*ignoredField
	path string
	more int
}

// problem returns the warning about the field.
func (u *unapplied) problem() Problem {
	reason := u.reason
	if u.more > 0 {
		reason += fmt.Sprintf(" (and %d more like it)", u.more)
	}
	return Problem{Field: text.Clip(u.path), Reason: reason}
}

// unappliedFields are the unapplied fields of a resource, each field of a message once.
type unappliedFields struct {
	list  []*unapplied
	known map[*ignoredField]*unapplied
}

// add adds a field. path is called only for its first occurrence.
func (l *unappliedFields) add(f *ignoredField, path func() string) {
	if known := l.known[f]; known != nil {
		known.more++
		return
	}
	if l.known == nil {
		l.known = map[*ignoredField]*unapplied{}
	}
	u := &unapplied{ignoredField: f, path: path()}
	l.known[f] = u
	l.list = append(l.list, u)
}

// addOnce adds a field by its name, unless it is there.
func (l *unappliedFields) addOnce(name, path, reason string) {
	if !slices.ContainsFunc(l.list, func(u *unapplied) bool { return u.name == name }) {
		l.list = append(l.list, &unapplied{ignoredField: &ignoredField{name: name, reason: reason}, path: path})
	}
}

// fields returns the list, or nil if it is empty.
func (l *unappliedFields) fields() []resource.UnappliedField {
	var list []resource.UnappliedField
	for _, u := range l.list {
		list = append(list, resource.UnappliedField{Field: u.name, Path: text.Clip(u.path), Reason: u.reason})
	}
	return list
}
