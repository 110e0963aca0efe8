package attack_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// container is the memory of the shipped Kubernetes deployment.
var container = options{limit: 512 << 20, env: []string{"GOMEMLIMIT=358MiB"}}

// flood runs an attack against a daemon in the container, with args, while another client picks.
func flood(t *testing.T, prepare, attack func(d *daemon), args ...string) {
	t.Helper()
	o := container
	o.args = args
	d := start(t, o)
	d.push(1, 10)
	if prepare != nil {
		prepare(d)
	}
	stop := bystanders(t, d)
	attack(d)
	stop()
	d.alive()
	if status, body := d.do(client(bystander), http.MethodGet, "/readyz", ""); status != http.StatusOK {
		t.Errorf("after the attack: %d %s", status, body)
	}
}

// 60 pushes of 60 MiB that do not end.
func TestHalfSentPushes(t *testing.T) {
	flood(t, nil, func(d *daemon) {
		block := []byte(strings.Repeat(" ", 1<<20))
		var sent, cut atomic.Int64
		eachOf(60, 60, func(int) {
			c := d.connect()
			_, _ = fmt.Fprintf(c, "PUT /v1/snapshot HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", 60<<20)
			for range 59 {
				_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
				n, err := c.Write(block)
				sent.Add(int64(n))
				if err != nil {
					cut.Add(1)
					return
				}
			}
		})
		t.Logf("%d MiB sent; %d of 60 connections were not read to the end", sent.Load()>>20, cut.Load())
		time.Sleep(3 * time.Second) // hold them
	})
}

// 100 requests for a snapshot of 90,000 endpoints, whose responses are not read.
func TestUnreadSnapshots(t *testing.T) {
	flood(t, func(d *daemon) { d.push(90, 1000) }, func(d *daemon) {
		for range 100 {
			_, _ = fmt.Fprintf(d.connect(), "GET /v1/snapshot HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n")
		}
		time.Sleep(10 * time.Second)
	})
}

// What takes most memory for each byte of a request: answers about 90,000 endpoints in localities with long names.
func TestLargeAnswers(t *testing.T) {
	flood(t, func(d *daemon) {
		for version := range 2 { // two changes
			var localities []string
			for i := range 9000 {
				endpoint := fmt.Sprintf(`{"endpoint":{"address":{"socket_address":{"address":"10.%d.%d.%%d","port_value":80}}}}`, version<<6|i>>8, i&255)
				var endpoints []string
				for n := range 10 {
					endpoints = append(endpoints, fmt.Sprintf(endpoint, n))
				}
				localities = append(localities, fmt.Sprintf(`{"locality":{"region":"%0200d","zone":"%0200d"},"load_balancing_weight":1,"lb_endpoints":[%s]}`, i, i, strings.Join(endpoints, ",")))
			}
			body := `{"cluster_name":"large","endpoints":[` + strings.Join(localities, ",") + `]}`
			if status, answer := d.do(client(bystander), http.MethodPut, "/v1/clusters/large/endpoints", body); status >= 300 {
				t.Fatalf("%d %s", status, answer)
			}
		}
	}, func(d *daemon) {
		const large = "/v1/clusters/large"
		paths := []string{"/metrics/endpoints", large, large + "/endpoints", "/v1/snapshot", "/v1/history/2/diff?resource=ClusterLoadAssignment/large"}
		statuses := newCounter()
		eachOf(60, 12, func(i int) {
			format := []string{"application/json", "application/yaml"}[i%2]
			status, _ := d.do(client(attacker), http.MethodGet, paths[i%len(paths)], "", "Accept", format)
			statuses.add(status)
		})
		t.Log(statuses)
	})
}

// 100,000 idempotency keys, each with a request of 25 KiB.
func TestIdempotencyKeys(t *testing.T) {
	flood(t, withoutBreaker(t), func(d *daemon) {
		c := client(attacker)
		large := strings.Repeat("&exclude="+strings.Repeat("x", 240)+":80", 100)
		statuses := newCounter()
		eachOf(100_000, 16, func(i int) {
			status, _ := d.do(c, http.MethodPost, "/pick?cluster=orders&ttl=1s"+large, "", "Idempotency-Key", fmt.Sprint(i))
			statuses.add(status)
		})
		t.Log(statuses)
	})
}

