package lbdclient

import (
	"context"
	"net/http"
	"time"
)

const (
	// tellPause is the time for which connects that failed are collected.
	tellPause = 50 * time.Millisecond
	// A cluster with so many errors is reported after earlyInterval already.
	earlyErrors, earlyInterval = 5, time.Second
	// reportEndpoints is the number of endpoints in a report, at most.
	reportEndpoints = 1000
	// Bounds of lbd for the interval of a report.
	minInterval, maxInterval = 100 * time.Millisecond, 5 * time.Minute
)

// report is the body of POST /v1/reports.
type report struct {
	Reporter string          `json:"reporter"`
	Interval string          `json:"interval,omitempty"`
	Clusters []clusterReport `json:"clusters"`
}

type clusterReport struct {
	Cluster   string  `json:"cluster"`
	Endpoints []tally `json:"endpoints"`
}

// unreachable has lbd told that a connect has failed.
func (c *Client) unreachable(cluster, address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.failures) == reportEndpoints {
		return
	}
	if c.failures == nil {
		c.failures = map[failure]int64{}
		c.work.Go(c.tell)
	}
	c.failures[failure{cluster, address}]++
}

// failure is what connects failed to.
type failure struct{ cluster, address string }

// tell reports connects that failed, until there are no more.
func (c *Client) tell() {
	for {
		sleep(c.ctx, tellPause)
		c.mu.Lock()
		failed := c.failures
		if c.failures = nil; len(failed) > 0 && c.ctx.Err() == nil {
			c.failures = map[failure]int64{}
		}
		c.mu.Unlock()
		if len(failed) == 0 || c.ctx.Err() != nil {
			return
		}
		byCluster := map[string][]tally{}
		for f, n := range failed {
			byCluster[f.cluster] = append(byCluster[f.cluster], tally{Address: f.address, ConnectFailures: n})
		}
		body := report{Reporter: c.reporter}
		for name, endpoints := range byCluster {
			body.Clusters = append(body.Clusters, clusterReport{Cluster: name, Endpoints: endpoints})
		}
		// What lbd does not hear now would come too late.
		_ = c.api.do(c.ctx, call{method: http.MethodPost, path: "/v1/reports", body: body, timeout: callTimeout}, &struct{}{})
	}
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
		pause := min(c.config.ReportInterval, earlyInterval)
		for reported := now(); sleep(c.ctx, pause); {
			early := now()-reported < c.config.ReportInterval-pause/2
			c.report(c.reports, early)
			if !early {
				reported = now()
			}
		}
	})
}

// report sends what was counted since the last report; early, only of clusters with some errors. What could not be sent
// is in the next one.
func (c *Client) report(ctx context.Context, early bool) {
	for name, known := range *c.clusters.Load() {
		if early && known.counts.errors() < earlyErrors {
			continue
		}
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
