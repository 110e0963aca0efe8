package store

import "context"

// A Queue passes Updates to the goroutine of a store that commits them.
type Queue struct {
	// Requests is unbuffered: who receives a request answers it.
	Requests chan *Request
	// Closing is closed when no more Updates begin.
	Closing chan struct{}
}

// A Request is an Update in a Queue.
type Request struct {
	Ctx context.Context
	Fn  func(*Tx) error

	snapshot *Snapshot
	err      error
	done     chan struct{}
}

// NewQueue returns a Queue that is open.
func NewQueue() Queue { return Queue{make(chan *Request), make(chan struct{})} }

// Update is that of [Store]: it makes a request and waits for the answer.
func (q *Queue) Update(ctx context.Context, fn func(*Tx) error) (*Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := &Request{Ctx: ctx, Fn: fn, done: make(chan struct{})}
	select {
	case q.Requests <- r:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-q.Closing:
		return nil, ErrClosed
	}
	<-r.done
	return r.snapshot, r.err
}

// Gather adds all requests that wait already to a group.
func (q *Queue) Gather(group ...*Request) []*Request {
	for {
		select {
		case r := <-q.Requests:
			group = append(group, r)
		default:
			return group
		}
	}
}

// Answer ends the Update of a request, with a snapshot or an error.
func (r *Request) Answer(snapshot *Snapshot, err error) {
	if r.err = err; err == nil {
		r.snapshot = snapshot
	}
	close(r.done)
}
