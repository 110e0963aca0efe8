package lbdclient_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
)

func TestRequestsGoToAllEndpoints(t *testing.T) {
	d := lbdtest.Start(t)
	first, second := upstream(t, nil), upstream(t, nil)
	d.Push(t, "orders", "", first, second)
	for _, mode := range []lbdclient.Mode{lbdclient.ModeBatch, lbdclient.ModePick, lbdclient.ModeLease} {
		t.Run(string(mode), func(t *testing.T) {
			_, client := connect(t, lbdclient.Config{Address: d.Address, Mode: mode})
			seen := map[string]int{}
			for range 100 {
				seen[mustGet(t, client, "http://orders.lbd/")]++
			}
			if seen[first] < 40 || seen[second] < 40 {
				t.Errorf("requests by endpoint: %v", seen)
			}
		})
	}
}

// TestPriorityIsLost: lbd hears that the only endpoint of a priority is gone from the request that finds it, which goes
// to the next priority as soon as lbd does.
func TestPriorityIsLost(t *testing.T) {
	d := lbdtest.Start(t, "--connect=tcp")
	for _, mode := range []lbdclient.Mode{lbdclient.ModeBatch, lbdclient.ModePick, lbdclient.ModeLease} {
		t.Run(string(mode), func(t *testing.T) {
			first, second := httptest.NewServer(http.NotFoundHandler()), upstream(t, nil)
			defer first.Close()
			var localities []string
			for priority, address := range []string{first.Listener.Addr().String(), second} {
				_, port, _ := net.SplitHostPort(address)
				localities = append(localities, fmt.Sprintf(`{"priority":%d,"locality":{"zone":"%d"},"lb_endpoints":[{"endpoint":
					{"address":{"socket_address":{"address":"127.0.0.1","port_value":%s}}}}]}`, priority, priority, port))
			}
			name := "orders-" + string(mode)
			d.Call(t, http.MethodPut, "/v1/clusters/"+name+"/endpoints", `{"endpoints":[`+strings.Join(localities, ",")+`]}`)
			_, client := connect(t, lbdclient.Config{Address: d.Address, Mode: mode})
			target := "http://" + name + ".lbd/"
			if status, _, err := get(client, target); status != http.StatusNotFound {
				t.Fatal(status, err)
			}
			first.Close()
			if status, body, err := get(client, target); status != http.StatusOK || body != second {
				t.Error(status, body, err)
			}
		})
	}
}

func TestOtherHostsAreNotTouched(t *testing.T) {
	address := upstream(t, nil)
	_, client := connect(t, lbdclient.Config{Address: "unix:/nonexistent"})
	if body := mustGet(t, client, "http://"+address+"/"); body != address {
		t.Errorf("body %q", body)
	}
}

func TestHostsAreMapped(t *testing.T) {
	d := lbdtest.Start(t)
	address := upstream(t, nil)
	d.Push(t, "a/b c", "", address)
	_, client := connect(t, lbdclient.Config{Address: d.Address, Hosts: map[string]lbdclient.Host{"Shop.Example": {Cluster: "a/b c"}, "Orders.LBD": {Hash: "header:user"}}})
	d.Push(t, "orders", "", address)
	for _, target := range []string{"http://shop.example:8000/", "http://Shop.Example/", "http://ORDERS.lbd/", "http://user:password@orders.LBD:81/"} {
		if body := mustGet(t, client, target); body != address {
			t.Errorf("%s: body %q", target, body)
		}
	}
}

