package bootstrap

import (
	"fmt"
	"strings"
)

// verdict gathers what is found out about a bootstrap while it is read. A value
// that is nil is absent, as null is; asking for anything of it is no problem.
type verdict struct {
	body     []byte
	problems problems
	warnings problems
}

func (v *verdict) problem(at int, field, format string, args []any) Problem {
	p := Problem{Field: clip(field), Reason: clip(fmt.Sprintf(format, args...))}
	if at >= 0 {
		p.Line, p.Column = position(v.body, at)
	}
	return p
}

// refuse notes a broken rule at a byte of the text; -1 is no place.
func (v *verdict) refuse(at int, field, format string, args ...any) {
	v.problems.add(v.problem(at, field, format, args))
}

func (v *verdict) warn(at int, field, format string, args ...any) {
	v.warnings.add(v.problem(at, field, format, args))
}

// maxWords is how much is said about one problem, in bytes: it may quote what was
// written.
const maxWords = 512

func clip(s string) string {
	if len(s) <= maxWords {
		return s
	}
	return strings.ToValidUTF8(s[:maxWords], "") + "…"
}

// is reports whether there is a value, and it is of the kind that is wanted; one of
// another kind is refused.
func (v *verdict) is(x *value, path string, wanted kind) bool {
	switch {
	case x == nil || x.kind == null:
		return false
	case x.kind != wanted:
		v.refuse(x.at, path, "is %s; it must be %s", x.kind, wanted)
		return false
	}
	return true
}

// text returns a string, "" where there is none.
func (v *verdict) text(x *value, path string) string {
	if !v.is(x, path, text) {
		return ""
	}
	return x.text
}

// list returns the elements of a list.
func (v *verdict) list(x *value, path string) []*value {
	if !v.is(x, path, list) {
		return nil
	}
	return x.elements
}

// fields is an object whose keys are known.
type fields struct {
	*verdict
	path   string
	at     int
	values map[string]*value
}

// object returns the fields of an object, and whether there is one. Keys that are
// not known are warned of.
func (v *verdict) object(x *value, path string, known ...string) (fields, bool) {
	f := fields{verdict: v, path: path, at: -1, values: map[string]*value{}}
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

// get returns a field, nil where it is absent or null, and its path.
func (f fields) get(name string) (*value, string) {
	x := f.values[name]
	if x != nil && x.kind == null {
		x = nil
	}
	return x, join(f.path, name)
}

// text returns a field that is a string.
func (f fields) text(name string) string { return f.verdict.text(f.get(name)) }

// place is where a field is, or else the object that should have it.
func (f fields) place(name string) int {
	if x := f.values[name]; x != nil {
		return x.at
	}
	return f.at
}

// nearest returns the name that somebody who wrote this meant, "" if none is near:
// one that differs in case and underscores only, or in two letters.
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

// distance is how many bytes must be put in, taken out or changed to make b of a.
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
