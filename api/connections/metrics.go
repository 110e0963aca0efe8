package connections

import "github.com/prometheus/client_golang/prometheus"

var (
	connectionsDesc = prometheus.NewDesc("lbd_http_connections",
		"Open API connections, by state: active during a request, else idle.", []string{"state"}, nil)
	maxDesc = prometheus.NewDesc("lbd_http_max_connections",
		"Maximum number of API connections (--max-connections).", nil, nil)
	evictedDesc = prometheus.NewDesc("lbd_http_connections_evicted_total",
		"Idle API connections closed at the limit, to admit new ones.", nil, nil)
	refusedDesc = prometheus.NewDesc("lbd_http_connections_refused_total",
		"New API connections rejected with 503 because the limit was reached and none was idle.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (l *Limiter) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connectionsDesc, maxDesc, evictedDesc, refusedDesc} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (l *Limiter) Collect(out chan<- prometheus.Metric) {
	idle, active := l.count()
	out <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(idle), "idle")
	out <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(active), "active")
	out <- prometheus.MustNewConstMetric(maxDesc, prometheus.GaugeValue, float64(l.options.Max))
	out <- prometheus.MustNewConstMetric(evictedDesc, prometheus.CounterValue, float64(l.evicted.Load()))
	out <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(l.refused.Load()))
}

// count returns the number of connections.
func (l *Limiter) count() (idle, active int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if c.idle.Load() > 0 {
			idle++
		} else {
			active++
		}
	}
	return idle, active
}