// TestUnknownNames: names that lbd does not know neither keep lbd busy, nor clusters from being used, which may be pushed
// later.
func TestUnknownNames(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", upstream(t, nil))
	client, sender := connect(t, lbdclient.Config{Address: d.Address})
	for i := range 1100 {
		if _, err := client.Pick(t.Context(), fmt.Sprint("later-", i)); !errors.Is(err, lbdclient.ErrUnknownCluster) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	lbdtest.Until(t, "no cluster is followed", func() bool { return followed() == 0 })
	mustGet(t, sender, "http://orders.lbd/")
	d.Push(t, "later-1099", "", upstream(t, nil))
	lbdtest.Until(t, "the cluster is known", func() bool {
		_, _, err := get(sender, "http://later-1099.lbd/")
		return err == nil
	})
}

// TestForgottenNames: clusters that are forgotten are no longer followed, also while lbd is unreachable.
func TestForgottenNames(t *testing.T) {
	client, _ := connect(t, lbdclient.Config{Address: "unix:/nowhere/lbd.sock"})
	for i := range 1010 {
		if _, err := client.Pick(t.Context(), fmt.Sprint(i)); !strings.Contains(fmt.Sprint(err), "/nowhere") {
			t.Fatalf("%d: %v", i, err)
		}
	}
	lbdtest.Until(t, "10 clusters are followed", func() bool { return followed() == 10 })
}

// followed returns how many clusters have a goroutine that follows them.
func followed() int {
	stacks := make([]byte, 16<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "(*cluster).run(")
}

func TestChangeOfClusterIsFollowed(t *testing.T) {
	d := lbdtest.Start(t)
	first, second := upstream(t, nil), upstream(t, nil)
	d.Push(t, "orders", "", first)
	_, client := connect(t, lbdclient.Config{Address: d.Address, MaxAge: time.Hour})
	if body := mustGet(t, client, "http://orders.lbd/"); body != first {
		t.Fatalf("body %q", body)
	}
	d.Push(t, "orders", "", second)
	lbdtest.Until(t, "requests go to the new endpoint", func() bool { return mustGet(t, client, "http://orders.lbd/") == second })
}

func TestRestartOfLBDIsSurvived(t *testing.T) {
	d := lbdtest.Start(t)
	first, second := upstream(t, nil), upstream(t, nil)
	d.Push(t, "orders", "", first)
	_, client := connect(t, lbdclient.Config{Address: d.Address, MaxAge: time.Hour})
	mustGet(t, client, "http://orders.lbd/")
	d.Stop()
	for range 100 {
		mustGet(t, client, "http://orders.lbd/")
	}
	if err := d.Restart(); err != nil {
		t.Fatal(err)
	}
	d.Push(t, "orders", "", second)
	lbdtest.Until(t, "requests go to the new endpoint", func() bool { return mustGet(t, client, "http://orders.lbd/") == second })
}

func TestLBDMayStartLater(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", upstream(t, nil))
	d.Stop()
	_, client := connect(t, lbdclient.Config{Address: d.Address})
	if _, _, err := get(client, "http://orders.lbd/"); !errors.Is(err, lbdclient.ErrUnavailable) {
		t.Fatalf("error %v", err)
	}
	if err := d.Restart(); err != nil {
		t.Fatal(err)
	}
	lbdtest.Until(t, "a request succeeds", func() bool { _, _, err := get(client, "http://orders.lbd/"); return err == nil })
}

func TestStaleBatch(t *testing.T) {
	d := lbdtest.Start(t)
	address, fallback := upstream(t, nil), upstream(t, nil)
	d.Push(t, "orders", "", address)
	tests := []struct {
		name   string
		config lbdclient.Config
		want   func(body string, err error) bool
	}{
		{"fails", lbdclient.Config{}, func(_ string, err error) bool {
			return errors.Is(err, lbdclient.ErrUnavailable) && kindOf(t, err).Code == ""
		}},
		{"falls back", lbdclient.Config{Fallback: fallback}, func(body string, _ error) bool { return body == fallback }},
	}
	for _, test := range tests {
		test.config.Address, test.config.StaleFor = d.Address, 300*time.Millisecond
		_, client := connect(t, test.config)
		lbdtest.Until(t, "lbd is up", func() bool { body, _ := getBody(client); return body == address })
		d.Stop()
		if body, err := getBody(client); body != address {
			t.Errorf("%s: the batch is not used after lbd has ended: %v", test.name, err)
		}
		lbdtest.Until(t, test.name, func() bool { return test.want(getBody(client)) })
		if err := d.Restart(); err != nil {
			t.Fatal(err)
		}
		lbdtest.Until(t, test.name+": lbd is used again", func() bool { body, _ := getBody(client); return body == address })
	}
}

func getBody(client *http.Client) (string, error) {
	_, body, err := get(client, "http://orders.lbd/")
	return body, err
}

// TestBadAnswersOfLBD has answers that end early, are not valid, or do not come.
func TestBadAnswersOfLBD(t *testing.T) {
	d := lbdtest.Start(t)
	address := upstream(t, nil)
	d.Push(t, "orders", "", address)
	answers := map[string]string{
		"half an answer":  "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"picks\":[{\"address\":\"127.0.0.1:1\"}],",
		"not JSON":        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"another type":    "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{\"picks\":\"none\"}",
		"no picks":        "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{\"generation\":1}",
		"chunk cut":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"pi",
		"a redirect":      "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
		"status 502":      "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 2\r\n\r\n{}",
		"no HTTP":         "hello\r\n\r\n",
		"nothing":         "",
		"no answer, ever": "hang",
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			var broken atomic.Bool
			broken.Store(true)
			socket := strings.TrimPrefix(d.Address, "unix:")
			go proxy(listener, &broken, answer, socket)
			_, client := connect(t, lbdclient.Config{Address: "http://" + listener.Addr().String()})
			_, _, err = get(client, "http://orders.lbd/")
			if !errors.Is(err, lbdclient.ErrUnavailable) || kindOf(t, err).Code != "" {
				t.Errorf("error %v", err)
			}
			broken.Store(false)
			lbdtest.Until(t, "the client recovers", func() bool { body, _ := getBody(client); return body == address })
		})
	}
}

