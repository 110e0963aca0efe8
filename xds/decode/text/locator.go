package text

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Locator finds the fields of one JSON or YAML text, which must not be changed.
type Locator struct {
	body []byte
	yaml bool
	bad  bool       // it is JSON that is not valid
	root *yaml.Node // nil for JSON, and for invalid YAML
	left int        // of the members that all searches in root may look at
}

// LocateJSON returns a Locator for a JSON text, which each call of Find reads.
func LocateJSON(body []byte) *Locator {
	body = trimBOM(body)
	return &Locator{body: body, bad: !json.Valid(body)}
}

// LocateYAML returns a Locator for a YAML text, which is read once.
func LocateYAML(body []byte) *Locator {
	l := &Locator{body: trimBOM(body), yaml: true, left: yamlSearchBudget}
	var document yaml.Node
	if yaml.Unmarshal(anyVersion(l.body), &document) == nil && len(document.Content) == 1 {
		l.root = document.Content[0]
	}
	return l
}

// Find returns the line and column of the field at a path, both from 1, the column in
// bytes. A member of an object begins at its name. Paths are in snake_case, the text
// may be in lowerCamelCase. The position of an absent field is that of the object that
// lacks it; it is 0, 0 if the text before it is invalid.
func (l *Locator) Find(field string) (line, column int) {
	switch {
	case l.bad:
		return 0, 0
	case !l.yaml:
		return Position(l.body, locateJSON(l.body, fieldSteps(field)))
	case l.root != nil:
		n := l.find(l.root, fieldSteps(field))
		return n.Line, l.bytes(n.Line, n.Column)
	default:
		return 0, 0
	}
}

// bytes converts a column in characters to one in bytes.
func (l *Locator) bytes(line, column int) int {
	rest := l.body[Offset(l.body, line, 1):]
	at := 0
	for ; column > 1 && at < len(rest); column-- {
		_, size := utf8.DecodeRune(rest[at:])
		at += size
	}
	return at + 1
}

// A fieldStep leads from an object to a member, or from a list to an element.
type fieldStep struct {
	name    string
	element bool
	index   int
}

// is reports whether the step leads to the member of that name.
func (s fieldStep) is(name string) bool {
	return !s.element && (name == s.name || name == Camel(s.name))
}

// Camel returns the lowerCamelCase of a name in snake_case, as proto3 JSON has it.
func Camel(name string) string {
	if !strings.Contains(name, "_") {
		return name
	}
	words := strings.Split(name, "_")
	for i, word := range words[1:] {
		if word != "" && 'a' <= word[0] && word[0] <= 'z' {
			words[i+1] = string(word[0]-'a'+'A') + word[1:]
		}
	}
	return strings.Join(words, "")
}

// fieldSteps parses a path, up to an error.
func fieldSteps(field string) []fieldStep {
	var steps []fieldStep
	for field != "" {
		switch field[0] {
		case '.':
			field = field[1:]
		case '[':
			if quoted, err := strconv.QuotedPrefix(field[1:]); err == nil {
				name, _ := strconv.Unquote(quoted)
				steps = append(steps, fieldStep{name: name})
				field = strings.TrimPrefix(field[1+len(quoted):], "]")
				continue
			}
			text, rest, _ := strings.Cut(field[1:], "]")
			index, err := strconv.Atoi(text)
			if err != nil {
				return steps
			}
			steps = append(steps, fieldStep{element: true, index: index})
			field = rest
		default:
			end := strings.IndexAny(field, ".[")
			if end < 0 {
				end = len(field)
			}
			steps = append(steps, fieldStep{name: field[:end]})
			field = field[end:]
		}
	}
	return steps
}

// locateJSON returns the index into body, which is valid, to which the steps lead, as far as they exist.
func locateJSON(body []byte, steps []fieldStep) int {
	at := len(body) - len(bytes.TrimLeft(body, " \t\r\n"))
	value, start := body[at:], at
	for _, step := range steps {
		isList := value[0] == '['
		if !isList && value[0] != '{' {
			return at
		}
		found, i := false, 0
		for m := range each(value) {
			if found = isList && step.element && i == step.index || !isList && step.is(m.Name); found {
				at, value, start = start+m.At, m.Value, start+m.ValueAt
				break
			}
			i++
		}
		if !found {
			return at
		}
	}
	return at
}

// yamlSearchBudget limits the members of mappings that the searches of a Locator look at: merged mappings may
// refer to each other many times.
const yamlSearchBudget = 1 << 24

// find returns the node to which the steps lead, as far as they exist: of a mapping's
// member, the key.
func (l *Locator) find(n *yaml.Node, steps []fieldStep) *yaml.Node {
	at := n
	for _, step := range steps {
		for n.Kind == yaml.AliasNode && n.Alias != nil {
			n = n.Alias
		}
		switch {
		case n.Kind == yaml.SequenceNode && step.element && step.index >= 0 && step.index < len(n.Content):
			n = n.Content[step.index]
			at = n
		case n.Kind == yaml.MappingNode:
			key, value := l.member(n, step, MaxDepth)
			if key == nil {
				return at
			}
			at, n = key, value
		default:
			return at
		}
	}
	return at
}

// member returns the key and value of a step in a mapping, or in those merged into it, up to a depth.
func (l *Locator) member(n *yaml.Node, step fieldStep, depth int) (key, value *yaml.Node) {
	if l.left -= len(n.Content) + 1; l.left <= 0 || depth == 0 {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if step.is(n.Content[i].Value) {
			return n.Content[i], n.Content[i+1]
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Tag != "!!merge" {
			continue
		}
		for _, m := range merged(n.Content[i+1]) {
			if m.Kind != yaml.MappingNode {
				continue
			}
			if key, value := l.member(m, step, depth-1); key != nil {
				return key, value
			}
		}
	}
	return nil, nil
}
