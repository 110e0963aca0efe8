package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
)

func TestClusterList(t *testing.T) {
	d := start(t, nil)
	d.expect("/v1/clusters", `{"clusters":[]}`)
	for _, name := range []string{"b", "a%2F2", "a%2F1", "a"} {
		d.must(http.StatusCreated, "PUT", "/v1/clusters/"+name+"/endpoints", assignment("", "10.0.0.7:8080"))
	}
	for query, want := range map[string]string{
		"":                          "a a/1 a/2 b",
		"?prefix=a/":                "a/1 a/2",
		"?prefix=a&limit=2":         "a a/1 next a/1",
		"?prefix=a&limit=2&after=a": "a/1 a/2",
		"?after=a%2F2":              "b",
		"?limit=4":                  "a a/1 a/2 b",
	} {
		list := decode[api.ClusterList](t, d.must(200, "GET", "/v1/clusters"+query, "").Body.Bytes())
		var names []string
		for _, c := range list.Clusters {
			names = append(names, c.Name)
		}
		if list.Next != "" {
			names = append(names, "next", list.Next)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
	for _, query := range []string{"?limit=0", "?limit=10001", "?prefix=", "?x=1"} {
		d.refused(fault.InvalidArgument, "GET", "/v1/clusters"+query, "")
	}
	const want = `{"clusters":[{"name":"b","state":"READY","priority_in_use":0,` +
		`"endpoints":{"ready":1,"connecting":0,"idle":0,"transient_failure":0,"ejected":0,"unhealthy":0,"total":1},` +
		`"circuit_breaker":{"in_flight":0,"max_requests":1024,"limit_from":"default","open":false,"rejected":0},` +
		`"source":"push","updated_at":"T","stale":false,"generation":G}]}`
	d.expect("/v1/clusters?prefix=b", want)
}

// Who follows next sees every cluster once, and those that stay also where
// others go meanwhile, the one that next names too.
func TestClusterListIsReadInPages(t *testing.T) {
	d := start(t, nil)
	names := []string{"a", "a b", "a/1", "a0", "b", "grün", "z%"}
	for _, name := range names {
		d.must(http.StatusCreated, "PUT", "/v1/clusters/"+url.PathEscape(name)+"/endpoints", assignment("", "10.0.0.7:8080"))
	}
	var got []string
	query := url.Values{"limit": {"2"}}
	for range names {
		list := decode[api.ClusterList](t, d.must(200, "GET", "/v1/clusters?"+query.Encode(), "").Body.Bytes())
		for _, c := range list.Clusters {
			got = append(got, c.Name)
		}
		if list.Next == "" {
			break
		}
		query.Set("after", list.Next)
		if list.Next == "a0" {
			d.must(200, "DELETE", "/v1/clusters/a0/endpoints", "")
		}
	}
	if !slices.Equal(got, names) {
		t.Errorf("got %q, want %q", got, names)
	}
	for query, want := range map[string]string{"prefix=a&after=a0": "", "prefix=gr%C3%BC": "grün", "prefix=b&after=a&limit=1": "b"} {
		list := decode[api.ClusterList](t, d.must(200, "GET", "/v1/clusters?"+query, "").Body.Bytes())
		if list.Next != "" || len(list.Clusters) > 1 || want != "" && (len(list.Clusters) == 0 || list.Clusters[0].Name != want) {
			t.Errorf("%s: %+v, want %q", query, list, want)
		}
	}
}

func TestClusterState(t *testing.T) {
	d := start(t, nil)
	d.must(http.StatusCreated, "PUT", orders, assignment("throttle, drop_percentage: {numerator: 5}", "10.0.0.7:8080", "10.0.0.8:8080"))
	w := d.must(200, "GET", "/v1/clusters/orders", "")
	if s := decode[observe.ClusterState](t, w.Body.Bytes()); len(s.Priorities) != 1 || len(s.Priorities[0].Localities[0].Endpoints) != 2 {
		t.Errorf("state: %s", w.Body)
	}
	w = d.must(200, "GET", "/v1/clusters/orders?endpoints=false", "")
	if s := decode[observe.ClusterState](t, w.Body.Bytes()); len(s.Priorities) != 1 || s.Priorities[0].Localities[0].Endpoints != nil {
		t.Errorf("state without endpoints: %s", w.Body)
	}
	d.must(http.StatusCreated, "PUT", "/v1/clusters/homeless/config", `{"type":"EDS"}`)
	d.must(200, "GET", "/v1/clusters/homeless", "")
	d.must(http.StatusCreated, "PUT", "/v1/clusters/all/config", aggregate("orders", "homeless"))
	w = d.must(200, "GET", "/v1/clusters/all", "")
	if s := decode[observe.ClusterState](t, w.Body.Bytes()); len(s.Leaves) != 2 || s.Leaves[0].Name != "orders" || s.Breaker != nil {
		t.Errorf("state of an aggregate: %s", w.Body)
	}
	d.refused(fault.UnknownCluster, "GET", "/v1/clusters/unknown", "")
	d.refused(fault.UnknownCluster, "GET", "/v1/clusters/unknown?index=1", "")
	for _, query := range []string{"?wait=1s", "?index=now", "?index=1&wait=6m", "?endpoints=2", "?target=", "?tree=x"} {
		d.refused(fault.InvalidArgument, "GET", "/v1/clusters/orders"+query, "")
	}
	d.refused(fault.UnknownTarget, "GET", "/v1/clusters/orders?target=x", "")
}

// TestClusterStateOfABrokenCluster: an aggregate without a leaf that can serve says
// why, and a cluster that cannot be used nothing of what it would be.
func TestClusterStateOfABrokenCluster(t *testing.T) {
	d := start(t, nil)
	d.must(http.StatusCreated, "PUT", "/v1/clusters/all/config", aggregate("unknown"))
	w := d.must(200, "GET", "/v1/clusters/all", "")
	const (
		begin = `{"name":"all","state":"TRANSIENT_FAILURE","priority_in_use":-1,` +
			`"trouble":{"fails":"picks","cause":"%s","since":"T","checks":"/v1/doctor?cluster=all&dial=true"},` +
			`"endpoints":{"ready":0,"connecting":0,"idle":0,"transient_failure":0,"ejected":0,"unhealthy":0,"total":0},` +
			`"source":"push","updated_at":"T","stale":false,"generation":G,"state_since":"T",`
		why     = `Cluster/unknown is not known`
		skipped = `"why":"skipped: ` + why + `","state":"TRANSIENT_FAILURE",`
		none    = `every leaf of the aggregate is skipped: leaf unknown: ` + why
		loop    = `aggregate cluster graph has no leaf clusters`
		want    = begin + `"error":"` + none + `","config_source":"push",` +
			`"type":"AGGREGATE","leaves":[{"name":"unknown","in_use":false,` + skipped + `"skipped":"` + why + `","drops":[]}],"age":"A","drops":[],` +
			`"priorities":[{"priority":0,"cluster":"unknown","in_use":false,` + skipped + `"started":false,"error":"` + why + `","localities":[]}],"leases":0}`
		itself = begin + `"error":"` + loop + `","config_source":"push","age":"A","drops":[],"priorities":[],"leases":0}`
	)
	if got := still(w.Body.String()); got != fmt.Sprintf(want, none)+"\n" {
		t.Errorf("got  %swant %s", got, fmt.Sprintf(want, none))
	}
	d.must(http.StatusOK, "PUT", "/v1/clusters/all/config", aggregate("all"))
	d.expect("/v1/clusters/all", fmt.Sprintf(itself, loop))
	if list := d.must(200, "GET", "/v1/clusters", "").Body.String(); strings.Contains(list, "circuit_breaker") {
		t.Errorf("in the list: %s", list)
	}
}

func TestClusterTimeline(t *testing.T) {
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
