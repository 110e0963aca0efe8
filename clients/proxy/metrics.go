package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxClusters is the number of clusters with metrics of their own. Names are input.
const maxClusters = 1000

// metrics are those of the proxy, in the text format of Prometheus.
type metrics struct {
	connections, inFlight, tunnels, tunnelsTotal, refused atomic.Int64

	away atomic.Bool // lbd

	mu       sync.Mutex
	clusters map[string]*clusterMetrics
}

// seconds are the upper bounds of the buckets of durations.
var seconds = [...]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60}

// clusterMetrics are those of one cluster.
type clusterMetrics struct {
	attempts, request, response atomic.Int64 // response and request are bytes

	mu       sync.Mutex
	outcomes map[string]int64
	buckets  [len(seconds)]int64
	sum      time.Duration
}

// of returns the metrics of a cluster; those of "" if it has none, and lbd is not known to know it.
func (m *metrics) of(cluster string, known bool) *clusterMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.clusters == nil {
		m.clusters = map[string]*clusterMetrics{"": {outcomes: map[string]int64{}}}
	}
	if m.clusters[cluster] == nil && known && len(m.clusters) <= maxClusters {
		m.clusters[cluster] = &clusterMetrics{outcomes: map[string]int64{}}
	}
	return cmp.Or(m.clusters[cluster], m.clusters[""])
}

// ended counts a request.
func (c *clusterMetrics) ended(outcome string, took time.Duration, attempts int64) {
	c.attempts.Add(attempts)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcomes[outcome]++
	c.sum += took
	for i, bound := range seconds {
		if took.Seconds() <= bound {
			c.buckets[i]++
			break
		}
	}
}

var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// write writes all metrics. tokens returns what is left of the budget of retries of a cluster.
func (m *metrics) write(w *bytes.Buffer, tokens func(cluster string) float64) {
	family := func(name, kind, help string) {
		fmt.Fprintf(w, "# HELP lbd_proxy_%s %s\n# TYPE lbd_proxy_%[1]s %[3]s\n", name, help, kind)
	}
	single := func(name, kind, help string, value int64) {
		family(name, kind, help)
		fmt.Fprintf(w, "lbd_proxy_%s %d\n", name, value)
	}
	single("connections", "gauge", "Open connections of callers, without those of tunnels.", m.connections.Load())
	single("connections_refused_total", "counter", "Connections of callers that were closed because of --max-connections.", m.refused.Load())
	single("requests_in_flight", "gauge", "Requests that are not answered completely, without tunnels.", m.inFlight.Load())
	single("tunnels", "gauge", "Open tunnels and WebSockets.", m.tunnels.Load())
	single("tunnels_total", "counter", "Tunnels and WebSockets that were opened.", m.tunnelsTotal.Load())
	away := int64(0)
	if m.away.Load() {
		away = 1
	}
	single("daemon_unreachable", "gauge", "1 while lbd does not answer: requests use the last picks, for --stale-for.", away)
	family("build_info", "gauge", "1, with the version.")
	fmt.Fprintf(w, "lbd_proxy_build_info{version=%q} 1\n", version)

	m.mu.Lock()
	clusters := maps.Clone(m.clusters)
	m.mu.Unlock()
	names := slices.Sorted(maps.Keys(clusters))
	each := func(name, kind, help string, write func(c *clusterMetrics, label string)) {
		family(name, kind, help)
		for _, cluster := range names {
			write(clusters[cluster], `cluster="`+quoted.Replace(cluster)+`"`)
		}
	}
	each("requests_total", "counter", "Requests by outcome: the class of the endpoint's status, or the code of the proxy's own answer.",
		func(c *clusterMetrics, label string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, outcome := range slices.Sorted(maps.Keys(c.outcomes)) {
				fmt.Fprintf(w, "lbd_proxy_requests_total{%s,outcome=%q} %d\n", label, outcome, c.outcomes[outcome])
			}
		})
	each("request_seconds", "histogram", "Time from the headers of a request to the end of its response; to the connection, for a tunnel.",
		func(c *clusterMetrics, label string) { c.writeSeconds(w, label) })
	each("attempts_total", "counter", "Tries of requests at endpoints; more than requests if some are sent again.",
		func(c *clusterMetrics, label string) {
			fmt.Fprintf(w, "lbd_proxy_attempts_total{%s} %d\n", label, c.attempts.Load())
		})
	each("bytes_total", "counter", "Bytes of bodies and tunnels.", func(c *clusterMetrics, label string) {
		fmt.Fprintf(w, "lbd_proxy_bytes_total{%s,direction=\"request\"} %d\n", label, c.request.Load())
		fmt.Fprintf(w, "lbd_proxy_bytes_total{%s,direction=\"response\"} %d\n", label, c.response.Load())
	})
	family("retry_tokens", "gauge", "What is left of the budget of retries; there are none at half of --max-tokens or less.")
	for _, cluster := range names {
		if cluster != "" {
			fmt.Fprintf(w, "lbd_proxy_retry_tokens{cluster=\"%s\"} %g\n", quoted.Replace(cluster), tokens(cluster))
		}
	}
}

func (c *clusterMetrics) writeSeconds(w *bytes.Buffer, label string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	below, all := int64(0), int64(0)
	for i, bound := range seconds {
		below += c.buckets[i]
		fmt.Fprintf(w, "lbd_proxy_request_seconds_bucket{%s,le=\"%g\"} %d\n", label, bound, below)
	}
	for _, n := range c.outcomes {
		all += n
	}
	fmt.Fprintf(w, "lbd_proxy_request_seconds_bucket{%s,le=\"+Inf\"} %d\n", label, all)
	fmt.Fprintf(w, "lbd_proxy_request_seconds_sum{%s} %g\n", label, c.sum.Seconds())
	fmt.Fprintf(w, "lbd_proxy_request_seconds_count{%s} %d\n", label, all)
}
