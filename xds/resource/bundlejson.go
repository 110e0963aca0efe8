package resource

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// json reads a bundle. The envelope and each resource are read apart, so that a
// fault in one does not hide the others'.
func (d *bundling) json(body []byte) error {
	f := d.options.Format
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if len(bytes.TrimSpace(body)) == 0 {
		return &SyntaxError{Format: f, Reason: "the body is empty"}
	}
	if _, err := skim(body, f, 2*MaxJSONEntries); err != nil {
		return err
	}
	if !json.Valid(body) || bytes.TrimSpace(body)[0] != '{' {
		return d.syntax(body)
	}
	top := members(body)
	url := top.text("@type")
	list := top.find("resources")
	switch {
	case url == discoveryResponseURL, url == "" && list != nil:
		return d.envelope(body, top)
	case d.options.Bare:
		return d.bareJSON(body, top)
	default:
		d.noResources(top)
		return nil
	}
}

// noResources refuses an object that is no DiscoveryResponse, with the member that was
// probably meant to be its resources.
func (d *bundling) noResources(top object) {
	v := d.begin(Key{Type: typeBundle})
	md := (&discoveryv3.DiscoveryResponse{}).ProtoReflect().Descriptor()
	for _, m := range top {
		if suggested := suggestField(md, m.name); suggested == "resources" && fieldNamed(md, m.name) == nil {
			v.unknownField(m.name, func() string { return unknownOf(string(md.Name()), suggested) })
		}
	}
	v.refuse("resources", `is absent: a bundle is {"resources": [{"@type": %q}]} and the like`, TypeCluster.URL())
	d.end(v, "")
}

// syntax says what is wrong with a body that is no JSON object.
func (d *bundling) syntax(body []byte) error {
	// A Value is any JSON: it tells the syntax apart from what it is to mean.
	err := protojson.Unmarshal(body, &structpb.Value{})
	response := &discoveryv3.DiscoveryResponse{}
	if err == nil {
		err = protojson.Unmarshal(body, response)
	}
	if err == nil {
		return &SyntaxError{Format: d.options.Format, Reason: "the body is no JSON"}
	}
	return jsonError(body, d.options.Format, response.ProtoReflect().Descriptor(), err)
}

// envelope reads a DiscoveryResponse.
func (d *bundling) envelope(body []byte, top object) error {
	v := d.begin(Key{Type: typeBundle})
	response := &discoveryv3.DiscoveryResponse{}
	if err := v.readRest(top, response, d.options.Format, "@type", "resources", "version"); err != nil {
		return d.placed(err, body)
	}
	d.bundle.Version = response.GetVersionInfo()
	if own := top.find("version"); own != nil {
		if json.Unmarshal(own, &d.bundle.Version) != nil || own[0] != '"' {
			return d.placed(&SyntaxError{
				Format: d.options.Format, Field: "version",
				Reason: clip(string(own)) + " is no string: put it in quotes",
			}, body)
		}
		if response.GetVersionInfo() != "" {
			v.refuse("version", "is there beside version_info: write one of them")
		}
	}
	list := top.find("resources")
	switch {
	case list == nil:
		v.refuse("resources", "is absent")
	case list[0] != '[' && string(list) != "null":
		return d.placed(&SyntaxError{
			Format: d.options.Format, Field: "resources",
			Reason: "unexpected " + kindOf(list) + ", where a list is wanted",
		}, body)
	case top.count("resources") > 1:
		v.refuse("resources", "is there twice")
	}
	d.end(v, "")
	resources := members(list)
	if d.tooMany(len(resources)) {
		return nil
	}
	for i, r := range resources {
		if err := d.jsonItem(r.value, "resources["+strconv.Itoa(i)+"]"); err != nil {
			return err
		}
	}
	return nil
}

// placed gives an error of the envelope, which is read apart, its place in the
// body.
func (d *bundling) placed(err error, body []byte) error {
	if e, ok := err.(*SyntaxError); ok { //nolint:errorlint // it comes from readJSON, unwrapped
		e.Line, e.Column = 0, 0
		if e.Format == FormatJSON {
			e.Line, e.Column = Locate(body, FormatJSON, e.Field)
		}
	}
	return err
}

// jsonItem reads one resource of a bundle, which stands at a path.
func (d *bundling) jsonItem(text []byte, at string) error {
	if value := bytes.TrimSpace(text); value[0] != '{' {
		d.refuse(at, "is %s, where an object is wanted", kindOf(value))
		return nil
	}
	o := members(text)
	url := o.text("@type")
	if url == wrapperURL {
		return d.wrapped(o, at)
	}
	t := d.typed(url, o.text("name"), at)
	if t == "" {
		return nil
	}
	return d.item(at, Key{t, o.name(t)}, func(v *verdict, m proto.Message) error {
		return v.readJSON(text, d.options.Format, m)
	})
}

