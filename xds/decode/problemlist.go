package decode

import (
	"fmt"
	"slices"

	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

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

// append adds the problems of another list.
func (l *problemList) append(from *problemList) {
	n := min(len(from.list), MaxProblems-len(l.list))
	l.list = append(slices.Clip(l.list), from.list[:n]...)
	l.more += len(from.list) - n + from.more
}

// of returns the problems with the key of their resource, whose name may have become known
// after the first of them was added.
func (l *problemList) of(k resource.Key) []Problem {
	list := l.list
	if l.more > 0 {
		list = append(list, Problem{Reason: fmt.Sprintf("and %d more like these", l.more)})
	}
	for i := range list {
		list[i].Resource = k.String()
	}
	return list
}
