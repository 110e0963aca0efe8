package decode

import (
	"cmp"
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
