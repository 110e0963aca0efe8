package decode

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Item returns an item, whose Raw is protobuf, with its value, and the warnings about
// it. If the decoder rejects it, the item has no value.
func Item(i resource.Item, o Options) (_ resource.Item, warnings []Problem, err error) {
	if i.Key.Type.URL() == "" {
		return i, nil, nil
	}
	d, err := One(i.Key.Type, i.Raw, o)
	if err != nil {
		return i, nil, err
	}
	i.Value = d.Value
	return i, d.Warnings, nil
}

// One reads a resource of type t, or a DiscoveryResponse with only one, which is also the
// form of the file that Envoy's file-based EDS reads. As of all functions here, the error
// is a *SyntaxError, a *SizeError, an *InvalidError or a *StoppedError.
func One(t resource.Type, body []byte, o Options) (*Decoded, error) {
	r := o.begin(resource.Key{Type: t, Name: o.Name})
	var d Decoded
	err := decodeOne(r, &d.Item, body)
	if err == nil {
		err = r.err()
	}
	if err != nil {
		placeError(err, body, o.Format, true)
		return nil, err
	}
	d.Key, d.Warnings, d.Notes = r.key, r.remarks().of(r.key), r.notes.of(r.key)
	if o.Places {
		Place(body, o.Format, true, d.Warnings, d.Notes)
	}
	return &d, nil
}

func decodeOne(r *report, it *resource.Item, body []byte) (err error) {
	defer rejectPanic(r.key, &err)
	r.sole = true
	if r.Format != FormatProtobuf {
		return decodeText(r, it, body)
	}
	value, err := unwrapBinary(r, body)
	if err != nil {
		return err
	}
	return decodeBinary(r, it, value)
}

// decodeBinary is decodeItem for a resource as protobuf, without an envelope. It tries the
// one-pass decoder first.
func decodeBinary(r *report, it *resource.Item, body []byte) (err error) {
	defer rejectPanic(r.key, &err)
	if ok, err := onePass(r, it, body); ok {
		return err
	}
	return decodeItem(r, it, func(m proto.Message) error {
		if err := unmarshal(body, m); err != nil {
			return err
		}
		walk(r, m)
		return nil
	})
}

// onePass is decodeItem for an assignment as protobuf, with the one-pass decoder. It reports false if that gave up.
func onePass(r *report, it *resource.Item, body []byte) (ok bool, err error) {
	attempt, value := *r, *it
	if r.key.Type != resource.TypeAssignment || r.reflective || !readAssignment(&attempt, &value, body) {
		return false, nil
	}
	*r, *it = attempt, value
	return true, rawSize(r, it, (&endpointv3.ClusterLoadAssignment{}).ProtoReflect().Descriptor())
}

// decodeItem is the reflective decoder. It decodes and validates a resource of the report's
// type that read reads, and sets the item's value, which is complete only if the report has
// no problems.
func decodeItem(r *report, it *resource.Item, read func(proto.Message) error) (err error) {
	defer rejectPanic(r.key, &err)
	m := newMessage(r.key.Type)
	if err := read(m); err != nil {
		return err
	}
	if r.sole {
		rejectOtherType(r, m)
	}
	switch m := m.(type) {
	case *listenerv3.Listener:
		m.Name = r.name("name", m.GetName())
		it.Listener = validateListener(r, m)
	case *routev3.RouteConfiguration:
		m.Name = r.name("name", m.GetName())
		it.Routes = validateRoutes(r, m, "")
	case *clusterv3.Cluster:
		m.Name = r.name("name", m.GetName())
		it.Cluster = validateCluster(r, m)
	case *endpointv3.ClusterLoadAssignment:
		m.ClusterName = r.name("cluster_name", m.GetClusterName())
		it.Assignment = validateAssignment(r, m)
	}
	if r.err() != nil {
		return nil
	}
	r.fields(m, "")
	it.Shareable = it.Assignment != nil && r.plainEndpoints()
	if it.Raw, err = canonical.Marshal(m); err != nil {
		return fmt.Errorf("encode %s: %w", r.key, err)
	}
	return rawSize(r, it, m.ProtoReflect().Descriptor())
}

// rawSize limits the size of Raw: a short JSON text may have many entries as protobuf.
func rawSize(r *report, it *resource.Item, md protoreflect.MessageDescriptor) error {
	if !r.byHand {
		return nil
	}
	return binarySize(it.Raw, md, MaxProtobufEntries)
}

