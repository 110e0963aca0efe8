package policy

import "sync"

// Reporter is a policy, or another part of a tree, that reports upward at the
// end of a batch.
type Reporter interface {
	// Report is called by the owner, once in a batch at most after each
	// Mark.
	Report()
}

// Serializer is the one owner of a tree: it runs what is posted to it, one
// function after another, in the order of posting. It has a goroutine only
// while there is work.
//
// What is waiting when it comes round is one batch. After the batch's last
// function every marked Reporter reports, the deepest first; then the end
// function runs. What the batch itself puts off with Later still belongs to it.
type Serializer struct {
	mu      sync.Mutex
	queue   []func()
	running bool
	closed  bool
	quiet   chan struct{} // closed once closed and nothing runs

	// Owner only.
	batch  uint64 // the one that runs now, counted from 1
	end    func()
	later  []func()
	marked []level // by depth
}

// level is what is marked at one depth: a queue.
type level struct {
	marks []mark
	next  int
}

type mark struct {
	reporter Reporter
	pending  *bool
}

// NewSerializer returns a Serializer that calls end at the end of every batch.
func NewSerializer(end func()) *Serializer {
	return &Serializer{end: end, quiet: make(chan struct{})}
}

// Post queues f. It reports false, and drops f, after Close.
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

// Close posts last, lets all that was posted before it run, and returns when
// all is quiet. Later calls wait for the same. It must not be called by the
// owner.
func (s *Serializer) Close(last func()) {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
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

// Later queues f right behind the function that runs now, in the same batch.
// Only the owner may call it.
func (s *Serializer) Later(f func()) { s.later = append(s.later, f) }

// mark notes that r has to report at the end of the batch. pending is r's own
// note of it.
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

// runLater runs what was put off, and what that puts off in turn.
func (s *Serializer) runLater() {
	for i := 0; i < len(s.later); i++ {
		f := s.later[i]
		s.later[i] = nil
		f()
	}
	s.later = s.later[:0]
}

// report lets the marked report, the deepest first, until nothing is left. What
// comes up meanwhile, at any depth, has its turn before anything above it.
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

// deepest takes the first of the deepest marks.
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
