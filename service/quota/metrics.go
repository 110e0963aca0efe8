package quota

import "github.com/prometheus/client_golang/prometheus"

var (
	usedDesc     = prometheus.NewDesc("lbd_quota_used", "Use of a resource by all API callers, to compare with lbd_quota_limit.", []string{"resource"}, nil)
	limitDesc    = prometheus.NewDesc("lbd_quota_limit", "Limit of a resource for all API callers together.", []string{"resource"}, nil)
	rejectedDesc = prometheus.NewDesc("lbd_quota_rejected_total",
		"Requests rejected because a limit was reached, by scope: caller (its own limit) or total (that of all callers).", []string{"resource", "scope"}, nil)
	throttledDesc = prometheus.NewDesc("lbd_quota_rate_limited_total", "Requests rejected because their caller exceeded its request rate.", nil, nil)
	accountsDesc  = prometheus.NewDesc("lbd_quota_callers", "Callers whose use is counted.", nil, nil)
)

// Describe sends the descriptors of the metrics. It is for prometheus.Collector.
func (m *Manager) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{usedDesc, limitDesc, rejectedDesc, throttledDesc, accountsDesc} {
		ch <- d
	}
}

// Collect sends the metrics. It is for prometheus.Collector.
func (m *Manager) Collect(ch chan<- prometheus.Metric) {
	for r := range Resources {
		if m.totals[r] == 0 {
			continue
		}
		name := r.String()
		ch <- prometheus.MustNewConstMetric(usedDesc, prometheus.GaugeValue, float64(m.used[r].Load()), name)
		ch <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, float64(m.totals[r]), name)
		ch <- prometheus.MustNewConstMetric(rejectedDesc, prometheus.CounterValue, float64(m.rejected[r].own.Load()), name, "caller")
		ch <- prometheus.MustNewConstMetric(rejectedDesc, prometheus.CounterValue, float64(m.rejected[r].total.Load()), name, "total")
	}
	ch <- prometheus.MustNewConstMetric(throttledDesc, prometheus.CounterValue, float64(m.throttled.Load()))
	m.mu.Lock()
	n := m.anonymous.number + m.known.number
	m.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(accountsDesc, prometheus.GaugeValue, float64(n))
}
