package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

const twoEndpoints = `{"endpoints":[{"lb_endpoints":[` +
	`{"endpoint":{"address":{"socket_address":{"address":"127.0.0.1","port_value":80}}}},` +
	`{"endpoint":{"address":{"socket_address":{"address":"127.0.0.2","port_value":80}}}}]}]}`

// picked returns the addresses that some picks of orders have, in order.
func (d *daemon) picked() []string {
	var out []string
	for range 6 {
		out = append(out, d.pick("orders"))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (d *daemon) putOverlay(t *testing.T, id, body string) (index uint64) {
	t.Helper()
	status, text := d.request(http.MethodPut, "/v1/clusters/orders/overlays/"+id, body)
	var answer struct{ Index uint64 }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusCreated && status != http.StatusOK {
		t.Fatalf("overlay: %d %s", status, text)
	}
	return answer.Index
}

// TestOverlays: an overlay that one daemon takes is in effect at another one as soon as that serves its
// index. It ends everywhere by itself, with one change in the history; while etcd is away, too, and then
// the store loses it when etcd is back.
func TestOverlays(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	url := "etcd://" + m.client + "/lbd"
	daemons := []*daemon{startDaemon(t, url), startDaemon(t, url)}
	for _, d := range daemons {
		d.untilReady(t, http.StatusOK)
	}
	if status, text := daemons[0].request(http.MethodPut, "/v1/clusters/orders/endpoints", twoEndpoints); status != http.StatusCreated {
		t.Fatalf("%d %s", status, text)
	}
	both, one := []string{"127.0.0.1:80", "127.0.0.2:80"}, []string{"127.0.0.2:80"}
	const drain = `{"kind":"drain","endpoint":"127.0.0.1:80"`

	index := daemons[0].putOverlay(t, "one", drain+`}`)
	if status, text := daemons[1].request(http.MethodGet, fmt.Sprintf("/pick?cluster=orders&wait=10s&min_index=%d", index), ""); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	for i, d := range daemons {
		if got := d.picked(); !slices.Equal(got, one) {
			t.Errorf("daemon %d picks %v", i, got)
		}
	}
	daemons[1].putOverlay(t, "one", drain+`,"expires":"1s"}`)
	for i, d := range daemons {
		until(t, fmt.Sprintf("the drain ends at daemon %d", i), func() bool { return slices.Equal(d.picked(), both) })
	}
	removed := func(d *daemon, n int) bool {
		_, text := d.history(t, 0)
		return strings.Count(text, "127.0.0.1:80: it has expired") == n
	}
	for i, d := range daemons {
		until(t, fmt.Sprintf("the end is in the history of daemon %d once", i), func() bool { return removed(d, 1) })
	}

	index = daemons[0].putOverlay(t, "two", drain+`,"expires":"3s"}`)
	if status, text := daemons[1].request(http.MethodGet, fmt.Sprintf("/pick?cluster=orders&wait=10s&min_index=%d", index), ""); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	m.stop()
	for i, d := range daemons {
		until(t, fmt.Sprintf("the drain ends at daemon %d without etcd", i), func() bool { return slices.Equal(d.picked(), both) })
	}
	m.start(t)
	for i, d := range daemons {
		until(t, fmt.Sprintf("the end is in the history of daemon %d once", i), func() bool { return removed(d, 2) })
	}
	if list, text := daemons[0].history(t, index+1); len(list.Changes) != 6 {
		t.Errorf("the history has %d changes: %s", len(list.Changes), text)
	}
}
