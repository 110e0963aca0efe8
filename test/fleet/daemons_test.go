package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	limitOfAll = 100
	leaseTTL   = 2 * time.Second
	// callersOfEach is how many requests one replica may have to admit.
	callersOfEach = 160
	// demandOfAll is how many callers there are at a time.
	demandOfAll = 170
)

// load is callers of the replicas of a fleet, and upstreams that count their requests.
type load struct {
	fleet  *fleet
	client *http.Client
	server upstream
	wants  [replicas]atomic.Int64
	stop   context.CancelFunc
	ended  sync.WaitGroup
	// picks and refused count what replicas have answered.
	picks, refused, failed atomic.Int64
}

// startLoad pushes a cluster with a limit of the fleet, and starts callers.
func startLoad(t *testing.T, f *fleet) *load {
	t.Helper()
	l := &load{fleet: f, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callersOfEach, Proxy: nil}}}
	var endpoints []string
	for range 2 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		noError(t, err)
		s := &http.Server{Handler: &l.server}
		go func() { _ = s.Serve(listener) }()
		t.Cleanup(func() { _ = s.Close() })
		host, port, _ := net.SplitHostPort(listener.Addr().String())
		endpoints = append(endpoints, fmt.Sprintf(`{"endpoint":{"address":{"socket_address":{"address":%q,"port_value":%s}}}}`, host, port))
	}
	config := fmt.Sprintf(`{"type":"EDS","circuit_breakers":{"thresholds":[{"max_requests":%d}]},"metadata":{"filter_metadata":{"lbd":{"limit_scope":"fleet"}}}}`, limitOfAll)
	for path, body := range map[string]string{"config": config, "endpoints": `{"endpoints":[{"lb_endpoints":[` + strings.Join(endpoints, ",") + `]}]}`} {
		status, answer := l.call(t.Context(), http.MethodPut, f.replicas[0].url+"/v1/clusters/orders/"+path, body)
		if status != http.StatusOK && status != http.StatusCreated {
			t.Fatalf("push %s: %d %s", path, status, answer)
		}
	}
	for _, r := range f.replicas {
		until(t, r.name+" has the limit", func() bool { return strings.Contains(l.state(r), `"joined":true`) })
	}
	ctx, stop := context.WithCancel(t.Context())
	l.stop = stop
	for i, r := range f.replicas {
		for n := range int64(callersOfEach) {
			l.ended.Go(func() {
				for ctx.Err() == nil {
					if n >= l.wants[i].Load() || !l.request(ctx, r.url) {
						time.Sleep(30*time.Millisecond + rand.N(30*time.Millisecond))
					}
				}
			})
		}
	}
	t.Cleanup(func() { stop(); l.ended.Wait(); l.client.CloseIdleConnections() })
	return l
}

func (l *load) state(r *process) string {
	_, body := l.call(context.Background(), http.MethodGet, r.url+"/v1/clusters/orders?endpoints=false", "")
	return body
}

// call returns the status and the body of an answer; 0 without one.
func (l *load) call(ctx context.Context, method, url, body string) (int, string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	if strings.HasPrefix(body, "{") {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := l.client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(b)
}

// request takes a lease, sends a request to its endpoint, and ends the lease. It counts the ttl from before
// it asks for the lease, and ends its request with it.
func (l *load) request(ctx context.Context, url string) bool {
	end := time.Now().Add(leaseTTL)
	status, body := l.call(ctx, http.MethodPost, url+"/pick?cluster=orders&wait=0s&ttl="+leaseTTL.String(), "")
	switch status {
	case http.StatusCreated:
		l.picks.Add(1)
	case 0:
		l.failed.Add(1)
		return false
	default:
		l.refused.Add(1)
		return false
	}
	var p struct {
		Address string
		Lease   struct{ ID string }
	}
	if err := json.NewDecoder(bytes.NewReader([]byte(body))).Decode(&p); err != nil {
		return false
	}
	if hold := 200*time.Millisecond + rand.N(600*time.Millisecond); time.Until(end) > hold {
		l.call(ctx, http.MethodGet, "http://"+p.Address+"/?hold="+hold.String(), "")
	}
	l.call(context.WithoutCancel(ctx), http.MethodPost, url+"/v1/leases/"+p.Lease.ID+"/done", "")
	return true
}

// ServeHTTP serves for as long as the request says.
func (u *upstream) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	hold, _ := time.ParseDuration(r.URL.Query().Get("hold"))
	u.serve(hold)
}

// move gives the demand to other replicas: most of it to one or two of them.
func (l *load) move() {
	left := int64(demandOfAll)
	order := rand.Perm(replicas)
	for k, i := range order {
		n := min(left, callersOfEach)
		if k < len(order)-1 {
			n = rand.Int64N(n + 1)
		}
		l.wants[i].Store(n)
		left -= n
	}
	if left > 0 { // the last one has room for no more
		l.wants[order[0]].Add(min(left, callersOfEach-l.wants[order[0]].Load()))
	}
}

// used returns the mean number of requests in flight during a time.
func (l *load) used(d time.Duration) float64 {
	sum, samples := int64(0), int64(0)
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		sum += l.server.inFlight.Load()
		samples++
	}
	return float64(sum) / float64(samples)
}

