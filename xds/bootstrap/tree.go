package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// maxDepth is how deep a bootstrap may nest.
const maxDepth = 100

// kind is a JSON value's, in the words of an error.
type kind string

const (
	object  kind = "an object"
	list    kind = "a list"
	text    kind = "a string"
	number  kind = "a number"
	boolean kind = "true or false"
	null    kind = "null"
)

// value is a JSON value that knows where it was written.
type value struct {
	kind     kind
	at       int      // of its first byte
	text     string   // a string's, or a number as it is written
	is       bool     // true, not false
	elements []*value // a list's
	members  []member // an object's, in the order of the text
}

type member struct {
	name  string
	at    int
	value *value
}

// treeError is a place in a text where it is not what it should be.
type treeError struct {
	at     int
	path   string
	reason string
}

// readTree reads JSON whose values are to keep their places.
func readTree(body []byte) (*value, *treeError) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, &treeError{at: -1, reason: "it is empty"}
	}
	if err := json.Unmarshal(body, new(json.RawMessage)); err != nil {
		e := &treeError{at: len(body), reason: err.Error()}
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			e.at = int(syntax.Offset) - 1
			if syntax.Offset >= int64(len(body)) && syntax.Error() == "unexpected end of JSON input" {
				e.at, e.reason = len(body), "the JSON is cut short"
			} else {
				e.reason = "not JSON: " + syntax.Error()
			}
		}
		return nil, e
	}
	r := treeReader{body: body, tokens: json.NewDecoder(bytes.NewReader(body))}
	r.tokens.UseNumber()
	return r.value("", 0)
}

// treeReader goes over a text that is known to be JSON.
type treeReader struct {
	body   []byte
	tokens *json.Decoder
}

// next is where the next token begins.
func (r *treeReader) next() int {
	at := int(r.tokens.InputOffset())
	for at < len(r.body) && bytes.IndexByte([]byte(" \t\r\n,:"), r.body[at]) >= 0 {
		at++
	}
	return at
}

func (r *treeReader) value(path string, depth int) (*value, *treeError) {
	v := &value{at: r.next()}
	if depth > maxDepth {
		return nil, &treeError{v.at, "", fmt.Sprintf("nests deeper than %d", maxDepth)}
	}
	token, failed := r.tokens.Token()
	if failed != nil {
		return nil, &treeError{v.at, path, failed.Error()}
	}
	var err *treeError
	switch token := token.(type) {
	case json.Delim:
		if token == '[' {
			v.kind = list
			err = r.elements(v, path, depth)
		} else {
			v.kind = object
			err = r.members(v, path, depth)
		}
	case string:
		v.kind, v.text = text, token
	case json.Number:
		v.kind, v.text = number, token.String()
	case bool:
		v.kind, v.is = boolean, token
	default:
		v.kind = null
	}
	return v, err
}

// end reads the bracket that ends a list or an object.
func (r *treeReader) end(path string) *treeError {
	at := r.next()
	if _, err := r.tokens.Token(); err != nil {
		return &treeError{at, path, err.Error()}
	}
	return nil
}

func (r *treeReader) elements(v *value, path string, depth int) *treeError {
	for r.tokens.More() {
		e, err := r.value(path+"["+strconv.Itoa(len(v.elements))+"]", depth+1)
		if err != nil {
			return err
		}
		v.elements = append(v.elements, e)
	}
	return r.end(path)
}

func (r *treeReader) members(v *value, path string, depth int) *treeError {
	seen := map[string]bool{}
	for r.tokens.More() {
		m := member{at: r.next()}
		token, failed := r.tokens.Token()
		if failed != nil {
			return &treeError{m.at, path, failed.Error()}
		}
		m.name, _ = token.(string)
		at := join(path, m.name)
		if seen[m.name] {
			return &treeError{m.at, at, "is there twice: which of them counts differs from reader to reader; remove one"}
		}
		seen[m.name] = true
		var err *treeError
		if m.value, err = r.value(at, depth+1); err != nil {
			return err
		}
		v.members = append(v.members, m)
	}
	return r.end(path)
}

// join adds a key to a path; one that is no plain word stands in brackets.
func join(path, name string) string {
	for _, c := range []byte(name) {
		if c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return path + "[" + strconv.Quote(name) + "]"
		}
	}
	switch {
	case name == "":
		return path + `[""]`
	case path == "":
		return name
	default:
		return path + "." + name
	}
}

// position counts lines and columns from 1, in bytes.
func position(body []byte, at int) (line, column int) {
	before := body[:min(at, len(body))]
	return bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}
