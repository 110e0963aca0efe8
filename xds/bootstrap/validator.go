package bootstrap

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

type validator struct {
	body     []byte
	logger   *slog.Logger
	problems problems
	warnings problems
}

// add adds a problem to a list, unless that is full: its position takes as long as the text is.
func (v *validator) add(to *problems, at int, field, format string, args []any) {
	if len(to.list) == maxProblems {
		to.more++
		return
	}
	p := Problem{Field: text.Clip(field), Reason: text.Clip(fmt.Sprintf(format, args...))}
	if at >= 0 {
		p.Line, p.Column = text.Position(v.body, min(at, len(v.body)))
	}
	to.list = append(to.list, p)
}

// reject adds an error at a byte of the text; -1 is no position.
func (v *validator) reject(at int, field, format string, args ...any) {
	v.add(&v.problems, at, field, format, args)
}

func (v *validator) warn(at int, field, format string, args ...any) {
	v.add(&v.warnings, at, field, format, args)
}

// rejectValue adds an error about a value, or about an absent one at its object.
func (v *validator) rejectValue(x *value, format string, args ...any) {
	v.reject(x.at, x.path, format, args...)
}

func (v *validator) warnValue(x *value, format string, args ...any) {
	v.warn(x.at, x.path, format, args...)
}

// is reports whether a value is of a kind. It rejects one of another kind, unless it is
// absent or null.
func (v *validator) is(x *value, wanted kind) bool {
	if x.kind != wanted && !x.none() {
		v.rejectValue(x, "is %s; it must be %s", x.kind, wanted)
	}
	return x.kind == wanted
}

// none reports whether there is no value: null counts as absent.
func (x *value) none() bool { return x.kind == absent || x.kind == null }

func (v *validator) string(x *value) string {
	if !v.is(x, str) {
		return ""
	}
	return x.text
}

func (v *validator) list(x *value) []*value {
	v.is(x, list)
	return x.elements
}

// fields is an object whose keys are known.
type fields struct {
	*validator
	*value
}

// object returns the fields of an object, and whether there is one. It warns of unknown
// keys.
func (v *validator) object(x *value, known ...string) (fields, bool) {
	if !v.is(x, object) {
		f := fields{v, &value{path: x.path, at: x.at}}
		if x.kind == absent {
			f.at = -1
		}
		return f, false
	}
	for _, m := range x.members {
		if slices.Contains(known, m.name) {
			continue
		}
		if meant := text.Closest(m.name, known); meant != "" {
			v.warn(m.at, m.path, "unknown key, ignored; did you mean %s?", meant)
		} else {
			v.warn(m.at, m.path, "unknown key, ignored")
		}
	}
	return fields{v, x}, true
}

func (f fields) get(name string) *value {
	for _, m := range f.members {
		if m.name == name {
			return m.value
		}
	}
	return &value{path: join(f.path, name), at: f.at}
}

func (f fields) text(name string) string { return f.string(f.get(name)) }

const maxProblems = 100

// Problem is an error or a warning.
type Problem struct {
	// Field is the path in the JSON, such as xds_servers[0].channel_creds; empty for the
	// whole file.
	Field string
	// Line and Column are the position of the value or key, from 1, in bytes; 0 if unknown.
	Line, Column int
	// Reason is what is wrong, and what to write instead.
	Reason string
}

// String returns "line 3, column 5: field: reason".
func (p Problem) String() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "line %d, column %d: ", p.Line, p.Column)
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Reason)
	return b.String()
}

// InvalidError reports an invalid bootstrap.
type InvalidError struct {
	// Source is the file or the variable, as in [Config.Source].
	Source string
	// Problems has 1 to maxProblems+1 entries.
	Problems []Problem
}

// Error returns the source and the problems.
func (e *InvalidError) Error() string {
	words := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		words[i] = p.String()
	}
	return e.Source + ": " + strings.Join(words, "; ")
}

type problems struct {
	list []Problem
	more int
}

// all returns the problems by position.
func (l *problems) all() []Problem {
	slices.SortStableFunc(l.list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if l.more > 0 {
		return append(l.list, Problem{Reason: fmt.Sprintf("and %d more like these", l.more)})
	}
	return l.list
}
