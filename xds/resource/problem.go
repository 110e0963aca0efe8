package resource

import (
	"fmt"
	"strings"
)

// Problem is one rule that a resource breaks, or one thing worth a word.
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
	// Line and Column are where it stands in the JSON or YAML of a push that is
	// refused or a dry run, from 1 on, the column in bytes. They are absent where
	// that is not known, and of the later ones in a body of megabytes.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
}

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

// verdict gathers what is found out about one resource while it is decoded.
type verdict struct {
	key    Key
	byHand bool
	strict bool
	custom CustomPolicies // nil: no custom policy is available
	// certificates is nil where no certificate provider is available.
	certificates func(instance string) bool
	problems     ledger
	warnings     ledger
	// unknown counts the fields that no proto message knows.
	unknown int
	// regexSize is how many instructions the regular expressions stand for, where
	// they are written by hand.
	regexSize int
}

// refuse notes a broken rule.
func (v *verdict) refuse(field, format string, args ...any) {
	v.problems.add(field, format, args)
}

// warn notes what is worth a word.
func (v *verdict) warn(field, format string, args ...any) {
	v.warnings.add(field, format, args)
}

// warnByHand warns whoever wrote the resource by hand.
func (v *verdict) warnByHand(field, format string, args ...any) {
	if v.byHand {
		v.warn(field, format, args...)
	}
}

// unknownField notes a field that no proto message knows.
func (v *verdict) unknownField(field, reason string) {
	v.unknown++
	if v.strict {
		v.refuse(field, "%s", reason)
		return
	}
	v.warn(field, "%s: ignored", reason)
}

// err is the refusal, nil where no rule is broken.
func (v *verdict) err() error {
	if len(v.problems.list) == 0 {
		return nil
	}
	return &InvalidError{Problems: v.problems.of(v.key)}
}

// ledger is a list of problems that does not grow beyond MaxProblems.
type ledger struct {
	list []Problem
	more int
}

func (l *ledger) add(field, format string, args []any) {
	if len(l.list) == MaxProblems {
		l.more++
		return
	}
	l.list = append(l.list, Problem{Field: clip(field), Reason: clip(fmt.Sprintf(format, args...))})
}

// maxWords is how much is said about one problem, in bytes: a reason may quote
// what was sent.
const maxWords = 1024

// clip shortens s to what can be read.
func clip(s string) string {
	if len(s) <= maxWords {
		return s
	}
	return strings.ToValidUTF8(s[:maxWords], "") + "…"
}

// of returns the problems as those of the resource k, whose name may have come
// to be known after the first of them.
func (l *ledger) of(k Key) []Problem {
	list := l.list
	if l.more > 0 {
		list = append(list, Problem{Reason: fmt.Sprintf("and %d more like these", l.more)})
	}
	for i := range list {
		list[i].Resource = k.String()
	}
	return list
}

// take appends another's problems as those of the resource k at a path.
func (l *ledger) take(from *ledger, k Key, at string) {
	for _, p := range from.list {
		if len(l.list) == MaxProblems {
			l.more++
			continue
		}
		l.list = append(l.list, Problem{Resource: k.String(), Field: within(at, p.Field), Reason: p.Reason})
	}
	l.more += from.more
}

// ofBundle returns the problems, which name their resources already.
func (l *ledger) ofBundle() []Problem {
	if l.more == 0 {
		return l.list
	}
	return append(l.list, Problem{Resource: string(typeBundle), Reason: fmt.Sprintf("and %d more like these", l.more)})
}
