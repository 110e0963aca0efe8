package bootstrap

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

type validator struct {
	body     []byte
	logger   *slog.Logger
	problems problems
	warnings problems
}

func (v *validator) problem(at int, field, format string, args []any) Problem {
	p := Problem{Field: text.Clip(field), Reason: text.Clip(fmt.Sprintf(format, args...))}
	if at >= 0 {
		p.Line, p.Column = text.Position(v.body, min(at, len(v.body)))
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
