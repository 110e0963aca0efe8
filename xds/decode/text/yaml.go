package text

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of a YAML text. It is read into a tree before its contents are known, in which two
// bytes of text take hundreds.
const (
	MaxYAMLBytes = 8 << 20
	// MaxYAMLEntries limits the marks of YAML that begin something: , [ { and what may be
	// a key's colon, a dash or a question mark of a block. An endpoint has 6 to 13.
	MaxYAMLEntries = 1 << 19

	maxDirectives = 100 // the parser compares all with each other

	// yamlGrowth limits the size as JSON, and the nodes that are visited, for each byte of text: without aliases there
	// are fewer nodes than bytes, and quotes and commas add less.
	yamlGrowth     = 16
	maxYAMLNodes   = 5 * MaxYAMLEntries // that are visited: a text without aliases has fewer
	pauseNodes     = 1024               // that are visited between two calls of pause
	pauseReads     = 64                 // of lines, or of parts of them
	growsTooMuch   = "aliases make the body grow too much: write it out"
	sendOtherwise  = "as YAML: send it as JSON or protobuf"
	notMapsToMerge = "map merge requires map or sequence of maps as the value"
)

func yamlSize(body []byte) error {
	if len(body) > MaxYAMLBytes {
		return &Error{TooLarge: true, Reason: fmt.Sprintf("the body is %d bytes long, of at most %d %s", len(body), MaxYAMLBytes, sendOtherwise)}
	}
	entries, directives := 0, 0
	for i, c := range body {
		switch c {
		case '%':
			if i == 0 || body[i-1] == '\n' {
				directives++
			}
		case ',', '[', '{':
			entries++
		case ':', '-', '?':
			if i+1 == len(body) || body[i+1] <= ' ' || c == ':' && i > 0 && (body[i-1] == '"' || body[i-1] == '\'') {
				entries++
			}
		}
	}
	if directives > maxDirectives {
		return &Error{TooLarge: true, Reason: fmt.Sprintf("the body has %d lines that begin with %%, of at most %d %s", directives, maxDirectives, sendOtherwise)}
	}
	if entries > MaxYAMLEntries {
		return &Error{TooLarge: true, Reason: fmt.Sprintf("the body has %d entries, of at most %d %s", entries, MaxYAMLEntries, sendOtherwise)}
	}
	return nil
}

// FromYAML converts one YAML document to JSON. Scalars are those of the core schema of YAML 1.2, where yes and off
// are strings; merge keys (<<) are accepted as well, and numbers with a leading 0 are not.
// The members of an object are in the order of their names. The error is an *Error,
// ErrEmpty for null and for a text without a document.
//
// It calls pause about every 100 µs, unless that is nil; pause may panic.
func FromYAML(body []byte, pause func()) ([]byte, error) {
	if err := yamlSize(body); err != nil {
		return nil, err
	}
	if pause == nil {
		pause = func() {}
	}
	if json, ok := scanYAML(body, pause); ok {
		return json, nil
	}
	return parseYAML(body, pause)
}

// parseYAML is FromYAML for all forms of YAML.
func parseYAML(body []byte, pause func()) ([]byte, error) {
	in := &lineReader{rest: anyVersion(body), pause: pause}
	d := yaml.NewDecoder(in)
	document, err := nextDocument(d, in)
	if err != nil {
		return nil, err
	}
	if document == nil {
		return nil, ErrEmpty
	}
	if next, err := nextDocument(d, in); err != nil {
		return nil, err
	} else if next != nil {
		return nil, &Error{Reason: "the body holds several documents, where one is wanted"}
	}
	limit := 1024 + yamlGrowth*len(body)
	w := yamlWriter{json: make([]byte, 0, len(body)), limit: limit, pause: pause}
	if bytes.IndexByte(body, '*') >= 0 {
		w.open = map[*yaml.Node]bool{}
	}
	if err := w.value(document); err != nil {
		return nil, err
	}
	return w.json, w.duplicateKeys()
}

// nextDocument returns the root of the next document, nil if it is null or absent.
func nextDocument(d *yaml.Decoder, in *lineReader) (*yaml.Node, error) {
	var n yaml.Node
	switch err := d.Decode(&n); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, &Error{Line: in.lines, Reason: yamlReason(err)}
	}
	root := n.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	return root, nil
}

type yamlWriter struct {
	json       []byte
	limit      int // of the bytes, and of the nodes
	nodes      int // that were visited, those of aliases each time
	pause      func()
	open       map[*yaml.Node]bool // mappings and sequences that are being written; nil without aliases
	duplicates []*Error            // keys
}

// within calls write for a mapping or sequence, which must not contain itself.
func (w *yamlWriter) within(n *yaml.Node, write func() error) error {
	if w.open[n] {
		return &Error{Reason: fmt.Sprintf("anchor '%s' value contains itself", n.Anchor)}
	}
	if w.open != nil {
		w.open[n] = true
		defer delete(w.open, n)
	}
	return write()
}

