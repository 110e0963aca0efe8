package api_test

import (
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
)

func TestClusterHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startWith(t, "10.0.0.7:8080")
		const path = "/v1/clusters/orders/history"
		const none = `{"cluster":"orders","target":"","step":"10s","segments":[]}`
		d.expect(path, none)
		for range 20 {
			d.must(200, "GET", "/pick?cluster=orders", "")
			time.Sleep(time.Second)
		}
		const two = `"segments":[{"start":"T","priority":[0,0],"picks":{"ok":[1,1]},"drops":[],"breakers":[{"in_flight":[0,0],"max_requests":[1024,1024]}]}]}` + "\n"
		const one = `"segments":[{"start":"T","priority":[0],"picks":{"ok":[10]},"drops":[],"breakers":[{"in_flight":[0],"max_requests":[1024]}]}]}` + "\n"
		since := url.QueryEscape(time.Now().Add(-2 * time.Second).Format(time.RFC3339))
		for query, want := range map[string]string{
			"?since=2s":              `{"cluster":"orders","target":"","step":"1s",` + two,
			"?since=" + since:        `{"cluster":"orders","target":"","step":"1s",` + two,
			"?since=10s&step=10s":    `{"cluster":"orders","target":"","step":"10s",` + one,
			"?since=0s":              `{"cluster":"orders","target":"","step":"1s","segments":[]}` + "\n",
			"?since=2s&target=":      "",
			"?since=-2s":             "",
			"?since=yesterday":       "",
			"?step=5s":               "",
			"?until=2s":              "",
			"?target=xds:///unknown": "404",
		} {
			switch want {
			case "":
				d.refused(fault.InvalidArgument, "GET", path+query, "")
			case "404":
				d.refused(fault.UnknownTarget, "GET", path+query, "")
			default:
				d.expect(path+query, want)
			}
		}
		d.refused(fault.UnknownCluster, "GET", "/v1/clusters/unknown/history", "")
	})
}
