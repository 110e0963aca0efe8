package attack_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// counter counts statuses of responses; 0 is none.
type counter struct {
	mu sync.Mutex
	n  map[int]int
}

func newCounter() *counter { return &counter{n: make(map[int]int)} }

func (c *counter) add(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[status]++
}

func (c *counter) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(c.n)) {
		parts = append(parts, fmt.Sprintf("%d: %d", status, c.n[status]))
	}
	return "responses by status: " + strings.Join(parts, ", ")
}

// 10,000 connections without a request.
func TestIdleConnections(t *testing.T) {
	needsDescriptors(t, 12_000)
	flood(t, nil, func(d *daemon) {
		for range 10_000 {
			d.connect()
		}
		time.Sleep(2 * time.Second)
	})
}

// 5,000 requests whose headers do not end.
func TestSlowHeaders(t *testing.T) {
	needsDescriptors(t, 7000)
	flood(t, nil, func(d *daemon) {
		var all []io.Writer
		for range 5000 {
			c := d.connect()
			_, _ = fmt.Fprint(c, "GET /v1/clusters HTTP/1.1\r\nHost: localhost\r\n")
			all = append(all, c)
		}
		for range 5 {
			for _, c := range all {
				_, _ = fmt.Fprint(c, "X: y\r\n")
			}
			time.Sleep(time.Second)
		}
	})
}

// Two requests that hold all of a cluster's breaker for ten minutes: one call ends
// their leases.
func TestLockOut(t *testing.T) {
	d := start(t, options{})
	d.push(1, 10)
	bad, operator := client(attacker), client(bystander)
	for range 2 {
		if status, body := d.do(bad, http.MethodPost, "/pick?cluster=orders&n=1000&ttl=10m&owner=batch-job", ""); status != http.StatusCreated {
			t.Fatalf("%d %s", status, body)
		}
	}
	status, body := d.do(operator, http.MethodPost, "/pick?cluster=orders&ttl=1s", "")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "batch-job") {
		t.Fatalf("the breaker is not full, or the response does not name the holder: %d %s", status, body)
	}
	if status, body = d.do(operator, http.MethodDelete, "/v1/leases?cluster=orders&owner=batch-job", ""); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	if status, body = d.do(operator, http.MethodPost, "/pick?cluster=orders&ttl=1s", ""); status != http.StatusCreated {
		t.Errorf("after the leases were ended: %d %s", status, body)
	}
}
