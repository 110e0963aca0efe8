package text

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// words are what plain scalars mean in YAML 1.1 that are neither texts nor numbers.
var words = func() map[string]any {
	all := map[string]any{"": nil}
	for _, w := range []struct {
		value any
		texts string
	}{
		{nil, "~ null Null NULL"},
		{true, "y Y yes Yes YES true True TRUE on On ON"},
		{false, "n N no No NO false False FALSE off Off OFF"},
		{math.NaN(), ".nan .NaN .NAN"},
		{math.Inf(1), ".inf .Inf .INF +.inf +.Inf +.INF"},
		{math.Inf(-1), "-.inf -.Inf -.INF"},
	} {
		for text := range strings.FieldsSeq(w.texts) {
			all[text] = w.value
		}
	}
	return all
}()

// decimal is a number that is not whole.
var decimal = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)

// scalar returns what a scalar means: nil, or a bool, int64, uint64, float64 or string.
func scalar(n *yaml.Node) (any, error) {
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	switch {
	case n.Style&yaml.TaggedStyle != 0:
		return tagged(n.Tag, n.Value)
	case n.Style&quoted != 0:
		return n.Value, nil
	default:
		return plain(n.Value), nil
	}
}

// plain returns what a scalar without tag and quotes means.
func plain(s string) any {
	if value, ok := words[s]; ok {
		return value
	}
	if s[0] == '.' {
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			return f
		}
	}
	if s[0] != '+' && s[0] != '-' && (s[0] < '0' || s[0] > '9') {
		return s
	}
	digits := strings.ReplaceAll(s, "_", "")
	if i, err := strconv.ParseInt(digits, 0, 64); err == nil {
		return i
	}
	if u, err := strconv.ParseUint(digits, 0, 64); err == nil {
		return u
	}
	if decimal.MatchString(digits) {
		if f, err := strconv.ParseFloat(digits, 64); err == nil {
			return f
		}
	}
	return s
}

// tagged returns what a scalar with a tag means. Tags that are not YAML's own are
// ignored.
func tagged(tag, s string) (any, error) {
	switch tag {
	case "!!null", "!!bool", "!!int", "!!float":
	case "!!binary":
		data, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return nil, &Error{Reason: "!!binary value contains invalid base64 data"}
		}
		return string(data), nil
	default:
		return s, nil
	}
	value, is := plain(s), "!!str"
	switch v := value.(type) {
	case nil:
		is = "!!null"
	case bool:
		is = "!!bool"
	case int64:
		is = "!!int"
		if tag == "!!float" {
			return float64(v), nil
		}
	case uint64:
		is = "!!int"
	case float64:
		is = "!!float"
	}
	if is != tag {
		return nil, &Error{Reason: fmt.Sprintf("cannot decode %s `%s` as a %s", is, Clip(s), tag)}
	}
	return value, nil
}

// appendJSON appends a scalar as JSON, with proto3 JSON's words for the numbers that
// JSON lacks.
func appendJSON(text []byte, value any) []byte {
	switch value := value.(type) {
	case string:
		if simple(value) {
			return append(append(append(text, '"'), value...), '"')
		}
		quoted, _ := json.Marshal(value) // a string does not fail
		return append(text, quoted...)
	case bool:
		return strconv.AppendBool(text, value)
	case int64:
		return strconv.AppendInt(text, value, 10)
	case uint64:
		return strconv.AppendUint(text, value, 10)
	case float64:
		switch {
		case math.IsNaN(value):
			return append(text, `"NaN"`...)
		case math.IsInf(value, 1):
			return append(text, `"Infinity"`...)
		case math.IsInf(value, -1):
			return append(text, `"-Infinity"`...)
		}
		return strconv.AppendFloat(text, value, 'g', -1, 64)
	default:
		return append(text, "null"...)
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
