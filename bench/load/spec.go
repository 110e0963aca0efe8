// Package load generates HTTP/1.1 requests and measures how long they take. One thread
// and epoll serve all connections, so that the generator costs little beside what it
// measures.
//
// An open loop ([Spec].Rate) starts requests at times that do not depend on earlier
// responses. A request that is due while every connection is busy waits for one, and the
// wait is part of its latency: there is no coordinated omission.
package load

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// Spec describes a load.
type Spec struct {
	Targets []Target `json:"targets"`
	// Script are the requests of one iteration, in order.
	Script      []Request `json:"script"`
	Connections int       `json:"connections"` // to each target
	// Rate is the number of iterations per second, at random times (Poisson); 0 is a
	// closed loop: each connection starts the next iteration when the last one is done.
	Rate float64 `json:"rate"`
	// Warmup is not measured.
	Warmup   time.Duration `json:"warmup"`
	Duration time.Duration `json:"duration"`
	// Reconnect makes a new connection for every request.
	Reconnect bool `json:"reconnect"`
	// CPUOf are the processes whose CPU time is measured.
	CPUOf []int `json:"cpu_of"`
}

// Target is a server.
type Target struct {
	Network string `json:"network"` // tcp or unix
	Address string `json:"address"`
}

// Request is one request of a script.
type Request struct {
	Target int    `json:"target"`
	Raw    []byte `json:"raw"`
}

// LeaseID in a request is replaced by the lease ID in the last response.
const LeaseID = "{lease}"

// Get returns a GET request.
func Get(path string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
}

// Post returns a POST request with a JSON body, which may be empty.
func Post(path, body string) []byte {
	kind := ""
	if body != "" {
		kind = "Content-Type: application/json\r\n"
	}
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s", path, kind, len(body), body)
}

// Result is what a load measured.
type Result struct {
	Iterations uint64        `json:"iterations"`
	Elapsed    time.Duration `json:"elapsed"`
	CPU        time.Duration `json:"cpu"` // of the processes of CPUOf
	// Latencies of iterations, in nanoseconds. That of an open loop begins when the
	// iteration was due if it had to wait for a connection, else when it was sent.
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	// Late is the 99th percentile of the generator's own delay, between the time at which
	// an iteration was due and the time at which it was sent on a free connection.
	Late float64 `json:"late"`
}

// PerSecond returns the iterations per second.
func (r Result) PerSecond() float64 { return float64(r.Iterations) / r.Elapsed.Seconds() }

// PerCPUSecond returns the iterations per CPU second of the measured processes.
func (r Result) PerCPUSecond() float64 { return float64(r.Iterations) / r.CPU.Seconds() }

// Limits of a load, against mistakes.
const (
	maxConnections = 4096
	maxDuration    = 10 * time.Minute
)

func (s *Spec) check() error {
	switch {
	case len(s.Targets) == 0 || len(s.Script) == 0:
		return errors.New("a load needs a target and a request")
	case s.Connections < 1 || s.Connections > maxConnections:
		return fmt.Errorf("connections: %d is not from 1 to %d", s.Connections, maxConnections)
	case s.Duration <= 0 || s.Duration+s.Warmup > maxDuration:
		return fmt.Errorf("duration: %s is not positive, or longer than %s", s.Duration, maxDuration)
	case s.Rate < 0:
		return fmt.Errorf("rate: %v is negative", s.Rate)
	}
	for i, r := range s.Script {
		if r.Target < 0 || r.Target >= len(s.Targets) {
			return fmt.Errorf("request %d: there is no target %d", i, r.Target)
		}
		if len(r.Raw) == 0 {
			return fmt.Errorf("request %d is empty", i)
		}
	}
	return nil
}

// Run generates a load and returns what it measured. Any response that is not a success
// is an error.
func Run(spec Spec) (Result, error) {
	if err := spec.check(); err != nil {
		return Result{}, err
	}
	return run(spec)
}

// leaseID returns the lease ID in a response to a pick.
func leaseID(body []byte) ([]byte, error) {
	_, rest, found := bytes.Cut(body, []byte(`"id":"`))
	if !found {
		return nil, fmt.Errorf("the response has no lease: %.200s", body)
	}
	id, _, found := bytes.Cut(rest, []byte(`"`))
	if !found {
		return nil, fmt.Errorf("the lease ID does not end: %.200s", body)
	}
	return id, nil
}
