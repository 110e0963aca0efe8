package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/reports"
)

func TestReport(t *testing.T) {
	d := start(t, nil)
	d.must(http.StatusCreated, "PUT", orders+"/10.0.0.7:8080", "")
	const body = `{"reporter":"web-7/4711","interval":"5s","clusters":[` +
		`{"cluster":"orders","endpoints":[{"address":"10.0.0.7:8080","requests":120,"errors":3,"cancelled":1,"in_flight_seconds":8.5,"latency_seconds":8.1},` +
		`{"address":"10.0.0.9:8080","requests":1}]},{"cluster":"other","endpoints":[]}]}`
	for range 2 {
		a := decode[api.ReportAnswer](t, d.must(200, "POST", "/v1/reports", body).Body.Bytes())
		if a.Endpoints != 1 || len(a.Problems) != 2 || a.Problems[0].Problem.Code != fault.UnknownEndpoint || strings.Join(a.Problems[0].Addresses, " ") != "10.0.0.9:8080" ||
			a.Problems[1].Cluster != "other" || a.Problems[1].Problem.Code != fault.UnknownCluster {
			t.Errorf("%+v", a)
		}
	}
	now := strings.NewReplacer(`"interval":"5s",`, "", `"requests":120,"errors":3,"cancelled":1,"in_flight_seconds":8.5,"latency_seconds":8.1`, `"connect_failures":7`, `"requests":1`, `"connect_failures":1`).Replace(body)
	a := decode[api.ReportAnswer](t, d.must(200, "POST", "/v1/reports", now).Body.Bytes())
	if a.Endpoints != 1 || len(a.Problems) != 2 || a.Problems[0].Problem.Code != fault.UnknownEndpoint {
		t.Errorf("%+v", a)
	}
	metrics := d.must(200, "GET", "/metrics", "").Body.String()
	for _, want := range []string{
		`lbd_reported_requests_total{cluster="orders",outcome="success"} 234`, `lbd_reported_requests_total{cluster="orders",outcome="error"} 6`,
		`lbd_reported_requests_total{cluster="orders",outcome="cancelled"} 2`, `lbd_reported_request_seconds_total{cluster="orders"} 16.2`,
		`lbd_reported_connect_failures_total{cluster="orders"} 8`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	d.must(200, "GET", "/pick?cluster=orders&n=3&reports=true", "")
	d.refusedWith("reports is only valid", fault.InvalidArgument, "POST", "/pick?cluster=orders&reports=true", "")
}

func TestReportsAreRefused(t *testing.T) {
	d := start(t, nil)
	of := func(endpoint string) string {
		return `{"reporter":"a","interval":"1s","clusters":[{"cluster":"orders","endpoints":[` + endpoint + `]}]}`
	}
	for body, says := range map[string]string{
		"": "reporter", `{}`: "reporter", `{"interval":"1s"}`: "reporter", `{"interval":"1ms","reporter":"a"}`: "interval", `{"interval":"6m","reporter":"a"}`: "interval",
		`{"interval":"1s","reporter":"` + strings.Repeat("a", api.MaxOwnerBytes+1) + `"}`: "reporter",
		`{"interval":"1s","reporter":"a"}`:                                                "clusters is required",
		`{"interval":"1s","reporter":"a","clusters":[{}]}`:                                "clusters[0]: cluster is empty",
		of(`{}`):                                                                                  "clusters[0].endpoints[0]: address is empty",
		of(`{"address":"a:1","requests":-1}`):                                                     "requests must be",
		of(`{"address":"a:1","requests":1000001}`):                                                "requests must be",
		of(`{"address":"a:1","requests":1,"errors":2}`):                                           "parts of requests",
		of(`{"address":"a:1","requests":1,"errors":1,"cancelled":1}`):                             "parts of requests",
		of(`{"address":"a:1","requests":1,"errors":-1,"cancelled":1}`):                            "parts of requests",
		of(`{"address":"a:1","in_flight_seconds":-1}`):                                            "in_flight_seconds",
		of(`{"address":"a:1","in_flight_seconds":1e300}`):                                         "in_flight_seconds",
		of(`{"address":"a:1","latency_seconds":1e300}`):                                           "latency_seconds",
		of(`{"address":"a:1","latency_seconds":-1}`):                                              "latency_seconds",
		of(`{"address":"a:1","connect_failures":-1}`):                                             "connect_failures must be",
		of(`{"address":"a:1","connect_failures":1000001}`):                                        "connect_failures must be",
		strings.Replace(of(`{"address":"a:1","requests":1}`), `"interval":"1s",`, "", 1):          "interval is required",
		strings.Replace(of(`{"address":"a:1","in_flight_seconds":1}`), `"interval":"1s",`, "", 1): "interval is required",
		of(`{"address":"a:1","status":1}`):                                                        "unknown field",
		of(strings.Repeat(`{"address":"a:1"},`, reports.MaxEndpoints) + `{"address":"a:1"}`):      fmt.Sprintf("at most %d endpoints", reports.MaxEndpoints),
	} {
		d.refusedWith(says, fault.InvalidArgument, "POST", "/v1/reports", body)
	}
	d.refused(fault.InvalidArgument, "POST", "/v1/reports?cluster=orders", of(""))
	d.refused(fault.TooLarge, "POST", "/v1/reports", strings.Repeat(" ", api.MaxReportBytes+1))
	c := startWithCallers(t, "127.0.0.1:8080")
	w := c.as("restricted", "POST", "/v1/reports", `{"reporter":"a","interval":"1s","clusters":[{"cluster":"secret","endpoints":[]},{"cluster":"orders","target":"secret","endpoints":[]},{"cluster":"orders","endpoints":[]}]}`)
	is := decode[api.ReportAnswer](t, w.Body.Bytes()).Problems
	if len(is) < 2 || is[0].Problem.Code != "permission_denied" || is[1].Problem.Code != "permission_denied" || len(is) > 2 && is[2].Problem.Code == "permission_denied" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
