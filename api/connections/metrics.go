package connections

import "github.com/prometheus/client_golang/prometheus"

var (
	connectionsDesc = prometheus.NewDesc("lbd_http_connections",
		"Connections of the API's callers, by state: active while a request is under way, else idle.", []string{"state"}, nil)
	maxDesc = prometheus.NewDesc("lbd_http_max_connections",
		"Connections that the API's callers may have (--max-connections).", nil, nil)
	evictedDesc = prometheus.NewDesc("lbd_http_connections_evicted_total",
		"Idle connections that were closed to make room for new ones.", nil, nil)
	refusedDesc = prometheus.NewDesc("lbd_http_connections_refused_total",
		"New connections that were answered with 503 because there was no room and none was idle.", nil, nil)
)

// Describe is [prometheus.Collector]'s.
func (l *Limiter) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connectionsDesc, maxDesc, evictedDesc, refusedDesc} {
		out <- d
	}
}

// Collect is [prometheus.Collector]'s.
func (l *Limiter) Collect(out chan<- prometheus.Metric) {
	idle, active := l.count()
	out <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(idle), "idle")
	out <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(active), "active")
	out <- prometheus.MustNewConstMetric(maxDesc, prometheus.GaugeValue, float64(l.options.Max))
	out <- prometheus.MustNewConstMetric(evictedDesc, prometheus.CounterValue, float64(l.evicted.Load()))
	out <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(l.refused.Load()))
}

// count counts the connections.
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
