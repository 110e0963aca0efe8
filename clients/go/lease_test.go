package lbdclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
)

func TestLeaseIsHeldUntilBodyIsRead(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", upstream(t, nil))
	_, client := connect(t, lbdclient.Config{Address: d.Address, Mode: lbdclient.ModeLease})
	ends := map[string]func(*http.Response){
		"read":   func(r *http.Response) { _, _ = io.Copy(io.Discard, r.Body) },
		"closed": func(r *http.Response) { r.Body.Close() },
	}
	for name, end := range ends {
		response, err := client.Get("http://orders.lbd/")
		if err != nil {
			t.Fatal(err)
		}
		if got := d.InFlight(t); got != 1 {
			t.Errorf("%s: %d in flight before", name, got)
		}
		end(response)
		lbdtest.Until(t, name+": the lease ends", func() bool { return d.InFlight(t) == 0 })
		response.Body.Close()
	}
	if got := d.Metric(t, `lbd_leases_finished_total{cluster="orders",outcome="success"}`); got != 2 {
		t.Errorf("%v leases ended with success", got)
	}
}

func TestLeasesEndAsRequestsDo(t *testing.T) {
	d := lbdtest.Start(t)
	release := make(chan struct{})
	defer close(release)
	d.Push(t, "orders", "", upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	client, sender := connect(t, lbdclient.Config{Address: d.Address, Mode: lbdclient.ModeLease})
	if status, _, _ := get(sender, "http://orders.lbd/"); status != http.StatusInternalServerError { // error
		t.Errorf("status %d", status)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // the pick fits in it on a busy machine
	defer cancel()
	if err := try(ctx, sender, "http://orders.lbd/slow"); !errors.Is(err, context.DeadlineExceeded) { // error
		t.Errorf("error %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	var slow sync.WaitGroup
	slow.Go(func() { // cancelled
		if err := try(ctx, sender, "http://orders.lbd/slow"); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
	lbdtest.Until(t, "a lease is held", func() bool { return d.InFlight(t) == 1 })
	cancel()
	slow.Wait()
	held, err := client.Pick(t.Context(), "orders") // ended by Close
	if err != nil || d.InFlight(t) == 0 {
		t.Fatalf("no lease: %v", err)
	}
	client.Close()
	held.End(lbdclient.Success)
	for outcome, want := range map[string]float64{"success": 0, "error": 2, "cancelled": 2, "expired": 0} {
		if got := d.Metric(t, `lbd_leases_finished_total{cluster="orders",outcome="`+outcome+`"}`); got != want {
			t.Errorf("%s: %v, want %v", outcome, got, want)
		}
	}
}

func TestLeaseIsRenewed(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", upstream(t, nil))
	client, _ := connect(t, lbdclient.Config{Address: d.Address, Mode: lbdclient.ModeLease, TTL: 1500 * time.Millisecond})
	pick, err := client.Pick(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	taken := time.Now()
	lbdtest.Until(t, "some ttls pass", func() bool {
		if d.InFlight(t) != 1 {
			t.Fatal("the lease has ended")
		}
		return time.Since(taken) > 4*time.Second
	})
	pick.End(lbdclient.Success)
	lbdtest.Until(t, "the lease ends", func() bool { return d.InFlight(t) == 0 })
}

// TestForgottenLeases has callers that neither end a pick nor close the body of a response.
func TestForgottenLeases(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 1<<20)) // nobody reads it
	}))
	client, sender := connect(t, lbdclient.Config{Address: d.Address, Mode: lbdclient.ModeLease})
	pick, err := client.Pick(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	response, err := sender.Get("http://orders.lbd/") //nolint:bodyclose // it is forgotten
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.GC()
	time.Sleep(100 * time.Millisecond) // an end that is sent too early arrives
	if got := d.InFlight(t); got != 2 {
		t.Errorf("%d requests are in flight", got)
	}
	runtime.KeepAlive(pick)
	runtime.KeepAlive(response)
	pick, response = nil, nil //nolint:ineffassign,wastedassign // the garbage collector sees it
	lbdtest.Until(t, "the leases end", func() bool {
		runtime.GC()
		return d.InFlight(t) == 0
	})
	if got := d.Metric(t, `lbd_leases_finished_total{cluster="orders",outcome="cancelled"}`); got != 1 {
		t.Errorf("%v leases are cancelled", got) // the response was there: that is a success
	}
}

// TestLeaseThatIsGrantedTooLate has callers that give up while lbd still answers.
func TestLeaseThatIsGrantedTooLate(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", upstream(t, nil))
	client, _ := connect(t, lbdclient.Config{Address: d.Address, Mode: lbdclient.ModeLease})
	var callers sync.WaitGroup
	for i := range 200 {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*20*time.Microsecond)
			defer cancel()
			if pick, err := client.Pick(ctx, "orders"); err == nil {
				pick.End(lbdclient.Success)
			}
		})
	}
	callers.Wait()
	lbdtest.Until(t, "all leases end", func() bool { return d.InFlight(t) == 0 })
}

func TestCircuitBreakerHolds(t *testing.T) {
	d := lbdtest.Start(t)
	var mu sync.Mutex
	var inFlight, most int
	d.Push(t, "orders", "", upstream(t, func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		inFlight++
		most = max(most, inFlight)
		mu.Unlock()
		time.Sleep(time.Millisecond) // a request takes some time
		mu.Lock()
		inFlight--
		mu.Unlock()
	}))
	d.Limit(t, "orders", 10)
	_, client := connect(t, lbdclient.Config{Address: d.Address, Mode: lbdclient.ModeLease})
	var callers sync.WaitGroup
	var broken, passed int
	for range 50 {
		callers.Go(func() {
			for range 20 {
				_, _, err := get(client, "http://orders.lbd/")
				mu.Lock()
				if errors.Is(err, lbdclient.ErrCircuitBroken) {
					broken++
				} else if err == nil {
					passed++
				} else {
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	if most > 10 || broken == 0 || passed < 10 {
		t.Errorf("%d in flight at most, %d refused, %d passed", most, broken, passed)
	}
	lbdtest.Until(t, "all leases end", func() bool { return d.InFlight(t) == 0 })
}
