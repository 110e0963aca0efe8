package text

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Locator finds the fields of one JSON or YAML text, which must not be changed.
type Locator struct {
	body []byte
	yaml bool
	root *yaml.Node // nil for JSON, and for invalid YAML
}

// LocateJSON returns a Locator for a JSON text, which each call of Find reads.
func LocateJSON(body []byte) *Locator { return &Locator{body: trimBOM(body)} }

// LocateYAML returns a Locator for a YAML text, which is read once.
func LocateYAML(body []byte) *Locator {
	l := &Locator{body: trimBOM(body), yaml: true}
	var document yaml.Node
	if yaml.Unmarshal(l.body, &document) == nil && len(document.Content) == 1 {
		l.root = document.Content[0]
	}
	return l
}

func trimBOM(body []byte) []byte { return bytes.TrimPrefix(body, []byte("\ufeff")) }

// Find returns the line and column of the field at a path, both from 1, the column in
// bytes. A member of an object begins at its name. Paths are in snake_case, the text
// may be in lowerCamelCase. The position of an absent field is that of the object that
// lacks it; it is 0, 0 if the text before it is invalid.
func (l *Locator) Find(field string) (line, column int) {
	switch {
	case !l.yaml:
		if at := locateJSON(l.body, fieldSteps(field)); at >= 0 {
			return Position(l.body, at)
		}
		return 0, 0
	case l.root != nil:
		w := yamlSearch{budget: yamlSearchBudget}
		n := w.find(l.root, fieldSteps(field))
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

// locateJSON returns the index into body to which the steps lead, as far as they exist; -1
// if body is no JSON.
func locateJSON(body []byte, steps []fieldStep) int {
	if !json.Valid(body) {
		return -1
	}
	at := len(body) - len(bytes.TrimLeft(body, " \t\r\n"))
	value, start := body[at:], at
	for _, step := range steps {
		isList := value[0] == '['
		if !isList && value[0] != '{' {
			return at
		}
		members := Members(value)
		i := slices.IndexFunc(members, func(m Member) bool { return !isList && step.is(m.Name) })
		if isList && step.element {
			i = step.index
		}
		if i < 0 || i >= len(members) {
			return at
		}
		m := members[i]
		at, value, start = start+m.At, m.Value, start+m.ValueAt
	}
	return at
}

// yamlSearchBudget limits the mappings of one search: merged ones may refer to each other
// many times.
const yamlSearchBudget = 10_000

type yamlSearch struct{ budget int }

// find returns the node to which the steps lead, as far as they exist: of a mapping's
// member, the key.
func (w *yamlSearch) find(n *yaml.Node, steps []fieldStep) *yaml.Node {
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
			key, value := w.member(n, step)
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

// member returns the key and value of a step in a mapping, or in those merged into it.
func (w *yamlSearch) member(n *yaml.Node, step fieldStep) (key, value *yaml.Node) {
	if w.budget == 0 {
		return nil, nil
	}
	w.budget--
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
			if key, value := w.member(m, step); key != nil {
				return key, value
			}
		}
	}
	return nil, nil
}
