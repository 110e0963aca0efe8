package decode

import (
	"fmt"
	"strings"
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
