package decode

import (
	"bytes"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// maxStructDepth limits the nesting of Structs that the one-pass decoder reads.
const maxStructDepth = 32

// endpointMetadata is what lbd reads of the metadata of an endpoint.
type endpointMetadata struct {
	hashKey string // hash_key of envoy.lb (gRFC A76), or empty
	ttl     string // ttl of lbd
	expires bool   // there is a ttl
	odd     bool   // there is something to report
}

// metadata reads a Metadata.
func metadata(w wire) (m endpointMetadata) {
	w.entries(func(key []byte, value wire) {
		switch string(key) {
		case "envoy.lb":
			var found bool
			m.hashKey, found, _ = structure(value, 0, "hash_key")
			m.odd = m.odd || found && m.hashKey == ""
		case "lbd":
			var others bool
			m.ttl, m.expires, others = structure(value, 0, "ttl")
			m.odd = m.odd || others
		default:
			structure(value, 0, "")
		}
	})
	w.end()
	return m
}

// structure reads a Struct. It returns the string in a field, or nothing if it is no string, and whether
// the field is there, and others.
func structure(w wire, depth int, field string) (content string, found, others bool) {
	w.entries(func(key []byte, value wire) {
		text, is := structValue(value, depth)
		if string(key) != field {
			others = true
			return
		}
		if found = true; is {
			content = string(text) // a copy: entries around it may move
		}
	})
	w.end()
	return content, found, others
}

// structValue reads a google.protobuf.Value. It returns the string if it is one.
func structValue(w wire, depth int) (text []byte, is bool) {
	if depth == maxStructDepth {
		w.fail()
	}
	switch {
	case w.next(1, protowire.VarintType): // null_value
		if w.varint() > math.MaxInt32 {
			w.fail()
		}
	case w.next(2, protowire.Fixed64Type): // number_value
		if len(w.rest) < 8 {
			w.fail()
		} else {
			w.rest = w.rest[8:]
		}
	case w.next(3, protowire.BytesType): // string_value
		text, is = w.string(), true
	case w.next(4, protowire.VarintType): // bool_value
		if w.varint() > 1 {
			w.fail()
		}
	case w.next(5, protowire.BytesType): // struct_value
		structure(wire{w.bytes(), w.failed}, depth+1, "")
	case w.next(6, protowire.BytesType): // list_value
		list := wire{w.bytes(), w.failed}
		for {
			value, ok := list.message(1)
			if !ok {
				break
			}
			structValue(value, depth+1)
		}
		list.end()
	}
	w.end()
	return text, is
}

// entries reads field 1, a map from strings to messages, and calls visit with each entry.
// Programs may write the entries in any order: it sorts them by key, in place.
func (w *wire) entries(visit func(key []byte, value wire)) {
	all, sorted := w.rest, true
	var last []byte
	for n := 0; ; n++ {
		entry, ok := w.message(1)
		if !ok {
			break
		}
		key, value := mapEntry(entry)
		sorted = sorted && (n == 0 || bytes.Compare(last, key) < 0)
		last = key
		visit(key, value)
	}
	if !sorted && !*w.failed {
		w.sort(all[:len(all)-len(w.rest)])
	}
}

// mapEntry reads an entry of a map from strings to messages.
func mapEntry(w wire) (key []byte, value wire) {
	if !w.next(1, protowire.BytesType) {
		w.fail()
	}
	key = w.string()
	value, ok := w.message(2)
	if !ok {
		w.fail()
	}
	w.end()
	return key, value
}

// sort sorts the entries of a map by key, in place. Two with the same key are not canonical.
func (w *wire) sort(entries []byte) {
	type entry struct{ key, all []byte }
	var list []entry
	for rest := (wire{entries, w.failed}); len(rest.rest) > 0; {
		all := rest.rest
		m, _ := rest.message(1)
		key, _ := mapEntry(m)
		list = append(list, entry{key, all[:len(all)-len(rest.rest)]})
	}
	slices.SortFunc(list, func(a, b entry) int { return bytes.Compare(a.key, b.key) })
	sorted := make([]byte, 0, len(entries))
	for i, e := range list {
		if i > 0 && bytes.Equal(list[i-1].key, e.key) {
			w.fail()
			return
		}
		sorted = append(sorted, e.all...)
	}
	copy(entries, sorted)
}
