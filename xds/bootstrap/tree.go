package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

type kind string

const (
	absent  kind = ""
	object  kind = "an object"
	list    kind = "a list"
	str     kind = "a string"
	number  kind = "a number"
	boolean kind = "true or false"
	null    kind = "null"
)

// value is a JSON value with its position and its path. A member that an object does not
// have is absent, and at the object.
type value struct {
	kind     kind
	path     string
	at       int      // of its first byte; -1 if it is not known
	text     string   // of a string, or a number as written
	isTrue   bool     // of a boolean
	elements []*value // a list's
	members  []member // an object's, in the order of the text
}

type member struct {
	name string
	at   int
	*value
}

// readTree reads the body. It returns nil if that is not valid, which it rejects.
func (v *validator) readTree() *value {
	if len(bytes.TrimSpace(v.body)) == 0 {
		v.reject(-1, "", "it is empty")
		return nil
	}
	if err := json.Unmarshal(v.body, new(json.RawMessage)); err != nil {
		at, reason := len(v.body), err.Error()
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			if reason = "not JSON: " + reason; syntax.Error() == "unexpected end of JSON input" {
				reason = "the JSON is cut short"
			} else {
				at = int(syntax.Offset) - 1
			}
		}
		v.reject(at, "", "%s", reason)
		return nil
	}
	if _, err := text.Skim(v.body, len(v.body), len(v.body)); err != nil {
		v.reject(-1, "", "nests deeper than %d", text.MaxDepth)
		return nil
	}
	start := len(v.body) - len(bytes.TrimLeft(v.body, " \t\r\n"))
	root := v.tree(bytes.TrimSpace(v.body), start, "")
	if len(v.problems.list) > 0 {
		return nil
	}
	return root
}

func (v *validator) tree(raw []byte, at int, path string) *value {
	x := &value{path: path, at: at}
	switch raw[0] {
	case '[':
		x.kind = list
		for i, m := range text.Members(raw) {
			x.elements = append(x.elements, v.tree(m.Value, at+m.ValueAt, path+"["+strconv.Itoa(i)+"]"))
		}
	case '{':
		x.kind = object
		seen := map[string]bool{}
		for _, m := range text.Members(raw) {
			below := join(path, m.Name)
			if seen[m.Name] {
				v.reject(at+m.At, below, "is there twice: which of them counts differs from reader to reader; remove one")
			}
			seen[m.Name] = true
			x.members = append(x.members, member{m.Name, at + m.At, v.tree(m.Value, at+m.ValueAt, below)})
		}
	case '"':
		x.kind = str
		_ = json.Unmarshal(raw, &x.text) // is valid
	case 't', 'f':
		x.kind, x.isTrue = boolean, raw[0] == 't'
	case 'n':
		x.kind = null
	default:
		x.kind, x.text = number, string(raw)
	}
	return x
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
