package decode

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// jsonShape is the type of a JSON value: a message, or a field's value; zero if unknown.
type jsonShape struct {
	message protoreflect.MessageDescriptor
	field   protoreflect.FieldDescriptor
	// single is true for an element of field, where field is a list or map.
	single bool
}

func shapeOf(url string) jsonShape {
	m := resolve(url)
	if m == nil {
		return jsonShape{}
	}
	return jsonShape{message: m.ProtoReflect().Descriptor()}
}

// object returns the type of the message of a JSON object, or nil if it is none.
func (s jsonShape) object() protoreflect.MessageDescriptor {
	switch {
	case s.message != nil:
		return s.message
	case s.field == nil || !s.single && (s.field.IsList() || s.field.IsMap()):
		return nil
	case s.field.IsMap():
		return s.field.MapValue().Message()
	default:
		return s.field.Message()
	}
}

// scalars says what to write for them.
var scalars = map[protoreflect.Kind]string{
	protoreflect.BoolKind: "true or false", protoreflect.StringKind: "a string in quotes", protoreflect.BytesKind: "a string in quotes, in base64",
	protoreflect.Uint32Kind: "a whole number from 0 to 4294967295", protoreflect.Uint64Kind: "a whole number from 0",
	protoreflect.Int32Kind: "a whole number", protoreflect.Int64Kind: "a whole number",
	protoreflect.FloatKind: "a number", protoreflect.DoubleKind: "a number",
}

// kind names the JSON value that is wanted, nothing if that is unknown.
func (s jsonShape) kind() string {
	switch {
	case s.field != nil && s.field.IsList() && !s.single:
		return "a list"
	case s.field != nil && s.field.IsMap() && !s.single:
		return "an object"
	}
	switch md := s.object(); {
	case md == nil && s.field == nil:
		return ""
	case md == nil && s.field.Enum() != nil:
		return "one of " + enumNames(s.field.Enum())
	case md == nil:
		return scalars[s.field.Kind()]
	case md.FullName() == "google.protobuf.Duration":
		return `a duration in seconds, such as "30s" or "0.5s"`
	case ownJSON(md) && md.Fields().Len() == 1: // a wrapper
		return scalars[md.Fields().Get(0).Kind()]
	case !ownJSON(md):
		return "an object"
	}
	return ""
}

func (s jsonShape) element() jsonShape {
	if s.field == nil {
		return jsonShape{}
	}
	return jsonShape{field: s.field, single: true}
}

func (s jsonShape) member(path, name string) (string, jsonShape) {
	if s.field != nil && s.field.IsMap() && !s.single {
		return path + "[" + strconv.Quote(name) + "]", s.element()
	}
	if md := s.object(); md != nil {
		if fd := fieldNamed(md, name); fd != nil {
			return join(path, string(fd.Name())), jsonShape{field: fd}
		}
	}
	return join(path, name), jsonShape{}
}

// jsonWalk reports the unknown fields and enum values in a decoded JSON value. protojson
// reports values of a wrong type.
type jsonWalk struct {
	*report
	// rewritten is true once the tree was changed.
	rewritten bool
}

func (w *jsonWalk) value(value any, md protoreflect.MessageDescriptor, path string) {
	object, ok := value.(map[string]any)
	if !ok {
		return
	}
	typed := md.FullName() == anyName
	if typed {
		if md = w.carried(object, path); md == nil {
			return
		}
	}
	if ownJSON(md) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if typed && name == "@type" {
			continue
		}
		fd := fieldNamed(md, name)
		if fd == nil {
			w.unknownField(envelopeless(join(path, name)), func() string {
				return unknownOf(string(md.Name()), suggestField(md, name))
			})
			continue
		}
		w.field(object[name], fd, join(path, string(fd.Name())))
	}
}

func (w *jsonWalk) field(value any, fd protoreflect.FieldDescriptor, path string) {
	switch {
	case fd.IsList():
		list, _ := value.([]any)
		for i, held := range list {
			w.single(held, fd, element(path, i))
		}
	case fd.IsMap():
		object, _ := value.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(object)) {
			w.single(object[key], fd.MapValue(), path+"["+strconv.Quote(key)+"]")
		}
	default:
		w.single(value, fd, path)
	}
}

func (w *jsonWalk) single(value any, fd protoreflect.FieldDescriptor, path string) {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		w.value(value, fd.Message(), path)
	case protoreflect.EnumKind:
		name, ok := value.(string)
		if ok && fd.Enum().Values().ByName(protoreflect.Name(name)) == nil {
			w.reject(envelopeless(path), "is %q, which is none of %s", name, enumNames(fd.Enum()))
		}
	}
}

// carried returns the type of the contents of an Any's object, nil if there is nothing to
// visit. An object that cannot be read is reported and emptied, so that the rest of the
// body can be read.
func (w *jsonWalk) carried(object map[string]any, path string) protoreflect.MessageDescriptor {
	if len(object) == 0 {
		return nil
	}
	url, _ := object["@type"].(string)
	if url == "" {
		w.reject(envelopeless(join(path, "@type")), "is absent: it must name the type of message")
		return nil
	}
	shape := shapeOf(url)
	if shape.message == nil {
		w.reject(envelopeless(join(path, "@type")),
			"is %q, a type that lbd does not know, so that its JSON cannot be read: check the name, or leave it out", url)
		clear(object)
		w.rewritten = true
		return nil
	}
	return shape.message
}

func enumNames(ed protoreflect.EnumDescriptor) string {
	names := make([]string, ed.Values().Len())
	for i := range names {
		names[i] = string(ed.Values().Get(i).Name())
	}
	return strings.Join(names, ", ")
}

// envelopeless returns a path from the resource on, without the messages around it.
func envelopeless(path string) string {
	inner, ok := strings.CutPrefix(path, "resources[0].")
	if !ok || inner == "@type" {
		return path
	}
	if of, ok := strings.CutPrefix(inner, "resource."); ok {
		return of
	}
	return inner
}
