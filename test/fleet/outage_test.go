package fleet

import (
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestOutage: while etcd is away, for LBD_FLEET_OUTAGE (10s), replicas are killed and start again
// from their copies, one after the other. Picks never fail: callers have two replicas, of which one
// runs. When etcd is back, the replicas catch up.
func TestOutage(t *testing.T) {
	t.Parallel()
	length := 10 * time.Second
	if text := os.Getenv("LBD_FLEET_OUTAGE"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	m := startMember(t)
	url := "etcd://" + m.client + "/lbd"
	replicas := []*daemon{startDaemon(t, url), startDaemon(t, url)}
	for _, d := range replicas {
		d.untilReady(t, http.StatusOK)
	}
	replicas[0].mustPush(t, "orders", 1)
	for _, d := range replicas { // the copies are written behind the pushes, and at the end
		until(t, "it has the push", func() bool { return d.pick("orders") == "127.0.0.1:80" })
		d.signal(syscall.SIGTERM)
		if code := d.exit(t); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		d.start(t)
		d.untilReady(t, http.StatusOK)
	}
	m.stop()

	var running [2]sync.RWMutex // locked while a replica is down
	var picks, failed, restarts atomic.Int64
	end := make(chan struct{})
	var group sync.WaitGroup
	for i, d := range replicas {
		for range 2 {
			group.Go(func() {
				for {
					select {
					case <-end:
						return
					default:
					}
					running[i].RLock()
					got := d.pick("orders")
					running[i].RUnlock()
					if picks.Add(1); got != "127.0.0.1:80" {
						failed.Add(1)
						t.Errorf("picked %s", got)
					}
					time.Sleep(2 * time.Millisecond)
				}
			})
		}
	}
	for began := time.Now(); time.Since(began) < length; {
		for i, d := range replicas {
			running[i].Lock()
			d.kill()
			d.start(t)
			d.untilReady(t, http.StatusOK, "did not respond")
			running[i].Unlock()
			restarts.Add(1)
			if status, text := d.push("orders", 2); status != http.StatusServiceUnavailable {
				t.Errorf("a push: %d %s", status, text)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	m.start(t)
	until(t, "a push succeeds", func() bool { status, _ := replicas[0].push("users", 1); return status < 300 && status > 0 })
	until(t, "the other replica has it", func() bool { return replicas[1].pick("users") == "127.0.0.1:80" })
	close(end)
	group.Wait()
	t.Logf("%d picks, %d failed, during %v without etcd and %d restarts", picks.Load(), failed.Load(), length, restarts.Load())
}
