package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

var (
	errOver = errors.New("the exchange is over")
	past    = time.Unix(1, 0)
)

// deadlines are those of one exchange: for how long its caller may neither send nor read, and until when an endpoint has
// to answer. The Transport reads the body in a goroutine of its own, maybe for longer than the exchange lasts: after the
// end, no deadline is set and nothing is read, because the connection has another request then, or the stream is gone.
type deadlines struct {
	control *http.ResponseController
	stall   time.Duration // of the caller
	timeout time.Duration // until an endpoint has answered; 0 for none
	fixed   bool          // the timeout begins with the request, and does not stop while the caller sends

	body     sync.Mutex // held while the body is read
	complete bool       // the body

	mu       sync.Mutex
	at       time.Time   // when the timeout ends; zero for never
	timer    *time.Timer // calls expire; nil without a timeout
	expired  bool
	answered bool
	over     bool
}

// begin starts the timeout.
func (d *deadlines) begin(cancel context.CancelFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timeout > 0 {
		d.at = time.Now().Add(d.timeout)
		d.timer = time.AfterFunc(d.timeout, func() { d.expire(cancel) })
	}
}

func (d *deadlines) expire(cancel context.CancelFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || time.Now().Before(d.at) {
		return
	}
	d.expired = true
	cancel()
}

// deadline returns when the timeout ends, and whether it has.
func (d *deadlines) deadline() (at time.Time, expired bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at, d.expired
}

// answer ends the timeout. From now on, the caller sends when it likes: the response may be a stream.
func (d *deadlines) answer() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.answered || d.over {
		return
	}
	d.answered = true
	d.suspend()
	_ = d.control.SetReadDeadline(time.Time{}) // all connections have deadlines
}

func (d *deadlines) suspend() {
	if d.timer != nil {
		d.at = time.Time{}
		d.timer.Stop()
	}
}

// read reads the body of the request. Meanwhile, the caller has its time, and that of the endpoint stands still.
func (d *deadlines) read(body io.Reader, p []byte) (n int, err error) {
	d.body.Lock()
	defer d.body.Unlock()
	if !d.reading(true) {
		return 0, errOver
	}
	n, err = body.Read(p)
	d.complete = err == io.EOF
	d.reading(false)
	return n, err
}

func (d *deadlines) reading(begins bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over || d.answered {
		return !d.over
	}
	var at time.Time
	if begins {
		at = time.Now().Add(d.stall)
	}
	_ = d.control.SetReadDeadline(at)
	if d.timer != nil && !d.fixed {
		d.suspend()
		if !begins {
			d.at = time.Now().Add(d.timeout)
			d.timer.Reset(d.timeout)
		}
	}
	return true
}

// writing is called before and after something is written. Between two parts, the caller need not read.
func (d *deadlines) writing(begins bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return
	}
	var at time.Time
	if begins {
		at = time.Now().Add(d.stall)
	}
	_ = d.control.SetWriteDeadline(at)
}

// end is for what net/http, or the new owner of the connection, does after the exchange. It waits for a read of the body.
func (d *deadlines) end() {
	d.mu.Lock()
	if d.over {
		d.mu.Unlock()
		return
	}
	d.over = true
	d.suspend()
	_ = d.control.SetWriteDeadline(time.Now().Add(d.stall))
	d.mu.Unlock()
	if !d.body.TryLock() {
		_ = d.control.SetReadDeadline(past)
		d.body.Lock()
		d.complete = false // even if it is: the connection had an error
	}
	d.body.Unlock()
}
