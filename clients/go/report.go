package lbdclient

import (
	"context"
	"net/http"
	"time"
)

const (
	// reportEndpoints is the number of endpoints in a report, at most.
	reportEndpoints = 1000
	// Bounds of lbd for the interval of a report.
	minInterval, maxInterval = 100 * time.Millisecond, 5 * time.Minute
)

// report is the body of POST /v1/reports.
type report struct {
	Reporter string          `json:"reporter"`
	Interval string          `json:"interval"`
	Clusters []clusterReport `json:"clusters"`
}

type clusterReport struct {
	Cluster   string  `json:"cluster"`
	Endpoints []tally `json:"endpoints"`
}

// startReports starts the goroutine that reports, unless it runs.
func (c *Client) startReports() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.reporting {
		return
	}
	c.reporting = true
	c.work.Go(func() {
		for sleep(c.ctx, c.config.ReportInterval) {
			c.report(c.reports)
		}
	})
}

// report sends what was counted since the last report. What could not be sent is in the next one.
func (c *Client) report(ctx context.Context) {
	for name, known := range *c.clusters.Load() {
		since, taken := known.counts.take()
		interval := min(max(now()-since, minInterval), maxInterval)
		for len(taken) > 0 {
			part := taken[:min(len(taken), reportEndpoints)]
			taken = taken[len(part):]
			err := c.api.do(ctx, call{
				method: http.MethodPost,
				path:   "/v1/reports",
				body: report{
					Reporter: c.reporter,
					Interval: milliseconds(interval),
					Clusters: []clusterReport{{Cluster: name, Endpoints: part}},
				},
				cluster: name,
				timeout: callTimeout,
			}, &struct{}{})
			if err != nil {
				known.counts.giveBack(since, part)
			}
		}
	}
}
