package api

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/quota"
)

// setIndex sets the header again, after a wait or a change.
func setIndex(w *recorder) {
	w.Header()[indexHeader] = w.router.index.value()
}

// requiredIndex is what the parameters min_index and wait of a read say.
type requiredIndex struct {
	index        uint64
	given, waits bool
	wait         time.Duration
}

// parameters returns both parameters.
func (q *requiredIndex) parameters() []parameter {
	return []parameter{
		{name: "min_index", set: func(v value) string {
			q.given = true
			return v.index(&q.index)
		}},
		{name: "wait", set: func(v value) string {
			q.waits = true
			return v.duration(&q.wait, 0, MaxPoll)
		}},
	}
}

// index stores an index of the store.
func (v value) index(to *uint64) string {
	n, err := strconv.ParseUint(v.text, 10, 63)
	if err != nil {
		return "an index, a whole number from 0 to " + strconv.Itoa(math.MaxInt64)
	}
	*to = n
	return ""
}

// readServed is [readParameters] of a read, which has the parameters min_index and wait, too. It
// returns when picks use min_index.
func (h *handlers) readServed(w *recorder, r *http.Request, known ...parameter) error {
	var q requiredIndex
	if err := readParameters(r, append(known, q.parameters()...)...); err != nil {
		return err
	}
	if q.waits && !q.given {
		return fault.Errorf(fault.InvalidArgument, "wait is only valid with min_index")
	}
	return h.awaitIndex(w, r, &q)
}

// served returns a handler for a read without parameters of its own.
func (h *handlers) served(answer handler) handler {
	return func(w *recorder, r *http.Request) error {
		if err := h.readServed(w, r); err != nil {
			return err
		}
		return answer(w, r)
	}
}

// readServedNamed is [readNamed] of a read.
func (h *handlers) readServedNamed(w *recorder, r *http.Request, in string, known ...parameter) (string, error) {
	name, err := pathName(r, in)
	if err != nil {
		return "", err
	}
	return name, h.readServed(w, r, known...)
}

// awaitIndex returns when picks use the index that a read requires. The time is no longer in
// q.wait. While it waits, the request counts as a stream.
func (h *handlers) awaitIndex(w *recorder, r *http.Request, q *requiredIndex) error {
	if q.index == 0 {
		return nil
	}
	defer setIndex(w) // also if the index was reached just now, after the header was set
	if h.Index.Index() >= q.index {
		return nil
	}
	if q.wait == 0 {
		return h.Index.AwaitIndex(r.Context(), q.index, 0)
	}
	if w.loop != nil {
		return errHandOver
	}
	began := time.Now()
	allowWait(w, q.wait)
	err := awaiting(w, r, func(ctx context.Context) error { return h.Index.AwaitIndex(ctx, q.index, q.wait) })
	q.wait = max(0, q.wait-time.Since(began))
	return err
}

// awaitIndex returns when picks use the index that the request requires. The time is taken from the
// wait of the picks, and counts against the same quota.
func (s *picking) awaitIndex(w *recorder, r *http.Request, h *handlers) error {
	q := &s.request
	defer setIndex(w) // as above
	if h.Index.Index() >= s.minIndex {
		return nil
	}
	if !s.waits || q.Wait == 0 {
		return h.Index.AwaitIndex(r.Context(), s.minIndex, 0)
	}
	if q.NoWait {
		return errHandOver
	}
	if err := w.acquire(quota.WaitingPicks, 1); err != nil {
		return err
	}
	defer w.release(quota.WaitingPicks, 1)
	ctx, cancel := whileValid(r.Context(), w.caller)
	defer cancel()
	began := time.Now()
	if err := h.Index.AwaitIndex(ctx, s.minIndex, q.Wait); err != nil {
		return err
	}
	q.Wait = max(0, q.Wait-time.Since(began))
	return nil
}
