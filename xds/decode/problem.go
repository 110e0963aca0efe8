package decode

import (
	"fmt"
	"strings"
)

// Problem is one rule that a resource breaks, one warning about it, or one note.
type Problem struct {
	// Resource is the [Key]'s String.
	Resource string `json:"resource"`
	// Field is the proto path, in snake_case with indices, such as
	// endpoints[2].lb_endpoints[0].load_balancing_weight. It is empty where
	// the whole resource is meant. It begins at the top of the resource, or,
	// in a Bundle, of the body.
	Field string `json:"field"`
	// Reason continues the sentence that the field begins.
	Reason string `json:"reason"`
	// Line and Column are where it stands in JSON or YAML, from 1 on, the column in
	// bytes. They are set in an InvalidError, and with Options.Places in warnings and
	// notes; not where the place is not known, and not for the later ones in a body
	// of megabytes.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`

	unknown bool // it is about a field that no message has
}

// UnknownField reports whether the problem is a field that no message has, which
// may be the cause of other problems: a misspelled field is absent under its name.
func (p Problem) UnknownField() bool { return p.unknown }

// String returns "field: reason", or the reason alone.
func (p Problem) String() string {
	if p.Field == "" {
		return p.Reason
	}
	return p.Field + ": " + p.Reason
}

// InvalidError is a resource that can be read and breaks rules. It lists all of
// them, up to MaxProblems.
type InvalidError struct {
	Problems []Problem
}

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

// SyntaxError is a body that cannot be read as its format says: cut short, not
// JSON at all, a value of the wrong type.
type SyntaxError struct {
	Format Format
	// Field is the path of the field that is being read, where that is known:
	// as in a Problem, from the top of the body.
	Field string
	// Line and Column count from 1, in bytes; zero means unknown.
	Line, Column int
	// Offset is the byte where a protobuf body breaks.
	Offset int
	Reason string
}

// Error says the format, the place and the reason.
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

// SizeError is a body that would take too much to read.
type SizeError struct {
	Format Format
	Reason string
}

// Error says the format and the reason.
func (e *SizeError) Error() string { return "read " + e.Format.String() + ": " + e.Reason }
