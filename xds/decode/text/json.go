package text

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
)

// MaxDepth limits the nesting of JSON and YAML.
const MaxDepth = 100

// Outline is what a body has.
type Outline struct {
	Typed, Resources bool     // the names @type and resources at the top
	Large            []string // the @type of each object that has one, and more entries than large
}

// Skim scans body, which need not be valid JSON. It rejects a body, with an *Error, that
// nests too deep or has more entries than limit.
func Skim(body []byte, limit, large int) (o Outline, err error) {
	depth, entries := 0, 0
	var open [MaxDepth + 1]struct { // the objects around i, by depth
		typ     []byte // the @type with its quotes
		entries int    // before it
	}
	var last []byte // the last string with its quotes, nil after what follows it
	isType := false // the next string is an @type
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '{', '[':
			entries++
			if depth++; depth > MaxDepth {
				return o, &Error{Reason: fmt.Sprintf("the body nests deeper than %d", MaxDepth)}
			}
			open[depth].typ, open[depth].entries = nil, entries
			isType = false
		case '}', ']':
			if entries-open[depth].entries > large && open[depth].typ != nil {
				o.Large = append(o.Large, unquote(open[depth].typ))
			}
			depth = max(depth-1, 0)
		case '"':
			from := i
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
			if i >= len(body) {
				break // it is cut short
			}
			last = body[from : i+1]
			if isType {
				open[depth].typ = last
			}
		case ':':
			isType = string(last) == `"@type"` || bytes.IndexByte(last, '\\') > 0 && unquote(last) == "@type"
			o.Typed = o.Typed || depth == 1 && isType
			o.Resources = o.Resources || depth == 1 && string(last) == `"resources"`
			last = nil
		case ',':
			entries++
			last, isType = nil, false
		}
	}
	if entries > limit {
		return o, &Error{TooLarge: true, Reason: fmt.Sprintf("the body has %d entries, of at most %d", entries, limit)}
	}
	return o, nil
}

// Offset converts a line and column, from 1, to an index into body.
func Offset(body []byte, line, column int) int {
	at := 0
	for ; line > 1; line-- {
		next := bytes.IndexByte(body[at:], '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	return min(at+column-1, len(body))
}

// Position converts an index into body to a line and column, from 1.
func Position(body []byte, at int) (line, column int) {
	before := body[:at]
	return bytes.Count(before, []byte("\n")) + 1, at - bytes.LastIndexByte(before, '\n')
}

// Object is the members of a JSON object, or the elements of a list without names, in
// order.
type Object []Member

// Member is a member of an Object. Its places are offsets in the text of the object.
type Member struct {
	Name    string
	Quoted  []byte // the name as it is written
	Value   []byte // without the space around it; empty if the text is cut short before it
	At      int    // of the name, or of an element
	ValueAt int
}

// Members returns the members of an object or a list, as far as the text is valid JSON.
// They share the text's memory.
func Members(text []byte) Object {
	var o Object
	for m := range each(text) {
		if len(o) == cap(o) {
			// append grows a long slice by a quarter each time, which allocates five times what is used.
			o = slices.Grow(o, len(o))
		}
		o = append(o, m)
	}
	return o
}

// each yields the members of an object or a list, as Members returns them.
func each(text []byte) iter.Seq[Member] { return func(yield func(Member) bool) { walk(text, yield) } }

func walk(text []byte, yield func(Member) bool) {
	var m Member
	depth, start := 0, 0
	trimmed := func(end int) (part []byte, at int) {
		part = bytes.TrimLeft(text[start:end], " \t\r\n")
		return bytes.TrimRight(part, " \t\r\n"), end - len(part)
	}
	end := func(i int) (more bool) {
		m.Value, m.ValueAt = trimmed(i)
		if m.Quoted == nil {
			m.At = m.ValueAt
		}
		more = len(m.Value) == 0 && m.Quoted == nil || yield(m)
		m, start = Member{}, i+1
		return more
	}
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
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
				return
			}
		case ':':
			if depth == 1 && m.Quoted == nil {
				m.Quoted, m.At = trimmed(i)
				m.Name = unquote(m.Quoted)
				start = i + 1
			}
		case ',':
			if depth == 1 && !end(i) {
				return
			}
		}
	}
	if depth > 0 {
		end(len(text))
	}
}

// unquote returns the value of a JSON string, or "" if text is not one.
func unquote(text []byte) string {
	if n := len(text); n > 1 && text[0] == '"' && text[n-1] == '"' && simple(string(text[1:n-1])) {
		return string(text[1 : n-1])
	}
	var s string
	if json.Unmarshal(text, &s) != nil {
		return ""
	}
	return s
}

// Find returns the value of the first member of a name, or nil.
func (o Object) Find(name string) []byte {
	for _, m := range o {
		if m.Name == name {
			return m.Value
		}
	}
	return nil
}

// Count returns how many members have a name.
func (o Object) Count(name string) int {
	n := 0
	for _, m := range o {
		if m.Name == name {
			n++
		}
	}
	return n
}

// Text returns the value of a member that is a string.
func (o Object) Text(name string) string { return unquote(o.Find(name)) }

// Kind returns the type of a JSON value, or the value itself if it is short.
func Kind(text []byte) string {
	switch text[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	default:
		return Clip(string(text))
	}
}
