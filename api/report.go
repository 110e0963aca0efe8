package api

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/reports"
)

// MaxReportBytes limits the body of a report.
const MaxReportBytes = 1 << 20

// RequestReport is what a caller has counted of its requests within an interval.
type RequestReport struct {
	// Reporter is who counted, as the caller calls itself: unique for each process. Its next report for a
	// cluster replaces the requests in flight of this one.
	Reporter string `json:"reporter" example:"web-7/4711" maxLength:"128"`
	// Interval is the time that the report is about, 100ms to 5m. A report without it has only connect
	// failures, and does not replace the requests in flight.
	Interval string            `json:"interval,omitempty" example:"5s"`
	Clusters []ReportedCluster `json:"clusters"`
}

// ReportedCluster is the part of a report about one cluster.
type ReportedCluster struct {
	Cluster string `json:"cluster" example:"orders"`
	// Target is the xds target that was asked for the picks; absent for picks of a cluster.
	Target    string             `json:"target,omitempty" example:"xds:///shop"`
	Endpoints []ReportedEndpoint `json:"endpoints"`
}

// ReportedEndpoint has the requests to one endpoint.
type ReportedEndpoint struct {
	Address string `json:"address" example:"10.0.0.7:8080"`
	// Requests is how many ended within the interval, with any outcome.
	Requests int64 `json:"requests,omitempty" example:"120" minimum:"0" maximum:"1000000"`
	// Errors and Cancelled are parts of requests.
	Errors    int64 `json:"errors,omitempty" example:"3" minimum:"0"`
	Cancelled int64 `json:"cancelled,omitempty" example:"0" minimum:"0"`
	// ConnectFailures is how many connects failed, of which no request was sent. They are no part of
	// requests. lbd checks at once whether it can connect to the endpoint.
	ConnectFailures int64 `json:"connect_failures,omitempty" example:"0" minimum:"0" maximum:"1000000"`
	// InFlightSeconds is the sum, over all requests, of the time they were in flight within the interval:
	// divided by the interval, the mean number of requests in flight.
	InFlightSeconds float64 `json:"in_flight_seconds,omitempty" example:"8.5" minimum:"0"`
	// LatencySeconds is the sum of the durations of requests.
	LatencySeconds float64 `json:"latency_seconds,omitempty" example:"8.1" minimum:"0"`
}

// ReportAnswer is the response to a report.
type ReportAnswer struct {
	// Endpoints is how many endpoints of the report have counted.
	Endpoints int `json:"endpoints"`
	// Problems has the parts of the report that have not, or not for the policies.
	Problems []ReportProblem `json:"problems"`
}

// ReportProblem is a part of a report that was not used.
type ReportProblem struct {
	Cluster string `json:"cluster" example:"orders"`
	Target  string `json:"target,omitempty" example:"xds:///shop"`
	// Addresses are those that are no endpoints of the cluster any more, with code unknown_endpoint; absent
	// if the problem is about the cluster.
	Addresses []string `json:"addresses,omitempty"`
	Problem   Problem  `json:"problem"`
}

// @Summary     Report requests without leases
// @Description How the requests to the endpoints of a batch of picks ended, and how many are in flight: for outlier detection, least_request, load reports and metrics, without a lease for each. Connect failures can be reported at once, without an interval: lbd checks these endpoints now. Fetch the picks with reports=true. Each cluster is reported independently: the answer is 200 with a problem for each part that was not used.
// @Param       report body RequestReport true "at most 1000 endpoints"
// @Success     200 {object} ReportAnswer "what was used"
// @Router      /v1/reports [post]
func (h *handlers) postReport(w *recorder, r *http.Request) error {
	if err := readParameters(r); err != nil {
		return err
	}
	var body RequestReport
	if err := readJSON(w, r, MaxReportBytes, &body); err != nil {
		return err
	}
	report, err := body.read()
	if err != nil {
		return err
	}
	report.Reporter.Identity = w.caller.Name
	report.Account = w.account
	out := ReportAnswer{Problems: []ReportProblem{}}
	for i := range report.Clusters {
		c := &report.Clusters[i]
		var unknown []string
		err := cmp.Or(mayUseCluster(w, c.Cluster), mayUseTarget(w, c.Target))
		if err == nil {
			unknown, err = h.Report(report, c)
		}
		if err == nil {
			out.Endpoints += len(c.Endpoints) - len(unknown)
			if len(unknown) == 0 {
				continue
			}
			err = fault.Errorf(fault.UnknownEndpoint, "addresses that picks of %q do not use now: %d", c.Cluster, len(unknown))
		}
		out.Problems = append(out.Problems, ReportProblem{c.Cluster, c.Target, unknown, problemFor(r, err)})
	}
	return reply(w, out, nil)
}

