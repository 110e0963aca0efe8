package text

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// booleans are the plain scalars that are booleans in YAML 1.1. In the YAML package most
// of them are strings, as in YAML 1.2.
var booleans = func() map[string]bool {
	all := map[string]bool{}
	for s := range strings.FieldsSeq("y Y yes Yes YES true True TRUE on On ON") {
		all[s] = true
	}
	for s := range strings.FieldsSeq("n N no No NO false False FALSE off Off OFF") {
		all[s] = false
	}
	return all
}()

// scalar returns the value of a scalar: nil, or a bool, int64, uint64, float64 or string.
// The parser has set the tag of a scalar without one.
func scalar(n *yaml.Node) (any, error) {
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	explicit := n.Style&yaml.TaggedStyle != 0
	if b, ok := booleans[n.Value]; ok && (n.Tag == "!!bool" || !explicit && n.Style&quoted == 0) {
		return b, nil
	}
	switch n.Tag {
	case "!!int":
		digits := strings.ReplaceAll(n.Value, "_", "")
		if i, err := strconv.ParseInt(digits, 0, 64); err == nil {
			return i, nil
		}
		if u, err := strconv.ParseUint(digits, 0, 64); err == nil {
			return u, nil
		}
		if !explicit {
			return n.Value, nil
		}
	case "!!null", "!!bool", "!!float", "!!binary":
	default: // a string; dates and tags of other kinds have no meaning in JSON
		return n.Value, nil
	}
	var value any
	if err := n.Decode(&value); err != nil {
		return nil, &Error{Reason: yamlReason(err)}
	}
	return value, nil
}

// appendJSON appends a scalar as JSON, with proto3 JSON's strings for the numbers that
// JSON lacks.
func appendJSON(text []byte, value any) []byte {
	switch value := value.(type) {
	case string:
		if simple(value) {
			return append(append(append(text, '"'), value...), '"')
		}
		quoted, _ := json.Marshal(value) // a string does not fail
		return append(text, quoted...)
	case float64:
		number := strconv.FormatFloat(value, 'g', -1, 64)
		if math.IsNaN(value) || math.IsInf(value, 0) {
			number = `"` + strings.Replace(strings.TrimPrefix(number, "+"), "Inf", "Infinity", 1) + `"`
		}
		return append(text, number...)
	case int64:
		return strconv.AppendInt(text, value, 10)
	case nil:
		return append(text, "null"...)
	default:
		return fmt.Append(text, value)
	}
}

// simple reports whether json.Marshal only puts s in quotes.
func simple(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || strings.IndexByte(`"\<>&`, c) >= 0 {
			return false
		}
	}
	return true
}