// rejectPanic turns a panic into a rejection: a resource must not end the process. That of pause is the error itself.
func rejectPanic(k resource.Key, err *error) {
	p := recover()
	if stopped, ok := p.(*StoppedError); ok {
		*err = stopped
	} else if p != nil {
		*err = &InvalidError{Problems: []Problem{{
			Resource: k.String(),
			Reason:   fmt.Sprintf("decoding panicked, which is a fault of lbd: %v", p),
		}}}
	}
}

// decodeText is decodeItem for a resource as JSON, YAML or a list, in any envelope.
func decodeText(r *report, it *resource.Item, body []byte) (err error) {
	if r.Format == FormatYAML {
		if body, err = fromYAML(body, &r.Options); err != nil {
			return err
		}
	}
	if r.Format == FormatText || isList(body) && r.byHand {
		return decodeList(r, it, body)
	}
	return decodeJSON(r, it, body)
}

// decodeJSON is decodeItem for a resource as JSON. It tries the one-pass decoder first.
func decodeJSON(r *report, it *resource.Item, body []byte) (err error) {
	defer rejectPanic(r.key, &err)
	if raw, ok := assignmentJSON(r, body); ok {
		if ok, err := onePass(r, it, raw); ok {
			return err
		}
	}
	return decodeItem(r, it, func(m proto.Message) error { return readJSON(r, body, r.Format, m) })
}

// rejectOtherType rejects a resource that is written by hand with only unknown fields: one
// of another type could be read as an empty resource, and remove everything.
func rejectOtherType(r *report, m proto.Message) {
	if !r.byHand || r.unknown.empty() || !isEmpty(m) {
		return
	}
	if f := formIn(func(name string) bool {
		return slices.ContainsFunc(r.unknown.list, func(p Problem) bool { return p.Field == name })
	}); f != nil {
		r.unknown = problemList{}
		says := f.says
		if f.resources != nil {
			says = "push it as a snapshot, or put it into --resources: it may have several resources"
		}
		r.reject("", "is %s: %s", f.is, says)
		return
	}
	for _, other := range types {
		md := newMessage(other).ProtoReflect().Descriptor()
		if !slices.ContainsFunc(r.unknown.list, func(p Problem) bool { return fieldNamed(md, p.Field) == nil }) {
			r.unknown = problemList{}
			r.reject("", "holds no field of a %s: is it a %s?", r.key.Type, other)
			return
		}
	}
	r.unknown.list = slices.DeleteFunc(r.unknown.list, func(p Problem) bool { return !strings.Contains(p.Reason, didYouMean) })
	r.reject("", "holds no field of a %s: is it a resource of another type?", r.key.Type)
}

// fromYAML converts one YAML document to JSON.
func fromYAML(body []byte, o *Options) ([]byte, error) {
	body, err := text.FromYAML(body, o.pause)
	return body, textError(FormatYAML, err)
}

// textError converts an error of package text about a body in a format.
func textError(f Format, err error) error {
	e, ok := errors.AsType[*text.Error](err)
	switch {
	case !ok:
		return err
	case e.TooLarge:
		return &SizeError{f, e.Reason}
	default:
		return &SyntaxError{Format: f, Line: e.Line, Reason: e.Reason}
	}
}

// Resource decodes one resource of a type from a DiscoveryResponse, which may be wrapped in
// a Resource of envoy.service.discovery.v3. Item has the Key, its Name as soon as that can
// be read, even with an error; and without one the value, Raw and Unapplied. The error is
// an *InvalidError or a *SyntaxError. Of the options Origin, Name, Stored, Policies,
// Certificates, Previous and Pause are used.
func Resource(t resource.Type, a *anypb.Any, o Options) (resource.Item, error) {
	it := resource.Item{Key: resource.Key{Type: t}}
	r := o.begin(it.Key)
	err := decodeAny(r, &it, a)
	it.Key = r.key
	if err == nil {
		err = r.err()
	}
	if err != nil {
		return resource.Item{Key: it.Key}, err
	}
	it.Unapplied = r.unapplied.fields()
	return it, nil
}

func decodeAny(r *report, it *resource.Item, a *anypb.Any) (err error) {
	defer rejectPanic(r.key, &err)
	r.pause()
	if a, r.key.Name, err = wrappedResource(r, a); err != nil {
		return err
	}
	if url := a.GetTypeUrl(); url != r.key.Type.URL() {
		r.reject("@type", "is %q, where a %s is wanted (%s)", url, r.key.Type, r.key.Type.URL())
		return nil
	}
	if name := binaryName(a.GetValue()); name != "" {
		r.key.Name = name
	}
	return decodeBinary(r, it, a.GetValue())
}
