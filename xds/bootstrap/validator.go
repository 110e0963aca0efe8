package bootstrap

import (
	"fmt"
	"strings"
)

// validator collects the problems of a bootstrap. A nil value is absent, as null is.
type validator struct {
	body     []byte
	problems problems
	warnings problems
}

func (v *validator) problem(at int, field, format string, args []any) Problem {
	p := Problem{Field: clip(field), Reason: clip(fmt.Sprintf(format, args...))}
	if at >= 0 {
		p.Line, p.Column = position(v.body, at)
	}
	return p
}

// reject adds an error at a byte of the text; -1 is no position.
func (v *validator) reject(at int, field, format string, args ...any) {
	v.problems.add(v.problem(at, field, format, args))
}

func (v *validator) warn(at int, field, format string, args ...any) {
	v.warnings.add(v.problem(at, field, format, args))
}

// maxReason is the maximum size of one reason in bytes: it may quote the input.
const maxReason = 512

func clip(s string) string {
	if len(s) <= maxReason {
		return s
	}
	return strings.ToValidUTF8(s[:maxReason], "") + "…"
}

// is reports whether there is a value of a kind. It rejects one of another kind.
func (v *validator) is(x *value, path string, wanted kind) bool {
	switch {
	case x == nil || x.kind == null:
		return false
	case x.kind != wanted:
		v.reject(x.at, path, "is %s; it must be %s", x.kind, wanted)
		return false
	}
	return true
}

// text returns a string; "" if there is none.
func (v *validator) text(x *value, path string) string {
	if !v.is(x, path, text) {
		return ""
	}
	return x.text
}

// list returns the elements of a list.
func (v *validator) list(x *value, path string) []*value {
	if !v.is(x, path, list) {
		return nil
	}
	return x.elements
}

// fields is an object whose keys are known.
type fields struct {
	*validator
	path   string
	at     int
	values map[string]*value
}

// object returns the fields of an object, and whether there is one. It warns of unknown
// keys.
func (v *validator) object(x *value, path string, known ...string) (fields, bool) {
	f := fields{validator: v, path: path, at: -1, values: map[string]*value{}}
	if x != nil {
		f.at = x.at
	}
	if !v.is(x, path, object) {
		return f, false
	}
next:
	for _, m := range x.members {
		for _, name := range known {
			if m.name == name {
				f.values[name] = m.value
				continue next
			}
		}
		if meant := nearest(m.name, known); meant != "" {
			v.warn(m.at, join(path, m.name), "unknown key, ignored; did you mean %s?", meant)
		} else {
			v.warn(m.at, join(path, m.name), "unknown key, ignored")
		}
	}
	return f, true
}

// get returns a field with its path; nil if it is absent or null.
func (f fields) get(name string) (*value, string) {
	x := f.values[name]
	if x != nil && x.kind == null {
		x = nil
	}
	return x, join(f.path, name)
}

// text returns a field that is a string.
func (f fields) text(name string) string { return f.validator.text(f.get(name)) }

// place returns the position of a field, or of the object without it.
func (f fields) place(name string) int {
	if x := f.values[name]; x != nil {
		return x.at
	}
	return f.at
}

// nearest returns the most similar name, which differs in case, underscores and at most two
// letters; "" if there is none.
func nearest(written string, names []string) string {
	plain := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), "_", "") }
	best, least := "", 3
	for _, name := range names {
		if len(name)-len(written) > 8 || len(written)-len(name) > 8 {
			continue
		}
		if d := distance(plain(written), plain(name)); d < least && d < len(name)/2 {
			best, least = name, d
		}
	}
	return best
}

// distance is the edit distance of a and b in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
