package decode

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Problem is one rule that a resource breaks, one warning about it, or one note.
type Problem struct {
	// Resource is the type and name of the resource, such as "Cluster/orders".
	Resource string `json:"resource"`
	// Field is the proto path from the top of the resource or, in a Bundle, of the body,
	// such as endpoints[2].lb_endpoints[0].load_balancing_weight. It is empty for the
	// whole resource.
	Field string `json:"field"`
	// Reason continues the sentence that the field begins.
	Reason string `json:"reason"`
	// The line in JSON or YAML, from 1; absent if the position is not known, as for the
	// later problems in a body of megabytes.
	Line int `json:"line,omitempty"`
	// The column in the line, from 1, in bytes.
	Column int `json:"column,omitempty"`

	unknown bool // it is about an unknown field
}

// UnknownField reports whether the problem is an unknown field, which may be the cause of
// other problems: a misspelled field is absent under its name.
func (p Problem) UnknownField() bool { return p.unknown }

// String returns "field: reason", or the reason alone.
func (p Problem) String() string {
	if p.Field == "" {
		return p.Reason
	}
	return p.Field + ": " + p.Reason
}

// InvalidError lists the rules that a resource breaks, up to MaxProblems.
type InvalidError struct{ Problems []Problem }

// Error names the resource once and joins the problems.
func (e *InvalidError) Error() string {
	var b strings.Builder
	last := ""
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteString("; ")
		}
		if p.Resource != last {
			last = p.Resource
			b.WriteString(p.Resource + ": ")
		}
		b.WriteString(p.String())
	}
	return b.String()
}

// SyntaxError is a body that cannot be read in its format: cut short, not JSON at all, a
// value of the wrong type.
type SyntaxError struct {
	Format Format
	Field  string // as in a Problem, from the top of the body; empty if it is not known
	// Line and Column count from 1, in bytes; zero means unknown.
	Line, Column int
	Offset       int // of the invalid byte of a protobuf body
	Reason       string
}

// Error returns the format, the position and the reason.
func (e *SyntaxError) Error() string {
	var b strings.Builder
	b.WriteString("read " + e.Format.String() + ": ")
	switch {
	case e.Line > 0 && e.Column > 0:
		fmt.Fprintf(&b, "line %d, column %d: ", e.Line, e.Column)
	case e.Line > 0:
		fmt.Fprintf(&b, "line %d: ", e.Line)
	case e.Format == FormatProtobuf:
		fmt.Fprintf(&b, "byte %d: ", e.Offset)
	}
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Reason)
	return b.String()
}

// SizeError is a body that would take too much memory to read.
type SizeError struct {
	Format Format
	Reason string
}

// Error returns the format and the reason.
func (e *SizeError) Error() string { return "read " + e.Format.String() + ": " + e.Reason }

// StoppedError is why Options.Pause ended the decoding.
type StoppedError struct{ Err error }

func (e *StoppedError) Error() string { return e.Err.Error() }

// Unwrap returns the error of Options.Pause.
func (e *StoppedError) Unwrap() error { return e.Err }

// problemList is a list of problems that does not grow beyond MaxProblems.
type problemList struct {
	list []Problem
	more int
}

func (l *problemList) empty() bool { return len(l.list) == 0 }

func (l *problemList) full() bool { return len(l.list) >= MaxProblems }

func (l *problemList) add(field, format string, args []any) {
	if l.full() {
		l.more++
		return
	}
	l.list = append(l.list, Problem{Field: text.Clip(field), Reason: text.Clip(fmt.Sprintf(format, args...))})
}

// append adds the problems of another list about the same resource.
func (l *problemList) append(from *problemList) { l.take(from, resource.Key{}, "") }

// take adds the problems of another list, as those of the resource k at a path.
func (l *problemList) take(from *problemList, k resource.Key, at string) {
	l.list = slices.Clip(l.list) // another list may have the same memory
	n := min(len(from.list), MaxProblems-len(l.list))
	for _, p := range from.list[:n] {
		p.Resource, p.Field = k.String(), within(at, p.Field)
		l.list = append(l.list, p)
	}
	l.more += len(from.list) - n + from.more
}

// of returns the problems. Those without a resource are of k, whose name may have become
// known after the first of them was added.
func (l *problemList) of(k resource.Key) []Problem {
	list := l.list
	if l.more > 0 {
		list = append(list, Problem{Reason: fmt.Sprintf("and %d more like these", l.more)})
	}
	for i := range list {
		list[i].Resource = cmp.Or(list[i].Resource, k.String())
	}
	return list
}