// proxy answers with answer while broken, else forwards to socket.
func proxy(listener net.Listener, broken *atomic.Bool, answer, socket string) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = connection.Close() }()
			buffer := make([]byte, 64<<10)
			n, err := connection.Read(buffer)
			if err != nil {
				return
			}
			if broken.Load() {
				if answer == "hang" {
					_, _ = connection.Read(buffer) // until the client gives up
					return
				}
				_, _ = io.WriteString(connection, answer)
				return
			}
			lbd, err := net.Dial("unix", socket)
			if err != nil {
				return
			}
			defer func() { _ = lbd.Close() }()
			go func() { _, _ = io.Copy(lbd, io.MultiReader(bytes.NewReader(buffer[:n]), connection)) }()
			_, _ = io.Copy(connection, lbd)
		}()
	}
}

func TestRefusals(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", `{"drop_overloads":[{"category":"throttle","drop_percentage":{"numerator":50,"denominator":"HUNDRED"}}]}`, upstream(t, nil))
	d.Push(t, "closed", `{"drop_overloads":[{"category":"all","drop_percentage":{"numerator":100,"denominator":"HUNDRED"}}]}`, upstream(t, nil))
	d.Push(t, "full", "", upstream(t, nil))
	d.Limit(t, "full", 1)
	d.Call(t, http.MethodPut, "/v1/clusters/down/endpoints?allow_empty=true", `{"endpoints":[{"lb_endpoints":[{"health_status":"UNHEALTHY","endpoint":{"address":{"socket_address":{"address":"127.0.0.1","port_value":1}}}}]}]}`)
	d.Call(t, http.MethodPost, "/v1/pick?cluster=full&ttl=5m", "")
	for _, mode := range []lbdclient.Mode{lbdclient.ModeBatch, lbdclient.ModePick, lbdclient.ModeLease} {
		t.Run(string(mode), func(t *testing.T) {
			_, client := connect(t, lbdclient.Config{Address: d.Address, Mode: mode})
			client.Timeout = 500 * time.Millisecond
			dropped := 0
			for range 400 {
				if _, _, err := get(client, "http://orders.lbd/"); errors.Is(err, lbdclient.ErrDropped) {
					if e := kindOf(t, err); e.Category != "throttle" || e.Cluster != "orders" {
						t.Fatalf("error %#v", e)
					}
					dropped++
				} else if err != nil {
					t.Fatal(err)
				}
			}
			if dropped < 100 || dropped > 300 {
				t.Errorf("%d of 400 requests are dropped, want 200", dropped)
			}
			for cluster, want := range map[string]error{
				"closed": lbdclient.ErrDropped, "down": lbdclient.ErrUnavailable, "nope": lbdclient.ErrUnknownCluster,
			} {
				if _, _, err := get(client, "http://"+cluster+".lbd/"); !errors.Is(err, want) {
					t.Errorf("%s: error %v, want %v", cluster, err, want)
				}
			}
			if _, _, err := get(client, "http://full.lbd/"); mode != lbdclient.ModePick && !errors.Is(err, lbdclient.ErrCircuitBroken) {
				t.Errorf("full: error %v", err)
			}
		})
	}
}

