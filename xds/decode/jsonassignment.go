package decode

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"
	"sync"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

// jsonAssignment reads a ClusterLoadAssignment as JSON in one pass, and writes it as protobuf in canonical form, for
// readAssignment. It fails on all that has to be reported, and on rare forms of values.
type jsonAssignment struct {
	text.Scanner
	report   *report
	pauseAt  int    // the number of entries at which Pause is called
	elements int    // of lists of messages
	nested   int    // Structs and lists around a value in a Struct
	fields   []byte // of the message whose fields are sorted
}

const (
	jsonPauseEntries = 2048             // between two calls of Pause
	jsonElements     = 2 * MaxEndpoints // the most elements of all lists of messages: endpoints, localities and so on
)

// assignmentJSON returns an assignment as protobuf, or false if it gave up.
func assignmentJSON(r *report, body []byte) (raw []byte, ok bool) {
	if r.key.Type != resource.TypeAssignment || r.reflective {
		return nil, false
	}
	d := jsonAssignment{Scanner: text.Scan(bytes.TrimPrefix(body, []byte("\ufeff"))), report: r}
	raw = d.message(make([]byte, 0, len(body)/4), assignmentMembers())
	return raw, d.End() && d.Entries <= MaxJSONEntries
}

// jsonMember is a field of a message, as JSON has it.
type jsonMember struct {
	name, other string // with quotes; other is empty if there is only one
	number      protowire.Number
	rank        int // its place in canonical form
	list        bool
	kind        protoreflect.Kind // 0 for @type
	enum        []string          // the names of an enum, by number
	of          protoreflect.Name // the type of a message
	message     []jsonMember      // what is read of it
}

// jsonNames are the fields of each message that are read, in the order in which most programs write them.
var jsonNames = map[protoreflect.Name][]protoreflect.Name{
	"ClusterLoadAssignment": {"cluster_name", "endpoints", "policy"},
	"LocalityLbEndpoints":   {"locality", "lb_endpoints", "load_balancing_weight", "priority"},
	"Locality":              {"region", "zone", "sub_zone"},
	"LbEndpoint":            {"endpoint", "health_status", "metadata", "load_balancing_weight"},
	"Endpoint":              {"address", "hostname", "additional_addresses"},
	"AdditionalAddress":     {"address"},
	"Address":               {"socket_address"},
	"SocketAddress":         {"address", "port_value", "protocol"},
	"Metadata":              {"filter_metadata"},
	"Policy":                {"drop_overloads", "overprovisioning_factor"},
	"DropOverload":          {"category", "drop_percentage"},
	"FractionalPercent":     {"numerator", "denominator"},
}

var assignmentMembers = sync.OnceValue(func() []jsonMember {
	return append(jsonMembers((&endpointv3.ClusterLoadAssignment{}).ProtoReflect().Descriptor()), jsonMember{name: `"@type"`})
})

func jsonMembers(md protoreflect.MessageDescriptor) (list []jsonMember) {
	for _, name := range jsonNames[md.Name()] {
		fd := md.Fields().ByName(name)
		f := jsonMember{name: strconv.Quote(string(name)), other: strconv.Quote(fd.JSONName()), number: fd.Number(), rank: int(fd.Number()), list: fd.IsList(), kind: fd.Kind()}
		if f.name == f.other {
			f.other = ""
		}
		if fd.ContainingOneof() != nil {
			f.rank = math.MaxInt
		}
		if ed := fd.Enum(); ed != nil {
			for i := range ed.Values().Len() {
				f.enum = append(f.enum, string(ed.Values().ByNumber(protoreflect.EnumNumber(i)).Name()))
			}
		}
		if m := messageIn(fd); m != nil {
			f.of, f.message = m.Name(), jsonMembers(m)
		}
		list = append(list, f)
	}
	return list
}

// field reads the name of a member, which must be there once. It returns nil if its value is null, except @type.
func (d *jsonAssignment) field(fields []jsonMember, seen *uint32) *jsonMember {
	for i := range fields {
		f := &fields[i]
		if *seen&(1<<i) != 0 || !d.Word(f.name) && (f.other == "" || !d.Word(f.other)) {
			continue
		}
		*seen |= 1 << i
		if d.Colon(); f.kind != 0 && d.Peek() == 'n' && d.Word("null") {
			return nil
		}
		return f
	}
	d.Fail()
	return nil
}

// pause limits the entries, and calls Pause.
func (d *jsonAssignment) pause() {
	if d.Entries >= d.pauseAt {
		if d.Entries > MaxJSONEntries {
			d.Fail()
		}
		d.pauseAt = d.Entries + jsonPauseEntries
		d.report.pause()
	}
}

