package bootstrap

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxProblems is how many problems, and how many warnings, are listed.
const maxProblems = 100

// Problem is one rule that a bootstrap breaks, or one thing worth a word.
type Problem struct {
	// Field is the path in the JSON, such as xds_servers[0].channel_creds. It is
	// empty where the whole is meant.
	Field string
	// Line and Column are where the value, or the key, begins; they count from
	// 1, in bytes. Zero means unknown.
	Line, Column int
	// Reason says what is wrong, and what should be there.
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

// InvalidError is a bootstrap that cannot be used.
type InvalidError struct {
	// Source is the file or the variable, as in [Config.Source].
	Source string
	// Problems has at least one entry, and at most a hundred and one.
	Problems []Problem
}

// Error names the source once and joins the problems.
func (e *InvalidError) Error() string {
	words := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		words[i] = p.String()
	}
	return e.Source + ": " + strings.Join(words, "; ")
}

// problems is a list that does not grow beyond maxProblems.
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

// all returns the problems in the order of the text.
func (l *problems) all() []Problem {
	slices.SortStableFunc(l.list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if l.more > 0 {
		return append(l.list, Problem{Reason: fmt.Sprintf("and %d more like these", l.more)})
	}
	return l.list
}
