package api

import (
	"strconv"
	"sync/atomic"
)

// indexHeader is the name of the header with the index of the store that lbd served when it began
// to compute the response, or that of the change that the response is about.
const indexHeader = "Lbd-Index"

// servedIndex has the value of the header, which all responses share until it changes.
type servedIndex struct {
	index func() uint64
	last  atomic.Pointer[indexText]
}

type indexText struct {
	index uint64
	text  []string
}

// value returns the value for a header map.
func (s *servedIndex) value() []string {
	index := s.index()
	if last := s.last.Load(); last != nil && last.index == index {
		return last.text
	}
	now := &indexText{index, []string{strconv.FormatUint(index, 10)}}
	s.last.Store(now)
	return now.text
}