// TestReports compares what lbd knows with what has happened.
func TestReports(t *testing.T) {
	d := lbdtest.Start(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	address := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/error":
			w.WriteHeader(http.StatusInternalServerError)
		case "/slow":
			close(arrived)
			<-release
		}
	})
	d.Push(t, "orders", "", address)
	client, sender := connect(t, lbdclient.Config{Address: d.Address, ReportInterval: 200 * time.Millisecond})
	for range 20 {
		mustGet(t, sender, "http://orders.lbd/")
	}
	for range 5 {
		if status, _, _ := get(sender, "http://orders.lbd/error"); status != http.StatusInternalServerError {
			t.Errorf("status %d", status)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var slow sync.WaitGroup
	slow.Go(func() {
		if err := try(ctx, sender, "http://orders.lbd/slow"); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
	<-arrived
	lbdtest.Until(t, "the others are reported", func() bool {
		return d.Metric(t, `lbd_reported_requests_total{cluster="orders",outcome="success"}`) == 20
	})
	cancel()
	slow.Wait()
	close(release)
	client.Close()
	for outcome, want := range map[string]float64{"success": 20, "error": 5, "cancelled": 1} {
		if got := d.Metric(t, `lbd_reported_requests_total{cluster="orders",outcome="`+outcome+`"}`); got != want {
			t.Errorf("%s: %v, want %v", outcome, got, want)
		}
	}
	client.Close() // again: nothing happens
	if _, _, err := get(sender, "http://orders.lbd/"); !errors.Is(err, lbdclient.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
}

func TestReportsWaitForLBD(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", upstream(t, nil))
	client, sender := connect(t, lbdclient.Config{Address: d.Address, ReportInterval: 100 * time.Millisecond})
	mustGet(t, sender, "http://orders.lbd/")
	lbdtest.Until(t, "the first report is there", func() bool {
		return d.Metric(t, `lbd_reported_requests_total{cluster="orders",outcome="success"}`) == 1
	})
	d.Stop()
	for range 50 {
		mustGet(t, sender, "http://orders.lbd/")
	}
	stopped := time.Now()
	lbdtest.Until(t, "some reports fail", func() bool { return time.Since(stopped) > 500*time.Millisecond })
	if err := d.Restart(); err != nil {
		t.Fatal(err)
	}
	lbdtest.Until(t, "the requests in the meantime are reported", func() bool {
		return d.Metric(t, `lbd_reported_requests_total{cluster="orders",outcome="success"}`) == 50
	})
	client.Close()
}

func TestConcurrentUse(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", upstream(t, nil), upstream(t, nil))
	client, sender := connect(t, lbdclient.Config{Address: d.Address, ReportInterval: 20 * time.Millisecond, MaxAge: 50 * time.Millisecond})
	var threads sync.WaitGroup
	for range 100 {
		threads.Go(func() {
			for range 20 {
				if _, _, err := get(sender, "http://orders.lbd/"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	threads.Wait()
	client.Close()
	if got := d.Metric(t, `lbd_reported_requests_total{cluster="orders",outcome="success"}`); got != 2000 {
		t.Errorf("lbd knows %v of 2000 requests", got)
	}
}

func TestFollowEndpoints(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", "127.0.0.1:1", "127.0.0.1:2")
	client, _ := connect(t, lbdclient.Config{Address: d.Address})
	var (
		mu     sync.Mutex
		latest []string
		failed error
	)
	ctx, cancel := context.WithCancel(t.Context())
	var follower sync.WaitGroup
	follower.Go(func() {
		client.FollowEndpoints(ctx, "orders", func(addresses []string, err error) {
			mu.Lock()
			defer mu.Unlock()
			latest, failed = addresses, err
		})
	})
	is := func(want ...string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(latest)
			return slices.Equal(latest, want) && (failed == nil) == (want != nil)
		}
	}
	lbdtest.Until(t, "two endpoints", is("127.0.0.1:1", "127.0.0.1:2"))
	d.Push(t, "orders", "", "127.0.0.1:3")
	lbdtest.Until(t, "the new endpoint", is("127.0.0.1:3"))
	d.Stop()
	lbdtest.Until(t, "an error", is())
	if err := d.Restart(); err != nil {
		t.Fatal(err)
	}
	lbdtest.Until(t, "the endpoint after the restart", is("127.0.0.1:3"))
	cancel()
	follower.Wait()
}

// TestErrorsAreReportedEarly: outlier detection does not wait for the interval.
func TestErrorsAreReportedEarly(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", upstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	_, client := connect(t, lbdclient.Config{Address: d.Address, ReportInterval: 5 * time.Minute})
	for range 5 {
		if status, _, err := get(client, "http://orders.lbd/"); status != http.StatusInternalServerError {
			t.Fatal(status, err)
		}
	}
	lbdtest.Until(t, "the errors are reported", func() bool {
		return d.Metric(t, `lbd_reported_requests_total{cluster="orders",outcome="error"}`) == 5
	})
}
