package fleet

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestWriteSkew: of two changes that are permitted each alone, and that leave a cluster without a usable endpoint
// together, two daemons never make both, also not at the same moment, beside 12 pushers.
func TestWriteSkew(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	url := "etcd://" + m.client + "/lbd"
	daemons := []*daemon{startDaemon(t, url), startDaemon(t, url)}
	for _, d := range daemons {
		d.untilReady(t, http.StatusOK)
	}
	const resource = "/v1/clusters/orders"
	endpoints := func(hosts ...string) string {
		for i, host := range hosts {
			hosts[i] = fmt.Sprintf(`{"endpoint":{"address":{"socket_address":{"address":"127.0.0.%s","port_value":80}}}}`, host)
		}
		return `{"endpoints":[{"lb_endpoints":[` + strings.Join(hosts, ",") + `]}]}`
	}
	type change struct{ method, path, body string }
	drain := func(host string) change {
		return change{http.MethodPut, resource + "/overlays/" + host, `{"kind":"drain","endpoint":"127.0.0.` + host + `:80"}`}
	}
	pairs := [][2]change{
		{drain("1"), {http.MethodPut, resource + "/endpoints", endpoints("1")}},
		{drain("1"), drain("2")},
		{drain("1"), {http.MethodDelete, resource + "/endpoints/127.0.0.2:80", ""}},
		{drain("3"), {http.MethodPut, resource + "/config", `{"type":"EDS","eds_cluster_config":{"service_name":"other"}}`}},
	}
	do := func(d *daemon, c change, want ...int) {
		status, text := d.request(c.method, c.path, c.body)
		if !slices.Contains(want, status) {
			t.Fatalf("%s %s: %d %s", c.method, c.path, status, text)
		}
	}
	do(daemons[0], change{http.MethodPut, "/v1/clusters/other/endpoints", endpoints("3")}, http.StatusCreated)

	ctx, end := context.WithCancel(t.Context())
	var pushers sync.WaitGroup
	defer pushers.Wait()
	defer end()
	for i := range 12 {
		pushers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if status, text := daemons[i%2].push(fmt.Sprint("c", i), n); status != http.StatusOK && status != http.StatusCreated {
					t.Errorf("%d %s", status, text)
					return
				}
			}
		})
	}
	rounds := 60
	if long() {
		rounds = 1000
	}
	made := make([]int, len(pairs))
	for n := range rounds {
		do(daemons[n%2], change{http.MethodPut, resource + "/endpoints", endpoints("1", "2")}, http.StatusOK, http.StatusCreated)
		var both sync.WaitGroup
		var status [2]int
		for i, c := range pairs[n%len(pairs)] {
			both.Go(func() { status[i], _ = daemons[i].request(c.method, c.path, c.body) })
		}
		both.Wait()
		for _, s := range status {
			switch s {
			case http.StatusOK, http.StatusCreated:
				made[n%len(pairs)]++
			case http.StatusConflict:
			default:
				t.Fatalf("pair %d: %d", n%len(pairs), status)
			}
		}
		for _, c := range []change{
			{http.MethodDelete, resource + "/overlays/1", ""},
			{http.MethodDelete, resource + "/overlays/2", ""},
			{http.MethodDelete, resource + "/overlays/3", ""},
			{http.MethodDelete, resource + "/config", ""},
		} {
			do(daemons[n%2], c, http.StatusOK, http.StatusNotFound)
		}
	}
	for i, n := range made {
		if want := rounds / len(pairs); n != want {
			t.Errorf("pair %d: %d of %d changes were made, want one of each two", i, n, 2*want)
		}
	}
}