// wrapped reads a resource within a Resource.
func (d *bundling) wrapped(o object, at string) error {
	v := d.begin(Key{Type: typeBundle})
	if err := v.readRest(o, &discoveryv3.Resource{}, d.options.Format, "@type", "resource"); err != nil {
		e, ok := err.(*SyntaxError) //nolint:errorlint // it comes from readJSON, unwrapped
		if !ok {
			return err
		}
		v.refuse(e.Field, "%s", e.Reason)
	}
	inner := o.find("resource")
	if inner == nil {
		v.refuse("resource", "is absent")
	} else if o.count("resource") > 1 {
		v.refuse("resource", "is there twice")
	}
	d.end(v, at)
	if inner == nil {
		return nil
	}
	if inner[0] == '{' && members(inner).text("@type") == wrapperURL {
		d.refuse(within(at, "resource.@type"), "is a Resource within a Resource")
		return nil
	}
	return d.jsonItem(inner, within(at, "resource"))
}

// bareJSON reads a resource without an envelope.
func (d *bundling) bareJSON(body []byte, top object) error {
	if top.find("@type") != nil {
		return d.jsonItem(body, "")
	}
	t := top.kind()
	if t == "" {
		d.refuse("", "holds neither resources nor fields that tell which of "+aTypes+" it is: say so in @type")
		return nil
	}
	return d.item("", Key{t, top.name(t)}, func(v *verdict, m proto.Message) error {
		return v.readJSON(body, d.options.Format, m)
	})
}

// readRest reads an object into m, as the text of a message of that type, the
// members of some names left out.
func (v *verdict) readRest(o object, m proto.Message, f Format, without ...string) error {
	rest := []byte{'{'}
	for _, member := range o {
		if slices.Contains(without, member.name) {
			continue
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(append(append(rest, member.quoted...), ':'), member.value...)
	}
	return v.readJSON(append(rest, '}'), f, m)
}

// object is the members of a JSON object, in their order; or the elements of a
// list, without names.
type object []member

type member struct {
	name   string
	quoted []byte // the name as it is written
	value  []byte // without the space around it
}

// members takes apart an object or a list, whose text must be valid JSON. It
// shares the text's memory.
func members(text []byte) object {
	var o object
	var m member
	depth, start := 0, 0
	end := func(i int) {
		if m.value = bytes.TrimSpace(text[start:i]); len(m.value) > 0 {
			o = append(o, m)
		}
		m, start = member{}, i+1
	}
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			if depth++; depth == 1 {
				start = i + 1
			}
		case '}', ']':
			if depth--; depth == 0 {
				end(i)
			}
		case ':':
			if depth == 1 {
				m.quoted = bytes.TrimSpace(text[start:i])
				m.name = unquote(m.quoted)
				start = i + 1
			}
		case ',':
			if depth == 1 {
				end(i)
			}
		}
	}
	return o
}

// unquote returns the string that a JSON text is, empty where it is none.
func unquote(text []byte) string {
	var s string
	if json.Unmarshal(text, &s) != nil {
		return ""
	}
	return s
}

// find returns the value of the first member of a name, or nil.
func (o object) find(name string) []byte {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

func (o object) count(name string) int {
	n := 0
	for _, m := range o {
		if m.name == name {
			n++
		}
	}
	return n
}

// text returns the value of a member that is a string.
func (o object) text(name string) string { return unquote(o.find(name)) }

// name returns what a resource of a type seems to be called.
func (o object) name(t Type) string {
	if t != TypeAssignment {
		return o.text("name")
	}
	if name := o.text("cluster_name"); name != "" {
		return name
	}
	return o.text("clusterName")
}

// aTypes are the types that a resource without an envelope may have.
const aTypes = "a Listener, a RouteConfiguration, a Cluster and a ClusterLoadAssignment"

// kind tells a resource's type by its fields: the one that has the most of them;
// none where they do not tell.
func (o object) kind() Type {
	var kind Type
	most := 0
	for _, t := range types {
		m, err := newMessage(t)
		if err != nil {
			continue
		}
		has := 0
		for _, member := range o {
			if fieldNamed(m.ProtoReflect().Descriptor(), member.name) != nil {
				has++
			}
		}
		switch {
		case has > most:
			kind, most = t, has
		case has == most:
			kind = ""
		}
	}
	return kind
}

// kindOf names a JSON value, itself where it is short.
func kindOf(text []byte) string {
	switch text[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	default:
		return clip(string(text))
	}
}
