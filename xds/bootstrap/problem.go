package bootstrap

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

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

func (l *problems) add(p Problem) {
	if len(l.list) == maxProblems {
		l.more++
		return
	}
	l.list = append(l.list, p)
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
