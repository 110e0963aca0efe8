package text

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decimal is a number that JSON may lack a form for: it is a float of YAML's core schema.
var decimal = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)

// scalar returns the value of a scalar in the core schema of YAML 1.2: nil, or a bool, json.Number or string.
// The parser, which knows more numbers than that, has set the tag of a scalar without one.
func scalar(n *yaml.Node) (any, error) {
	switch n.Tag {
	case "!!int", "!!float":
		value, reason := number(n.Value)
		if reason != "" {
			return nil, &Error{Line: n.Line, Reason: Clip(n.Value) + reason}
		}
		if value != "" {
			return value, nil
		}
		if n.Style&yaml.TaggedStyle == 0 {
			return n.Value, nil
		}
	case "!!null", "!!bool", "!!binary":
	default: // a string; dates and tags of other kinds have no meaning in JSON
		return n.Value, nil
	}
	var value any
	if err := n.Decode(&value); err != nil {
		return nil, &Error{Reason: yamlReason(err)}
	}
	return value, nil
}

// number returns the JSON of a number, if possible as it is written; nothing if s is none. reason is why it is
// rejected: JSON lacks it, or YAML 1.1 reads it as another number.
func number(s string) (_ json.Number, reason string) {
	digits := strings.TrimLeft(s, "+-")
	i, err := strconv.ParseInt(s, 10, 64)
	switch unsigned := strings.TrimPrefix(s, "+"); {
	case len(digits) > 1 && digits[0] == '0' && '0' <= digits[1] && digits[1] <= '9':
		return "", " begins with 0, which is octal for some programs: write the number without it, or a string in quotes"
	case err == nil:
		return json.Number(strconv.FormatInt(i, 10)), ""
	case strings.HasPrefix(s, "0x") || strings.HasPrefix(s, "0o"):
		u, err := strconv.ParseUint(s, 0, 64)
		if err != nil || strings.Contains(s, "_") {
			return "", ""
		}
		return json.Number(strconv.FormatUint(u, 10)), ""
	case len(digits) > 1 && digits[0] == '.' && (digits[1] < '0' || digits[1] > '9'):
		return "", " is a number that JSON does not have: put a string in quotes"
	case !decimal.MatchString(s):
		return "", ""
	case json.Valid([]byte(unsigned)):
		return json.Number(unsigned), ""
	default:
		f, _ := strconv.ParseFloat(s, 64) // the parser has parsed it
		return json.Number(strconv.FormatFloat(f, 'g', -1, 64)), ""
	}
}

// appendJSON appends a scalar as JSON.
func appendJSON(text []byte, value any) []byte {
	switch value := value.(type) {
	case string:
		return appendQuoted(text, value)
	case nil:
		return append(text, "null"...)
	default:
		return fmt.Append(text, value)
	}
}

// appendQuoted appends a string as JSON.
func appendQuoted(text []byte, s string) []byte {
	if simple(s) {
		return append(append(append(text, '"'), s...), '"')
	}
	quoted, _ := json.Marshal(s) // a string does not fail
	return append(text, quoted...)
}

// simple reports whether json.Marshal only puts s in quotes.
func simple(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}
