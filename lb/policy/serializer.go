package policy

import "sync"

// Reporter is a part of a tree that reports to its parent at the end of a batch.
type Reporter interface {
	// Report is called by the owner, once at most in a batch for all its marks.
	Report()
}

// Serializer is the owner of a tree: it runs posted functions one after another, in
// order. It has a goroutine only while there is work.
//
// All functions that wait when it starts are one batch. After the last one, every
// marked Reporter reports, the deepest first; then the end function runs. Functions of
// Later belong to the same batch.
type Serializer struct {
	mu      sync.Mutex
	queue   []func()
	running bool
	closed  bool
	quiet   chan struct{} // made by Close; closed once nothing runs
	rest    chan struct{} // made by Rest, closed when nothing runs; nil if nobody waits

	// Owner only.
	batch  uint64 // the one that runs now, counted from 1
	end    func()
	later  []func()
	marked []level // by depth
}

// level is the queue of marks at one depth.
type level struct {
	marks []mark
	next  int
}

type mark struct {
	reporter Reporter
	pending  *bool
}

// NewSerializer returns a Serializer that calls end after every batch.
func NewSerializer(end func()) *Serializer {
	return &Serializer{end: end}
}

// Post queues f. After Close, it reports false.
func (s *Serializer) Post(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.queue = append(s.queue, f)
	if !s.running {
		s.running = true
		go s.run()
	}
	return true
}

// Rest returns a channel that is closed when nothing runs and nothing is queued.
func (s *Serializer) Rest() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		at := make(chan struct{})
		close(at)
		return at
	}
	if s.rest == nil {
		s.rest = make(chan struct{})
	}
	return s.rest
}

// Close runs last after all posted functions, and returns when it has finished. Later
// calls wait as well. The owner must not call it.
func (s *Serializer) Close(last func()) {
	s.mu.Lock()
	if !s.closed {
		s.closed, s.quiet = true, make(chan struct{})
		s.queue = append(s.queue, last)
		if !s.running {
			s.running = true
			go s.run()
		}
	}
	s.mu.Unlock()
	<-s.quiet
}

func (s *Serializer) run() {
	var spare []func()
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.running = false
			s.marked = nil // there are many trees, most of which are quiet
			if s.rest != nil {
				close(s.rest)
				s.rest = nil
			}
			if s.closed {
				close(s.quiet)
			}
			s.mu.Unlock()
			return
		}
		batch := s.queue
		s.queue = spare[:0]
		s.mu.Unlock()

		s.batch++
		for i, f := range batch {
			f()
			batch[i] = nil
			s.runLater()
		}
		spare = batch
		s.report()
		s.end()
	}
}

// Later runs f right after the current function. Only the owner may call it.
func (s *Serializer) Later(f func()) { s.later = append(s.later, f) }

// mark makes r report at the end of the batch. pending is owned by r.
func (s *Serializer) mark(depth int, r Reporter, pending *bool) {
	if *pending {
		return
	}
	*pending = true
	for len(s.marked) <= depth {
		s.marked = append(s.marked, level{})
	}
	s.marked[depth].marks = append(s.marked[depth].marks, mark{r, pending})
}

// runLater runs the functions of Later, and those that they add.
func (s *Serializer) runLater() {
	for i := 0; i < len(s.later); i++ {
		f := s.later[i]
		s.later[i] = nil
		f()
	}
	s.later = s.later[:0]
	if cap(s.later) > keptLater {
		s.later = nil
	}
}

// keptLater limits the room for functions of Later that is kept: a batch that makes SubConns
// adds some for each.
const keptLater = 64

// report calls the marked Reporters, the deepest first, including those that are
// marked meanwhile.
func (s *Serializer) report() {
	for {
		m, ok := s.deepest()
		if !ok {
			return
		}
		*m.pending = false
		m.reporter.Report()
		s.runLater()
	}
}

// deepest removes the first of the deepest marks.
func (s *Serializer) deepest() (mark, bool) {
	for depth := len(s.marked) - 1; depth >= 0; depth-- {
		level := &s.marked[depth]
		if level.next == len(level.marks) {
			continue
		}
		m := level.marks[level.next]
		level.marks[level.next] = mark{}
		level.next++
		if level.next == len(level.marks) {
			level.marks, level.next = level.marks[:0], 0
		}
		return m, true
	}
	return mark{}, false
}