// message appends the fields of a message.
func (d *jsonAssignment) message(b []byte, fields []jsonMember) []byte {
	type place struct{ rank, from, to int }
	var places [8]place
	var seen uint32
	begin, n, last, sorted := len(b), 0, 0, true
	for d.Begin('{'); d.More('}'); {
		f := d.field(fields, &seen)
		if f == nil {
			continue
		}
		from := len(b)
		if f.list {
			for d.Begin('['); d.More(']'); {
				if d.elements++; d.elements > jsonElements {
					d.Fail()
				}
				b = d.value(b, f)
			}
		} else {
			b = d.value(b, f)
		}
		places[n] = place{f.rank, from, len(b)}
		sorted = sorted && last <= f.rank
		last = f.rank
		n++
	}
	if sorted {
		return b
	}
	d.fields = append(d.fields[:0], b[begin:]...)
	slices.SortFunc(places[:n], func(a, b place) int { return cmp.Compare(a.rank, b.rank) })
	b = b[:begin]
	for _, p := range places[:n] {
		b = append(b, d.fields[p.from-begin:p.to-begin]...)
	}
	return b
}

// value appends a field with a value, which is an element of it if it is a list.
func (d *jsonAssignment) value(b []byte, f *jsonMember) []byte {
	switch {
	case f.kind == 0:
		if string(d.String()) != resource.TypeAssignment.URL() {
			d.Fail()
		}
		return b
	case f.kind == protoreflect.StringKind:
		return appendText(b, f.number, d.String())
	case f.kind == protoreflect.Uint32Kind:
		return appendUint32(b, f.number, d.Uint32())
	case f.kind == protoreflect.EnumKind:
		name := d.String()
		for i := range f.enum {
			if string(name) == f.enum[i] {
				return appendUint32(b, f.number, uint32(i))
			}
		}
		d.Fail()
		return b
	case f.of == "UInt32Value":
		return appendWrapped(b, f.number, d.Uint32())
	case f.of == "Struct":
		return d.entries(b, d.structure)
	}
	d.pause()
	b, from := beginMessage(b, f.number)
	return endMessage(d.message(b, f.message), from)
}

// entries appends field 1, a map whose values are messages that content reads.
func (d *jsonAssignment) entries(b []byte, content func(b []byte) []byte) []byte {
	begin, sorted := len(b), true
	var last []byte
	for d.Begin('{'); d.More('}'); {
		d.pause()
		key := d.Name()
		if string(key) == "@type" { // Skim looks at it
			d.Fail()
		}
		sorted = sorted && (last == nil || bytes.Compare(last, key) < 0)
		last = key
		entry, from := beginMessage(b, 1)
		value, at := beginMessage(appendBytes(entry, 1, key), 2)
		b = endMessage(endMessage(content(value), at), from)
	}
	if !sorted && !d.Failed {
		d.report.pause()
		if (&wire{failed: &d.Failed}).sort(b[begin:]); d.Failed {
			d.Fail()
		}
	}
	return b
}

// structure appends the fields of a Struct.
func (d *jsonAssignment) structure(b []byte) []byte { return d.entries(b, d.structValue) }

// structValue appends the fields of a google.protobuf.Value.
func (d *jsonAssignment) structValue(b []byte) []byte {
	d.pause()
	switch c := d.Peek(); {
	case c == '"':
		return appendBytes(b, 3, d.String())
	case c == '{':
		return d.nest(b, 5, d.structure)
	case c == '[':
		return d.nest(b, 6, d.list)
	case d.Word("null"):
		return append(b, 1<<3, 0)
	case d.Word("false"):
		return append(b, 4<<3, 0)
	case d.Word("true"):
		return append(b, 4<<3, 1)
	}
	number, err := strconv.ParseFloat(string(d.Number()), 64)
	if err != nil {
		d.Fail()
	}
	return protowire.AppendFixed64(append(b, 2<<3|byte(protowire.Fixed64Type)), math.Float64bits(number))
}

// nest appends a field with a Struct or a list in a Struct. Each of them moves what is in it, so that a deep one takes
// long: it fails early on what readAssignment gives up on.
func (d *jsonAssignment) nest(b []byte, num protowire.Number, content func(b []byte) []byte) []byte {
	if d.nested++; d.nested > maxStructDepth {
		d.Fail()
	}
	b, from := beginMessage(b, num)
	b = endMessage(content(b), from)
	d.report.pause()
	d.nested--
	return b
}

// list appends the fields of a google.protobuf.ListValue.
func (d *jsonAssignment) list(b []byte) []byte {
	for d.Begin('['); d.More(']'); {
		element, at := beginMessage(b, 1)
		b = endMessage(d.structValue(element), at)
	}
	return b
}