// shares returns the state of the limit at each replica.
func (l *load) shares() string {
	var b strings.Builder
	for i, r := range l.fleet.replicas {
		var s struct {
			Breaker struct {
				InFlight int64 `json:"in_flight"`
				Fleet    any   `json:"fleet"`
			} `json:"circuit_breaker"`
		}
		_ = json.Unmarshal([]byte(l.state(r)), &s)
		fmt.Fprintf(&b, "\n%s: wants %d, in flight %d, %v", r.name, l.wants[i].Load(), s.Breaker.InFlight, s.Breaker.Fleet)
	}
	return b.String()
}

// TestLimitOfDaemons: 100 requests over 5 daemons and 3 members of etcd. The demand moves, and daemons are
// stopped for longer than their sessions live, killed, restarted, cut off, and have slow connections, as
// members of etcd are killed. The upstreams never count more than 100 requests, and at least 95 on average
// while nothing is broken. LBD_FLEET_TIME sets how long it lasts.
func TestLimitOfDaemons(t *testing.T) {
	f := newFleetOf(t, buildDaemon(t, ""), true)
	l := startLoad(t, f)
	used := 0.0
	const rounds = 4
	for range rounds { // nothing is broken
		l.move()
		time.Sleep(2 * time.Second)
		n := l.used(2 * time.Second)
		if used += n; n < 0.95*limitOfAll {
			t.Logf("%.1f in flight:%s", n, l.shares())
		}
	}
	t.Logf("%.1f of %d in flight while nothing is broken; %d picks, %d refused", used/rounds, limitOfAll, l.picks.Load(), l.refused.Load())
	if used/rounds < 0.95*limitOfAll {
		t.Errorf("%.1f of %d are used", used/rounds, limitOfAll)
	}
	faults := map[string]int{}
	for end := time.Now().Add(duration(t)); time.Now().Before(end); {
		faults[f.breakOne(t, l.move)]++
		l.move()
		time.Sleep(rand.N(3 * time.Second))
	}
	l.stop()
	l.ended.Wait()
	t.Logf("%d in flight at most; %d picks, %d refused, %d without an answer; faults %v", l.server.most.Load(), l.picks.Load(), l.refused.Load(), l.failed.Load(), faults)
	if most := l.server.most.Load(); most > limitOfAll {
		t.Errorf("%d in flight, more than %d", most, limitOfAll)
	}
}

// breakOne causes one fault, and ends it. It returns its kind.
func (f *fleet) breakOne(t *testing.T, move func()) string {
	t.Helper()
	r := f.replicas[rand.IntN(len(f.replicas))]
	wait := func(least, most int) {
		for range least + rand.IntN(most-least+1) {
			time.Sleep(time.Second)
			move()
		}
	}
	switch rand.IntN(7) {
	case 0:
		r.signal(syscall.SIGSTOP)
		wait(12, 20)
		r.signal(syscall.SIGCONT)
		return "stopped beyond the session"
	case 1:
		r.signal(syscall.SIGSTOP)
		wait(1, 4)
		r.signal(syscall.SIGCONT)
		return "stopped for a moment"
	case 2:
		r.kill()
		wait(0, 3)
		r.start(t)
		return "killed"
	case 3:
		r.signal(syscall.SIGTERM)
		_ = r.running.Wait()
		r.start(t)
		return "restarted"
	case 4:
		for _, p := range r.links {
			p.Stop()
		}
		wait(2, 18)
		for _, p := range r.links {
			if err := p.Start(); err != nil {
				t.Errorf("connect %s again: %v", r.name, err)
			}
		}
		return "cut off"
	case 5:
		slow(t, r, 100+rand.IntN(900))
		wait(3, 8)
		for _, p := range r.links {
			p.Toxics.ResetToxics(t.Context())
		}
		return "slow"
	default:
		m := f.members[rand.IntN(len(f.members))]
		m.kill()
		wait(1, 5)
		m.start(t)
		return "member killed"
	}
}

// slow delays what etcd answers to a replica.
func slow(t *testing.T, r *process, milliseconds int) {
	t.Helper()
	for _, p := range r.links {
		body := fmt.Sprintf(`{"type":"latency","stream":"downstream","attributes":{"latency":%d,"jitter":%d}}`, milliseconds, milliseconds/2)
		if _, err := p.Toxics.AddToxicJson(strings.NewReader(body)); err != nil {
			t.Errorf("slow down %s: %v", r.name, err)
		}
	}
}

// TestLimitMutant: the test above finds a daemon that uses a larger share before it is published.
func TestLimitMutant(t *testing.T) {
	if !long() {
		t.Skip("set LBD_TEST_LONG=1")
	}
	mutant := overlay(t, [3]string{"../../service/fleet/share/machine.go", "max(0, min(share, m.plan.share, m.limit))", "max(share-share, min(m.plan.share, m.limit))"})
	f := newFleetOf(t, buildDaemon(t, mutant), true)
	l := startLoad(t, f)
	for run := range 10 {
		for range 5 {
			l.move()
			time.Sleep(time.Second)
		}
		if most := l.server.most.Load(); most > limitOfAll {
			t.Logf("found in run %d: %d in flight", run+1, most)
			return
		}
		slow(t, f.replicas[run%replicas], 200)
	}
	t.Errorf("not found in 10 runs: %d in flight at most", l.server.most.Load())
}
