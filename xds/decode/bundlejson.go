package decode

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

// json reads a bundle. The envelope and each resource are read separately, so that an
// error in one does not hide those in others.
func (d *bundling) json(body []byte) error {
	f := d.options.Format
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if len(bytes.TrimSpace(body)) == 0 {
		return &SyntaxError{Format: f, Reason: "the body is empty"}
	}
	if _, err := text.Skim(body, 2*MaxJSONEntries, 2*MaxJSONEntries); err != nil {
		return textError(f, err)
	}
	switch {
	case d.options.Bare && isList(body) && json.Valid(body):
		if list := text.Members(body); len(list) > 0 && list[0].Value[0] == '{' {
			return d.follow(bytes.TrimSpace(body), "", nil)
		}
		return d.list(body)
	case !json.Valid(body) || bytes.TrimSpace(body)[0] != '{':
		return d.syntax(body)
	}
	top := text.Members(body)
	url := top.Text("@type")
	list := top.Find("resources")
	if url == discoveryResponseURL || url == "" && list != nil {
		return d.envelope(body, top)
	}
	if ok, err := d.form(bytes.TrimSpace(body), ""); ok || err != nil {
		return err
	}
	t := typeIn(top)
	switch {
	case !d.options.Bare:
		d.noResources(top)
		return nil
	case top.Find("@type") != nil:
		return d.jsonItem(body, "")
	case t == "":
		return d.untyped("")
	}
	return d.jsonResource("", t, top, body)
}

func (d *bundling) jsonResource(at string, t resource.Type, o text.Object, body []byte) error {
	name := o.Text("name")
	if t == resource.TypeAssignment {
		name = cmp.Or(o.Text("cluster_name"), o.Text("clusterName"))
	}
	return d.item(at, resource.Key{Type: t, Name: name}, func(v *report, it *resource.Item) error {
		return decodeJSON(v, it, body)
	})
}

// noResources rejects an object that is no DiscoveryResponse, with the member that was
// probably meant to be its resources.
func (d *bundling) noResources(top text.Object) {
	v := d.begin()
	md := (&discoveryv3.DiscoveryResponse{}).ProtoReflect().Descriptor()
	for _, m := range top {
		if suggested := suggestField(md, m.Name); suggested == "resources" && fieldNamed(md, m.Name) == nil {
			v.unknownField(m.Name, func() string { return unknownOf(string(md.Name()), suggested) })
		}
	}
	v.reject("resources", `is absent: a bundle is {"resources": [{"@type": %q}]} and the like`, resource.TypeCluster.URL())
	d.end(v, "")
}

// syntax returns the error of a body that is no JSON object.
func (d *bundling) syntax(body []byte) error {
	// A Value is any JSON: its error is about the syntax alone.
	err := protojson.Unmarshal(body, &structpb.Value{})
	response := &discoveryv3.DiscoveryResponse{}
	if err == nil {
		err = protojson.UnmarshalOptions{Resolver: anyTypes}.Unmarshal(body, response)
	}
	if err == nil {
		return &SyntaxError{Format: d.options.Format, Reason: "the body is no JSON"}
	}
	return jsonError(body, d.options.Format, response.ProtoReflect().Descriptor(), err)
}

func (d *bundling) envelope(body []byte, top text.Object) error {
	v := d.begin()
	response := &discoveryv3.DiscoveryResponse{}
	if err := readRest(v, top, response, d.options.Format, "@type", "resources", "version"); err != nil {
		return d.placed(err, body)
	}
	wrong := func(field, reason string) error {
		return d.placed(&SyntaxError{Format: d.options.Format, Field: field, Reason: reason}, body)
	}
	d.bundle.Version = response.GetVersionInfo()
	if own := top.Find("version"); own != nil {
		if json.Unmarshal(own, &d.bundle.Version) != nil || own[0] != '"' {
			return wrong("version", text.Clip(string(own))+" is no string: put it in quotes")
		}
		if response.GetVersionInfo() != "" {
			v.reject("version", "is there beside version_info: write one of them")
		}
	}
	list := top.Find("resources")
	switch {
	case list == nil:
		v.reject("resources", "is absent")
	case list[0] != '[' && string(list) != "null":
		return wrong("resources", "unexpected "+text.Kind(list)+", where a list is wanted")
	case top.Count("resources") > 1:
		v.reject("resources", "is there twice")
	}
	d.end(v, "")
	resources := text.Members(list)
	if d.tooMany(len(resources)) {
		return nil
	}
	for i, r := range resources {
		if err := d.jsonItem(r.Value, element("resources", i)); err != nil {
			return err
		}
	}
	return nil
}

// placed sets the position of an error of the envelope, which is read without the
// resources.
func (d *bundling) placed(err error, body []byte) error {
	if e, ok := errors.AsType[*SyntaxError](err); ok {
		e.Line, e.Column = 0, 0
		if e.Format == FormatJSON {
			e.Line, e.Column = text.LocateJSON(body).Find(e.Field)
		}
	}
	return err
}

func (d *bundling) jsonItem(body []byte, at string) error {
	if value := bytes.TrimSpace(body); value[0] != '{' {
		d.reject(at, "is %s, where an object is wanted", text.Kind(value))
		return nil
	}
	o := text.Members(body)
	if isWrapper(o) {
		return d.wrapped(o, at)
	}
	url := v3URL(o.Text("@type"))
	if t := d.typed(url, o.Text("name"), at); t != "" {
		return d.jsonResource(at, t, o, body)
	}
	return nil
}

// isWrapper reports whether an object is a Resource. That of incremental xDS has no @type.
func isWrapper(o text.Object) bool {
	url := o.Text("@type")
	return url == wrapperURL || url == "" && o.Find("resource") != nil
}

func (d *bundling) wrapped(o text.Object, at string) error {
	v := d.begin()
	wrapper := &discoveryv3.Resource{}
	if err := readRest(v, o, wrapper, d.options.Format, "@type", "resource"); err != nil {
		e, ok := errors.AsType[*SyntaxError](err)
		if !ok {
			return err
		}
		v.reject(e.Field, "%s", e.Reason)
	}
	v.fields(wrapper, "")
	inner := o.Find("resource")
	if inner == nil {
		v.reject("resource", "is absent")
	} else if o.Count("resource") > 1 {
		v.reject("resource", "is there twice")
	}
	d.end(v, at)
	switch {
	case inner == nil:
		return nil
	case isWrapper(text.Members(inner)):
		d.reject(within(at, "resource.@type"), "is a Resource within a Resource")
		return nil
	default:
		return d.jsonItem(inner, within(at, "resource"))
	}
}

// readRest reads an object into m without some of its members.
func readRest(r *report, o text.Object, m proto.Message, f Format, without ...string) error {
	return readJSON(r, rest(o, "", without...), f, m)
}

// aTypes are the types that a resource without an envelope may have.
const aTypes = "a Listener, a RouteConfiguration, a Cluster and a ClusterLoadAssignment"

// typeIn returns the type that has most of an object's members as fields; none if that is
// not unique.
func typeIn(o text.Object) resource.Type {
	var best resource.Type
	most := 0
	for _, t := range types {
		has := 0
		for _, member := range o {
			if fieldNamed(newMessage(t).ProtoReflect().Descriptor(), member.Name) != nil {
				has++
			}
		}
		switch {
		case has > most:
			best, most = t, has
		case has == most:
			best = ""
		}
	}
	return best
}
