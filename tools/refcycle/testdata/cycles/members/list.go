// Package members has a cycle of three files, through a method of an instance of a generic type, and
// one of two files, through an embedded interface.
package members

type list[T any] struct {
	items []T
}

func (l *list[T]) len() int { return length(l) }

func (l *list[T]) more() bool { return Count() > 0 }