// visit counts a node. The error is that the text has more of them than its size permits.
func (w *yamlWriter) visit() error {
	if w.nodes++; w.nodes > min(w.limit, maxYAMLNodes) || len(w.json) > w.limit {
		return &Error{Reason: growsTooMuch}
	}
	if w.nodes%pauseNodes == 0 {
		w.pause()
	}
	return nil
}

func (w *yamlWriter) value(n *yaml.Node) error {
	if err := w.visit(); err != nil {
		return err
	}
	switch n.Kind {
	case yaml.AliasNode:
		return w.value(n.Alias)
	case yaml.MappingNode:
		return w.within(n, func() error { return w.object(n) })
	case yaml.SequenceNode:
		return w.within(n, func() error { return w.list(n) })
	default:
		value, err := scalar(n)
		w.json = appendJSON(w.json, value)
		return err
	}
}

func (w *yamlWriter) list(n *yaml.Node) error {
	w.json = append(w.json, '[')
	for i, element := range n.Content {
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

type yamlMember struct {
	name    string
	value   *yaml.Node
	mapping int // the members of a mapping have the same number: those of another may have the same names
}

// object writes a mapping in the order of its names, so that of several errors the same
// one is found each time.
func (w *yamlWriter) object(n *yaml.Node) error {
	members, err := w.members(make([]yamlMember, 0, len(n.Content)/2), n)
	if err != nil {
		return err
	}
	slices.SortStableFunc(members, func(a, b yamlMember) int { return strings.Compare(a.name, b.name) })
	w.json = append(w.json, '{')
	for i, m := range members {
		if i > 0 && m.name == members[i-1].name {
			if m.mapping == members[i-1].mapping {
				w.duplicates = append(w.duplicates, &Error{Line: m.value.Line, Reason: fmt.Sprintf("key %q already set in map", m.name)})
			}
			continue
		}
		if i > 0 {
			w.json = append(w.json, ',')
		}
		w.json = append(appendJSON(w.json, m.name), ':')
		if err := w.value(m.value); err != nil {
			return err
		}
	}
	w.json = append(w.json, '}')
	return nil
}

// members appends the members of a mapping to list, and then those of the mappings that it merges: of several
// with a name, the first is in force.
func (w *yamlWriter) members(list []yamlMember, n *yaml.Node) (_ []yamlMember, err error) {
	mapping := w.nodes
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if err := w.visit(); err != nil {
			return nil, err
		}
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.ScalarNode && key.Tag == "!!merge" {
			merges = append(merges, merged(value)...)
			continue
		}
		name, err := w.key(key)
		if err != nil {
			return nil, err
		}
		list = append(list, yamlMember{name, value, mapping})
	}
	for _, m := range merges {
		if m.Kind != yaml.MappingNode {
			return nil, &Error{Reason: notMapsToMerge}
		}
		if err := w.within(m, func() error { list, err = w.members(list, m); return err }); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// merged returns the mappings that a merge key takes in, the preferred first.
func merged(value *yaml.Node) []*yaml.Node {
	list := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		list = slices.Clone(value.Content)
	}
	for i, m := range list {
		for m.Kind == yaml.AliasNode {
			m = m.Alias
		}
		list[i] = m
	}
	return list
}

// key returns the key of a mapping as it is written, a scalar that is not null.
func (w *yamlWriter) key(n *yaml.Node) (string, error) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.ScalarNode { // it is not decoded: that compares all keys of a mapping with each other
		at := len(w.json)
		if err := w.value(n); err != nil {
			return "", err
		}
		return "", &Error{Reason: Clip("invalid map key: " + string(w.json[at:]))}
	}
	if n.Tag == "!!null" {
		return "", &Error{Reason: "<nil> is no name of a field"}
	}
	return n.Value, nil
}

// duplicateKeys returns an error about all of them, or nil.
func (w *yamlWriter) duplicateKeys() error {
	if len(w.duplicates) == 0 {
		return nil
	}
	slices.SortStableFunc(w.duplicates, func(a, b *Error) int { return a.Line - b.Line })
	first := w.duplicates[0]
	for _, e := range w.duplicates[1:] {
		if len(first.Reason) > maxWords { // there may be as many as lines
			break
		}
		first.Reason += "; " + e.Error()
	}
	first.Reason = Clip(first.Reason)
	return first
}

func trimBOM(body []byte) []byte { return bytes.TrimPrefix(body, []byte("\ufeff")) }

// anyVersion returns a text whose %YAML directive, if it has one, names the version that the parser accepts.
func anyVersion(body []byte) []byte {
	const directive = "%YAML 1."
	at := len(body) - len(trimBOM(body))
	for line := range bytes.Lines(body[at:]) {
		if bytes.HasPrefix(line, []byte(directive)) && len(line) > len(directive) {
			body = bytes.Clone(body)
			body[at+len(directive)] = '1'
		} else if words := bytes.TrimSpace(line); len(words) == 0 || words[0] == '#' || words[0] == '%' {
			at += len(line)
			continue
		}
		break
	}
	return body
}

// lineReader reads a text line by line and counts them. The parser itself often reports the
// first line of the mapping or list with the error.
type lineReader struct {
	rest  []byte
	lines int
	reads int
	pause func()
}

func (r *lineReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	if r.reads++; r.reads%pauseReads == 0 {
		r.pause()
	}
	p = p[:min(len(p), len(r.rest))]
	n := bytes.IndexByte(r.rest[:len(p)], '\n') + 1
	if n > 0 || len(p) == len(r.rest) {
		r.lines++
	}
	n = copy(p, r.rest[:cmp.Or(n, len(p))])
	r.rest = r.rest[n:]
	return n, nil
}

var yamlLine = regexp.MustCompile(`^yaml: (line \d+: )?`)

// yamlReason returns the text of an error of the YAML package without the line.
func yamlReason(err error) string {
	words := err.Error()
	return Clip(words[len(yamlLine.FindString(words)):])
}

// maxYAMLPart is about the size of the JSON that is converted at once: its nodes take 100 times as much memory.
const maxYAMLPart = 64 << 10

// ToYAML converts JSON to YAML, whose mappings are sorted. It converts a large text in parts.
func ToYAML(text []byte) ([]byte, error) {
	var out bytes.Buffer
	err := writeYAML(&out, bytes.TrimSpace(text), "")
	return out.Bytes(), err
}

// divides reports whether a JSON value is converted in parts.
func divides(value []byte) bool {
	return len(value) > maxYAMLPart && (value[0] == '{' || value[0] == '[')
}

// writeYAML writes a JSON value, each line after an indentation.
func writeYAML(out *bytes.Buffer, value []byte, indent string) error {
	switch {
	case !divides(value):
		return convertYAML(out, value, indent)
	case value[0] == '[':
		return writeYAMLList(out, value, indent)
	}
	members, order := map[string]json.RawMessage{}, map[string]bool{}
	if err := json.Unmarshal(value, &members); err != nil {
		return err
	}
	for name := range members {
		order[name] = true
	}
	var sorted yaml.Node // as the YAML package sorts mappings
	err := sorted.Encode(order)
	for i := 0; i < len(sorted.Content) && err == nil; i += 2 {
		name := sorted.Content[i].Value
		err = writeYAMLMember(out, name, members[name], indent)
	}
	return err
}

// writeYAMLMember writes a member of an object.
func writeYAMLMember(out *bytes.Buffer, name string, value json.RawMessage, indent string) error {
	whole := value
	if divides(value) {
		whole = json.RawMessage("0")
	}
	one, err := json.Marshal(map[string]json.RawMessage{name: whole})
	if err == nil {
		err = convertYAML(out, one, indent)
	}
	if err != nil || !divides(value) {
		return err
	}
	out.Truncate(out.Len() - len(" 0\n"))
	out.WriteByte('\n')
	if value[0] == '{' {
		indent += "  "
	}
	return writeYAML(out, value, indent)
}

// writeYAMLList writes the elements of an array.
func writeYAMLList(out *bytes.Buffer, list []byte, indent string) error {
	var elements []json.RawMessage
	if err := json.Unmarshal(list, &elements); err != nil {
		return err
	}
	for len(elements) > 0 {
		if divides(elements[0]) {
			begin := out.Len() + len(indent)
			if err := writeYAML(out, elements[0], indent+"  "); err != nil {
				return err
			}
			out.Bytes()[begin] = '-'
			elements = elements[1:]
			continue
		}
		n := 0
		for size := 0; n < len(elements) && size < maxYAMLPart && !divides(elements[n]); n++ {
			size += len(elements[n])
		}
		part, err := json.Marshal(elements[:n])
		if err == nil {
			err = convertYAML(out, part, indent)
		}
		if err != nil {
			return err
		}
		elements = elements[n:]
	}
	return nil
}

// convertYAML is writeYAML for a value that is converted at once.
func convertYAML(out *bytes.Buffer, text []byte, indent string) error {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return err
	}
	value, err := valueOf(&document)
	if err != nil {
		return err
	}
	var part bytes.Buffer
	e := yaml.NewEncoder(&part)
	e.SetIndent(2)
	e.CompactSeqIndent()
	if err := cmp.Or(e.Encode(value), e.Close()); err != nil {
		return err
	}
	for line := range bytes.Lines(part.Bytes()) {
		if len(line) > 1 {
			out.WriteString(indent)
		}
		out.Write(line)
	}
	return nil
}

// valueOf returns the value of a node that was JSON. The YAML package would compare all keys of an object with each
// other.
func valueOf(n *yaml.Node) (value any, err error) {
	switch n.Kind {
	case yaml.DocumentNode:
		return valueOf(n.Content[0])
	case yaml.MappingNode:
		object := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content) && err == nil; i += 2 {
			object[n.Content[i].Value], err = valueOf(n.Content[i+1])
		}
		return object, err
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i := 0; i < len(list) && err == nil; i++ {
			list[i], err = valueOf(n.Content[i])
		}
		return list, err
	default:
		err = n.Decode(&value)
		return value, err
	}
}
