package lbdclient

import (
	"sync"
	"time"
)

// reportAge is the age of counts that could not be sent, at most.
const reportAge = time.Minute

var started = time.Now()

// now is a clock that never goes back.
func now() time.Duration { return time.Since(started) }

// tally is what a report says of one endpoint.
type tally struct {
	Address   string  `json:"address"`
	Requests  int64   `json:"requests,omitempty"`
	Errors    int64   `json:"errors,omitempty"`
	Cancelled int64   `json:"cancelled,omitempty"`
	InFlight  float64 `json:"in_flight_seconds,omitempty"`
	Latency   float64 `json:"latency_seconds,omitempty"`
	// ConnectFailures are reported apart from the rest, at once.
	ConnectFailures int64 `json:"connect_failures,omitempty"`
}

// count counts the requests to one endpoint since the last report.
type count struct {
	mu       sync.Mutex
	tally    tally
	inFlight int64
	since    time.Duration // until when tally.InFlight is counted
	removed  bool          // no report looks at this count any more
}

func (c *count) advance(at time.Duration) {
	if at > c.since { // the clock was read before the lock was taken
		c.tally.InFlight += float64(c.inFlight) * (at - c.since).Seconds()
		c.since = at
	}
}

// answered counts the outcome of a request.
func (c *count) answered(outcome Outcome, latency time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally.Requests++
	c.tally.Latency += latency.Seconds()
	switch outcome {
	case Failure:
		c.tally.Errors++
	case Cancelled:
		c.tally.Cancelled++
	}
}

// end counts a request as no longer in flight.
func (c *count) end(at time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(at)
	c.inFlight--
}

// counts has the counts of one cluster.
type counts struct {
	mu        sync.Mutex
	endpoints map[string]*count
	since     time.Duration // when they were taken last
}

func (c *counts) init() {
	c.endpoints, c.since = map[string]*count{}, now()
}

// of returns the count of an address.
func (c *counts) of(address string) *count {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.endpoints[address]
	if known == nil {
		known = &count{since: now()}
		known.tally.Address = address
		c.endpoints[address] = known
	}
	return known
}

// locked returns the count of an address with mu held: known, unless that was removed.
func (c *counts) locked(known *count, address string) *count {
	known.mu.Lock()
	for known.removed {
		known.mu.Unlock()
		known = c.of(address)
		known.mu.Lock()
	}
	return known
}

// begin counts a request to address as in flight, in known unless that was removed. It returns the count.
func (c *counts) begin(known *count, address string, at time.Duration) *count {
	known = c.locked(known, address)
	defer known.mu.Unlock()
	known.advance(at)
	known.inFlight++
	return known
}

// errors returns how many requests ended so since the counts were taken last.
func (c *counts) errors() (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, known := range c.endpoints {
		known.mu.Lock()
		n += known.tally.Errors
		known.mu.Unlock()
	}
	return n
}

// take returns the counts since they were taken last, and when that was. Counts of endpoints without a request are
// removed.
func (c *counts) take() (since time.Duration, taken []tally) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := now()
	since, c.since = c.since, at
	for address, known := range c.endpoints {
		known.mu.Lock()
		known.advance(at)
		t := known.tally
		if t.Requests > 0 || t.InFlight > 0 {
			taken = append(taken, t)
			known.tally = tally{Address: address}
		} else if known.inFlight == 0 {
			known.removed = true
			delete(c.endpoints, address)
		}
		known.mu.Unlock()
	}
	return since, taken
}

// giveBack adds counts that could not be sent to the next report, unless they are too old.
func (c *counts) giveBack(since time.Duration, taken []tally) {
	if now()-since > reportAge {
		return
	}
	for _, t := range taken {
		known := c.locked(c.of(t.Address), t.Address)
		known.tally.Requests += t.Requests
		known.tally.Errors += t.Errors
		known.tally.Cancelled += t.Cancelled
		known.tally.InFlight += t.InFlight
		known.tally.Latency += t.Latency
		known.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = min(c.since, since)
}
