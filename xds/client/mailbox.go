package client

import "sync"

// mailbox is an unbounded queue: put never waits. One goroutine takes.
type mailbox[T any] struct {
	wake chan struct{} // has something while there may be something to take

	mu    sync.Mutex
	items []T
}

func newMailbox[T any]() *mailbox[T] {
	return &mailbox[T]{wake: make(chan struct{}, 1)}
}

func (m *mailbox[T]) put(item T) {
	m.mu.Lock()
	m.items = append(m.items, item)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// take returns all that is there, in order.
func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := m.items
	m.items = nil
	return items
}