// withoutBreaker raises the limit of the circuit breaker above what an attack holds.
func withoutBreaker(t *testing.T) func(d *daemon) {
	return func(d *daemon) {
		config := `{"name":"orders","type":"EDS","eds_cluster_config":{"eds_config":{"ads":{}}},"circuit_breakers":{"thresholds":[{"max_requests":2000000}]}}`
		if status, body := d.do(client(bystander), http.MethodPut, "/v1/clusters/orders/config", config); status >= 300 {
			t.Fatalf("%d %s", status, body)
		}
	}
}

// A million leases that end together.
func TestLeasesEndTogether(t *testing.T) {
	flood(t, withoutBreaker(t), func(d *daemon) {
		c := client(attacker)
		statuses := newCounter()
		begin := time.Now()
		eachOf(1000, 8, func(int) { // so that all end when the last one does
			left := max(time.Second, 45*time.Second-time.Since(begin)).Round(time.Millisecond)
			status, _ := d.do(c, http.MethodPost, fmt.Sprintf("/pick?cluster=orders&n=1000&ttl=%v", left), "")
			statuses.add(status)
		})
		t.Log(statuses)
		time.Sleep(max(0, 55*time.Second-time.Since(begin)))
	})
}

// 14,000 connections whose picks wait for an index: more than the memory has room for.
func TestManyWaitingPicks(t *testing.T) {
	const waiting = 14_000
	needsDescriptors(t, 20_000) // for lbd, half of them would be for connections
	flood(t, nil, func(d *daemon) {
		statuses := newCounter()
		eachOf(waiting, 100, func(int) {
			c := d.connect()
			_, _ = fmt.Fprint(c, "GET /v1/pick?cluster=orders&min_index=999999999&wait=30s HTTP/1.1\r\nHost: localhost\r\n\r\n")
			go func() {
				a, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					statuses.add(0)
					return
				}
				statuses.add(a.StatusCode)
				_ = a.Body.Close()
			}()
		})
		time.Sleep(15 * time.Second)
		if got := statuses.String(); !strings.Contains(got, "429: ") {
			t.Errorf("all wait: %s", got)
		}
	})
}

// 2,000 watches that are not read.
func TestUnreadStreams(t *testing.T) {
	needsDescriptors(t, 5000)
	flood(t, func(d *daemon) { d.push(20, 100) }, func(d *daemon) {
		for range 2000 {
			_, _ = fmt.Fprint(d.connect(), "GET /v1/clusters/orders/watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
		}
		for range 20 {
			d.push(1, 100)
			d.push(1, 99)
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// 10,000 watches that are read: as many as the default allows with enough connections.
func TestManyWatchers(t *testing.T) {
	const watchers = 10_000
	needsDescriptors(t, 20_000) // of which the daemon takes three quarters for connections
	flood(t, nil, func(d *daemon) {
		statuses := newCounter()
		for range watchers {
			c := d.connect()
			_, _ = fmt.Fprint(c, "GET /v1/clusters/orders/watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
			go func() {
				r := bufio.NewReader(c)
				a, err := http.ReadResponse(r, nil)
				if err != nil {
					statuses.add(0)
					return
				}
				statuses.add(a.StatusCode)
				_, _ = io.Copy(io.Discard, a.Body)
				_ = a.Body.Close()
			}()
		}
		for range 20 {
			d.push(1, 11)
			d.push(1, 10)
			time.Sleep(200 * time.Millisecond)
		}
		if got := statuses.String(); got != fmt.Sprintf("responses by status: 200: %d", watchers) {
			t.Errorf("statuses %s", got)
		}
	}, fmt.Sprint("--max-streams=", watchers), "--max-connections=12000")
}
