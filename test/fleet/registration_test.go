package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	registeredEndpoints = 20
	registeredTTL       = 3 * time.Second
)

// registrar renews endpoints of orders at one of several daemons, and at another one if that fails.
type registrar struct {
	daemons []*daemon
	first   atomic.Int64 // the daemon that is asked first
	count   atomic.Int64 // the endpoints that are renewed
	// renewed and lost count endpoints, refused counts requests without a daemon that renews.
	renewed, lost, refused atomic.Int64
}

// run renews three times within each ttl.
func (r *registrar) run(end chan struct{}) {
	for {
		select {
		case <-end:
			return
		case <-time.After(registeredTTL / 3):
		}
		var list []string
		for i := range r.count.Load() {
			list = append(list, fmt.Sprintf(`{"cluster":"orders","address":"10.0.0.%d:80"}`, i))
		}
		body := `{"endpoints":[` + strings.Join(list, ",") + `]}`
		if first := int(r.first.Load()); !r.renew(r.daemons[first], body) && !r.renew(r.daemons[1-first], body) {
			r.refused.Add(1)
		}
	}
}

// renew reports whether a daemon has renewed all that it has.
func (r *registrar) renew(d *daemon, body string) bool {
	client := http.Client{Timeout: registeredTTL / 6}
	res, err := client.Post(d.url+"/v1/renewals", "application/json", strings.NewReader(body))
	if err != nil {
		return false
	}
	defer res.Body.Close()
	var out struct {
		Endpoints []struct{ Problem *struct{ Code string } }
	}
	if json.NewDecoder(res.Body).Decode(&out) != nil || res.StatusCode != http.StatusOK {
		return false
	}
	for _, e := range out.Endpoints {
		switch {
		case e.Problem == nil:
			r.renewed.Add(1)
		case e.Problem.Code == "unknown_endpoint":
			r.lost.Add(1)
		default:
			return false
		}
	}
	return true
}

// registered returns the pushed endpoints of orders that a daemon has.
func (d *daemon) registered() int {
	_, text := d.request(http.MethodGet, "/v1/clusters/orders/endpoints", "")
	return strings.Count(text, "port_value")
}

// expired returns how many endpoints a daemon has removed.
func (d *daemon) expired() string {
	_, text := d.request(http.MethodGet, "/metrics", "")
	return regexp.MustCompile(`(?m)^lbd_expired_endpoints_total (\d+)$`).FindString(text)
}

// TestRegistrations: endpoints are registered at one daemon or the other, and renewed at either, while one of
// them is killed, stopped, or etcd is away, each for longer than endpoints stay without renewals. None is lost, although
// all may be removed at once. One that is not renewed any more is removed, and only one daemon removes it.
func TestRegistrations(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	url := "etcd://" + m.client + "/lbd"
	daemons := []*daemon{startDaemon(t, url, "--max-expired=1"), startDaemon(t, url, "--max-expired=1")}
	for _, d := range daemons {
		d.untilReady(t, http.StatusOK)
	}
	r := &registrar{daemons: daemons}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() { defer close(ended); r.run(end) }()
	for i := range registeredEndpoints {
		path := fmt.Sprintf("/v1/clusters/orders/endpoints/10.0.0.%d:80?ttl=%v", i, registeredTTL)
		if status, text := daemons[i%2].request(http.MethodPut, path, ""); status != http.StatusCreated {
			t.Fatalf("%d %s", status, text)
		}
	}
	for i, d := range daemons { // each has all of them before one is renewed there
		until(t, fmt.Sprintf("daemon %d has all", i), func() bool { return d.registered() == registeredEndpoints })
	}
	r.count.Store(registeredEndpoints)

	const long = 3 * registeredTTL // they stay for two of them
	check := func(phase string) {
		t.Helper()
		n := r.renewed.Load()
		until(t, "renewals "+phase, func() bool { return r.renewed.Load() >= n+2*registeredEndpoints || r.lost.Load() > 0 })
		for i, d := range daemons {
			if n := d.registered(); n != registeredEndpoints || r.lost.Load() > 0 {
				t.Errorf("%s: daemon %d has %d of %d endpoints, lost %d", phase, i, n, registeredEndpoints, r.lost.Load())
			}
		}
	}
	time.Sleep(long)
	check("at the first")
	r.first.Store(1)
	time.Sleep(long)
	check("at the second")

	daemons[1].kill()
	time.Sleep(long)
	daemons[1].start(t)
	daemons[1].untilReady(t, http.StatusOK)
	check("after a daemon was killed")

	m.stop()
	refused := r.refused.Load()
	time.Sleep(long)
	until(t, "a renewal is refused", func() bool { return r.refused.Load() > refused })
	m.start(t)
	for _, d := range daemons {
		d.untilReady(t, http.StatusOK)
	}
	check("after etcd was away")

	daemons[1].signal(syscall.SIGSTOP)
	time.Sleep(long)
	daemons[1].signal(syscall.SIGCONT)
	check("after a daemon was stopped")
	time.Sleep(long)
	check("long after that")

	if text := daemons[0].expired() + daemons[1].expired(); strings.Count(text, " 0") != 2 {
		t.Errorf("expired: %s", text)
	}
	r.count.Store(registeredEndpoints - 1)
	for i, d := range daemons {
		until(t, fmt.Sprintf("daemon %d has one less", i), func() bool { return d.registered() == registeredEndpoints-1 })
	}
	time.Sleep(long)
	for i, d := range daemons {
		_, text := d.history(t, 0)
		if n := d.registered(); n != registeredEndpoints-1 || strings.Count(text, "not renewed: 10.0.0.19:80") != 1 || strings.Count(text, "not renewed") != 1 {
			t.Errorf("daemon %d has %d endpoints: %s", i, n, text)
		}
	}
	if text := daemons[0].expired() + daemons[1].expired(); strings.Count(text, " 0") != 1 || strings.Count(text, " 1") != 1 {
		t.Errorf("expired: %s", text)
	}
	close(end)
	<-ended
	t.Logf("%d renewals, %d requests that no daemon answered", r.renewed.Load(), r.refused.Load())
}
