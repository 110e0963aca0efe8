package decode

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// path leads from the top of a message to one of its fields. It is cheap until it is
// written.
type path []step

type step struct {
	name  protoreflect.Name
	index int    // -1 without index
	mapAt string // the quoted key; empty without key
}

// field returns the path to a field of the message at p. It may overwrite the steps after
// p in the same memory.
func (p path) field(fd protoreflect.FieldDescriptor) path {
	return append(p, step{name: fd.Name(), index: -1})
}

func (p path) at(i int) path {
	p[len(p)-1].index = i
	return p
}

func (p path) key(k string) path {
	p[len(p)-1].mapAt = strconv.Quote(k)
	return p
}

// unknown writes the path to a field that has a number only.
func (p path) unknown(num protowire.Number) string {
	return join(p.String(), strconv.Itoa(int(num)))
}

// String writes the path as in a Problem.
func (p path) String() string {
	var b strings.Builder
	for i, s := range p {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(string(s.name))
		switch {
		case s.mapAt != "":
			b.WriteString("[" + s.mapAt + "]")
		case s.index >= 0:
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		}
	}
	return b.String()
}

// join appends a name to a written path.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// within is join, but the name may be empty.
func within(at, field string) string {
	if field == "" {
		return at
	}
	return join(at, field)
}
