package resource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v2"
)

// yamlGrowth is how many times its size a YAML text may grow as JSON. Only
// aliases make it grow by more than its quotes and commas.
const yamlGrowth = 16

// Limits of a YAML body, whoever wrote it. It is read into a tree before anybody
// knows what it says, and what takes two bytes of text takes hundreds there.
const (
	// MaxYAMLBytes is the largest YAML body.
	MaxYAMLBytes = 8 << 20
	// MaxYAMLEntries is the most marks of YAML that begin something: , [ { and
	// what may be a key's colon, a dash or a question mark of a block. An
	// endpoint has 6 to 13 of them.
	MaxYAMLEntries = 1 << 19
)

// yamlSize refuses what would take too much to read.
func yamlSize(body []byte) error {
	if len(body) > MaxYAMLBytes {
		return &SizeError{FormatYAML, fmt.Sprintf("the body is %d bytes long, of at most %d as YAML: send it as JSON or protobuf", len(body), MaxYAMLBytes)}
	}
	entries := 0
	for i, c := range body {
		switch c {
		case ',', '[', '{':
			entries++
		case ':', '-', '?':
			if i+1 == len(body) || body[i+1] <= ' ' || c == ':' && i > 0 && (body[i-1] == '"' || body[i-1] == '\'') {
				entries++
			}
		}
	}
	if entries > MaxYAMLEntries {
		return &SizeError{FormatYAML, fmt.Sprintf("the body has %d entries, of at most %d as YAML: send it as JSON or protobuf", entries, MaxYAMLEntries)}
	}
	return nil
}

// yamlToJSON turns one YAML document into JSON.
func yamlToJSON(body []byte) ([]byte, error) {
	if err := yamlSize(body); err != nil {
		return nil, err
	}
	d := yaml.NewDecoder(bytes.NewReader(body))
	d.SetStrict(true)
	var document, next any
	if err := d.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return nil, yamlError(err)
	}
	if document == nil {
		return nil, &SyntaxError{Format: FormatYAML, Reason: "the body is empty"}
	}
	switch err := d.Decode(&next); {
	case errors.Is(err, io.EOF):
	case err != nil:
		return nil, yamlError(err)
	case next != nil:
		return nil, &SyntaxError{Format: FormatYAML, Reason: "the body holds several documents, where one is wanted"}
	}
	w := yamlWriter{limit: 1024 + yamlGrowth*len(body)}
	if err := w.value(document); err != nil {
		return nil, err
	}
	return w.json, nil
}

// yamlWriter writes decoded YAML as JSON.
type yamlWriter struct {
	json  []byte
	limit int
}

func (w *yamlWriter) value(value any) error {
	switch value := value.(type) {
	case nil:
		w.json = append(w.json, "null"...)
	case bool:
		w.json = strconv.AppendBool(w.json, value)
	case int:
		w.json = strconv.AppendInt(w.json, int64(value), 10)
	case int64:
		w.json = strconv.AppendInt(w.json, value, 10)
	case uint64:
		w.json = strconv.AppendUint(w.json, value, 10)
	case float64:
		w.float(value)
	case string:
		return w.text(value)
	case []any:
		return w.list(value)
	case map[any]any:
		return w.object(value)
	default:
		return &SyntaxError{Format: FormatYAML, Reason: fmt.Sprintf("a value of type %T has no place in a resource", value)}
	}
	return nil
}

// float writes a number, with protojson's words for those that JSON lacks.
func (w *yamlWriter) float(f float64) {
	switch {
	case math.IsNaN(f):
		w.json = append(w.json, `"NaN"`...)
	case math.IsInf(f, 1):
		w.json = append(w.json, `"Infinity"`...)
	case math.IsInf(f, -1):
		w.json = append(w.json, `"-Infinity"`...)
	default:
		w.json = strconv.AppendFloat(w.json, f, 'g', -1, 64)
	}
}

func (w *yamlWriter) text(s string) error {
	if len(w.json)+len(s) > w.limit {
		return &SyntaxError{Format: FormatYAML, Reason: "aliases make the body grow too much: write it out"}
	}
	quoted, err := json.Marshal(s)
	if err != nil {
		return &SyntaxError{Format: FormatYAML, Reason: err.Error()}
	}
	w.json = append(w.json, quoted...)
	return nil
}

func (w *yamlWriter) list(list []any) error {
	w.json = append(w.json, '[')
	for i, element := range list {
		if i > 0 {
			w.json = append(w.json, ',')
		}
		if err := w.value(element); err != nil {
			return err
		}
	}
	w.json = append(w.json, ']')
	return nil
}

// object writes a mapping in the order of its names, so that of several faults
// the same one is found each time.
func (w *yamlWriter) object(object map[any]any) error {
	type member struct {
		name  string
		value any
	}
	members := make([]member, 0, len(object))
	for key, value := range object {
		name, err := yamlName(key)
		if err != nil {
			return err
		}
		members = append(members, member{name, value})
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	w.json = append(w.json, '{')
	for i, m := range members {
		if i > 0 {
			w.json = append(w.json, ',')
		}
		if err := w.text(m.name); err != nil {
			return err
		}
		w.json = append(w.json, ':')
		if err := w.value(m.value); err != nil {
			return err
		}
	}
	w.json = append(w.json, '}')
	return nil
}

// yamlName returns the JSON name for the key of a mapping.
func yamlName(key any) (string, error) {
	switch key := key.(type) {
	case string:
		return key, nil
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(key), nil
	default:
		return "", &SyntaxError{Format: FormatYAML, Reason: clip(fmt.Sprintf("%v is no name of a field", key))}
	}
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// yamlError makes a SyntaxError of the YAML reader's words, which are one line
// for each fault.
func yamlError(err error) *SyntaxError {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.TrimPrefix(text, "unmarshal errors:")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	e := &SyntaxError{Format: FormatYAML}
	if line := yamlLine.FindStringSubmatch(lines[0]); line != nil {
		e.Line, _ = strconv.Atoi(line[1])
		lines[0] = lines[0][len(line[0]):]
	}
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	e.Reason = clip(strings.Join(lines, "; "))
	return e
}