// read checks a report.
func (b *RequestReport) read() (*reports.Report, error) {
	wrong := func(format string, args ...any) error {
		return fault.Errorf(fault.InvalidArgument, "body: "+format, args...)
	}
	out := &reports.Report{Reporter: ledger.Owner{Name: b.Reporter}, Clusters: make([]reports.Cluster, len(b.Clusters))}
	var err error
	if b.Interval != "" {
		if out.Interval, err = time.ParseDuration(b.Interval); err != nil || out.Interval < reports.MinInterval || out.Interval > reports.MaxInterval {
			return nil, wrong("interval: %q is not a duration of %v to %v", fault.Clip(b.Interval), reports.MinInterval, reports.MaxInterval)
		}
	}
	switch {
	case b.Reporter == "" || len(b.Reporter) > MaxOwnerBytes:
		return nil, wrong("reporter: must be 1 to %d bytes", MaxOwnerBytes)
	case b.Clusters == nil:
		return nil, wrong(`clusters is required: [{"cluster":…,"endpoints":[…]}…]`)
	}
	n := 0
	for i := range b.Clusters {
		c := &b.Clusters[i]
		if why := badName(c.Cluster); why != "" {
			return nil, wrong("clusters[%d]: cluster %s", i, why)
		}
		if why := badName(c.Target); c.Target != "" && why != "" {
			return nil, wrong("clusters[%d]: target %s", i, why)
		}
		if n += len(c.Endpoints); n > reports.MaxEndpoints {
			return nil, wrong("at most %d endpoints are allowed in one report", reports.MaxEndpoints)
		}
		to := &out.Clusters[i]
		*to = reports.Cluster{Cluster: c.Cluster, Target: c.Target, Endpoints: make([]reports.Endpoint, len(c.Endpoints))}
		for j := range c.Endpoints {
			if why := c.Endpoints[j].read(&to.Endpoints[j], out.Interval); why != "" {
				return nil, wrong("clusters[%d].endpoints[%d]: %s", i, j, why)
			}
		}
	}
	return out, nil
}

// read checks an endpoint, and returns what is wrong.
func (e *ReportedEndpoint) read(to *reports.Endpoint, interval time.Duration) (wrong string) {
	inFlight := 0.0
	if interval > 0 {
		inFlight = e.InFlightSeconds / interval.Seconds()
	}
	why := badName(e.Address)
	switch {
	case why != "":
		return "address " + why
	case interval == 0 && (e.Requests != 0 || e.InFlightSeconds != 0 || e.LatencySeconds != 0):
		return "interval is required for all but connect_failures"
	case e.ConnectFailures < 0 || e.ConnectFailures > reports.MaxRequests:
		return fmt.Sprintf("connect_failures must be 0 to %d", reports.MaxRequests)
	case e.Requests < 0 || e.Requests > reports.MaxRequests:
		return fmt.Sprintf("requests must be 0 to %d", reports.MaxRequests)
	case e.Errors < 0 || e.Cancelled < 0 || e.Errors > e.Requests || e.Cancelled > e.Requests-e.Errors:
		return "errors and cancelled must be parts of requests"
	case e.InFlightSeconds < 0 || inFlight > reports.MaxRequests:
		return fmt.Sprintf("in_flight_seconds must be 0 to %d for each second of the interval", reports.MaxRequests)
	case e.LatencySeconds < 0 || e.LatencySeconds > reports.MaxRequests*math.MaxUint16:
		return "latency_seconds is too large, or negative"
	}
	*to = reports.Endpoint{
		Address:  e.Address,
		Requests: uint32(e.Requests), Errors: uint32(e.Errors), Cancelled: uint32(e.Cancelled),
		ConnectFailures: uint32(e.ConnectFailures),
		InFlight:        inFlight, Latency: time.Duration(e.LatencySeconds * float64(time.Second)),
	}
	return ""
}
