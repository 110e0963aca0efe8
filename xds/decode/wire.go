package decode

import (
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// wire reads a message that is in canonical form, the bytes that canonical writes: fields in
// the order of their numbers, those of a oneof last, each once unless it is repeated; no
// unknown fields; no value that is the default, except in a oneof; the shortest varints.
//
// A method that has the number of a field, below 16, reads this field if it comes next. So
// the caller calls them in the order of the fields, and then end, which fails if anything
// is left: unknown fields, a second value, another wire type, another order.
type wire struct {
	rest   []byte
	failed *bool // set if the message, or one around it, is not in canonical form
}

func (w *wire) fail() {
	*w.failed = true
	w.rest = nil
}

func (w *wire) end() {
	if len(w.rest) > 0 {
		w.fail()
	}
}

// next reads the tag of a field if it comes next. The value has to be read then.
func (w *wire) next(num protowire.Number, typ protowire.Type) bool {
	if len(w.rest) == 0 || w.rest[0] != byte(num)<<3|byte(typ) {
		return false
	}
	w.rest = w.rest[1:]
	return true
}

func (w *wire) varint() uint64 {
	if len(w.rest) > 0 && w.rest[0] < 1<<7 {
		v := w.rest[0]
		w.rest = w.rest[1:]
		return uint64(v)
	}
	v, n := protowire.ConsumeVarint(w.rest)
	if n != protowire.SizeVarint(v) { // n is negative for an invalid one
		w.fail()
		return 0
	}
	w.rest = w.rest[n:]
	return v
}

func (w *wire) bytes() []byte {
	n := w.varint()
	if n > uint64(len(w.rest)) {
		w.fail()
		return nil
	}
	value := w.rest[:n:n]
	w.rest = w.rest[n:]
	return value
}

// string reads a string, which may be empty.
func (w *wire) string() []byte {
	s := w.bytes()
	if !utf8.Valid(s) {
		w.fail()
	}
	return s
}

// message reads a field that is a message.
func (w *wire) message(num protowire.Number) (wire, bool) {
	if !w.next(num, protowire.BytesType) {
		return wire{failed: w.failed}, false
	}
	return wire{w.bytes(), w.failed}, true
}

// text reads a string without presence.
func (w *wire) text(num protowire.Number) []byte {
	if !w.next(num, protowire.BytesType) {
		return nil
	}
	s := w.string()
	if len(s) == 0 {
		w.fail()
	}
	return s
}

// uint32 reads a uint32 without presence, or an enum that is not negative.
func (w *wire) uint32(num protowire.Number) uint32 {
	if !w.next(num, protowire.VarintType) {
		return 0
	}
	v := w.varint()
	if v == 0 || v > math.MaxUint32 {
		w.fail()
	}
	return uint32(v)
}

// wrapped reads a google.protobuf.UInt32Value.
func (w *wire) wrapped(num protowire.Number) (value uint32, present bool) {
	m, present := w.message(num)
	value = m.uint32(1)
	m.end()
	return value, present
}

// appendTag appends the tag of a field below 16.
func appendTag(b []byte, num protowire.Number, typ protowire.Type) []byte {
	return append(b, byte(num)<<3|byte(typ))
}

// appendUint appends a varint.
func appendUint[T int | uint32](b []byte, v T) []byte {
	if v < 1<<7 {
		return append(b, byte(v))
	}
	return protowire.AppendVarint(b, uint64(v))
}

// appendBytes appends a string or a message.
func appendBytes[S []byte | string](b []byte, num protowire.Number, s S) []byte {
	return append(appendUint(appendTag(b, num, protowire.BytesType), len(s)), s...)
}

// appendText appends a string without presence.
func appendText[S []byte | string](b []byte, num protowire.Number, s S) []byte {
	if len(s) == 0 {
		return b
	}
	return appendBytes(b, num, s)
}

// appendUint32 appends a uint32 without presence.
func appendUint32(b []byte, num protowire.Number, v uint32) []byte {
	if v == 0 {
		return b
	}
	return appendUint(appendTag(b, num, protowire.VarintType), v)
}

// appendWrapped appends a google.protobuf.UInt32Value.
func appendWrapped(b []byte, num protowire.Number, v uint32) []byte {
	b, from := beginMessage(b, num)
	return endMessage(appendUint32(b, 1, v), from)
}

// beginMessage begins a message. endMessage, with from, writes its size when its content is appended.
func beginMessage(b []byte, num protowire.Number) (_ []byte, from int) {
	b = append(appendTag(b, num, protowire.BytesType), 0)
	return b, len(b)
}

func endMessage(b []byte, from int) []byte {
	size := len(b) - from
	if more := protowire.SizeVarint(uint64(size)) - 1; more > 0 {
		b = append(b, make([]byte, more)...)
		copy(b[from+more:], b[from:])
	}
	appendUint(b[:from-1], size)
	return b
}

// appendAddress appends field 1, an Address with a SocketAddress.
func appendAddress(b []byte, host string, port uint32) []byte {
	b, from := beginMessage(b, 1)
	b, at := beginMessage(b, 1)
	b = appendUint(appendTag(appendText(b, 2, host), 3, protowire.VarintType), port)
	return endMessage(endMessage(b, at), from)
}
