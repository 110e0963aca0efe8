package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// maxDepth is the maximum nesting depth.
const maxDepth = 100

// kind is the kind of a JSON value, as in errors.
type kind string

const (
	object  kind = "an object"
	list    kind = "a list"
	text    kind = "a string"
	number  kind = "a number"
	boolean kind = "true or false"
	null    kind = "null"
)

// value is a JSON value with its position.
type value struct {
	kind     kind
	at       int      // of its first byte
	text     string   // of a string, or a number as written
	is       bool     // true, not false
	elements []*value // a list's
	members  []member // an object's, in the order of the text
}

type member struct {
	name  string
	at    int
	value *value
}

// treeError is a syntax error with its position.
type treeError struct {
	at     int
	path   string
	reason string
}

// readTree reads JSON with the positions of values.
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

// treeReader reads valid JSON.
type treeReader struct {
	body   []byte
	tokens *json.Decoder
}

// next returns the position of the next token.
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

// end reads the closing bracket of a list or an object.
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

// join adds a key to a path, in brackets if it has other characters than an identifier.
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

// position returns the line and column from 1, in bytes.
func position(body []byte, at int) (line, column int) {
	before := body[:min(at, len(body))]
	return bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}
