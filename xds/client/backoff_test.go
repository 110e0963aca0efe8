package client

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/xds/backoff"
)

// The back-off for a server that closes each stream at once grows.
func TestServerClosesStreams(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		w.want(cds, "a")
		var before time.Time
		for i := range 6 {
			s := w.servers["one"].accept()
			if i > 0 {
				if got, want := s.opened.Sub(before), backoff.Wait(i-1, func() float64 { return 0.5 }); got != want {
					t.Errorf("try %d after %v, want %v", i, got, want)
				}
			}
			before = s.opened
			s.end <- errors.New("no")
		}
		w.expectUpdates("a: unreachable")
		w.expectNoUpdates() // the error is reported once

		// A response resets the back-off.
		s := w.servers["one"].accept()
		s.receive()
		s.send("1", "n1", cluster("a"))
		w.expectUpdates("a=1")
		time.Sleep(time.Minute)
		ended := time.Now()
		s.end <- errors.New("enough")
		s = w.servers["one"].accept()
		if !s.opened.Equal(ended) {
			t.Errorf("the next after %v", s.opened.Sub(ended))
		}
		w.expectNoUpdates()
		s.end <- errors.New("no")
		before = s.opened
		if s = w.servers["one"].accept(); s.opened.Sub(before) != time.Second {
			t.Errorf("the next after %v", s.opened.Sub(before))
		}
		w.expectUpdates("ambient a: unreachable")
	})
}

func TestServerRespondsAndClosesRepeatedly(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		w.want(cds, "a")
		var before time.Time
		for i := range 10 {
			s := w.servers["one"].accept()
			if got := s.opened.Sub(before); i > 0 && got != time.Second {
				t.Fatalf("after %v", got)
			}
			before = s.opened
			s.receive()
			s.send("1", "n1", cluster("a"))
			synctest.Wait()
			s.end <- errors.New("enough")
		}
		w.expectUpdates("a=1")
		w.expectNoUpdates() // neither an error nor the unchanged value
	})
}

func TestUnreachableServer(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		w.servers["one"].kill()
		w.want(cds, "a")
		w.expectUpdates("a: unreachable")
		if err := w.state(cds, "a").Err; !strings.HasPrefix(err.Error(), `management server "passthrough:///one" cannot be reached`) {
			t.Errorf("the error is %v", err)
		}
		// A later watcher gets the error at once.
		began := time.Now()
		w.want(cds, "b")
		w.expectUpdates("b: unreachable")
		if time.Since(began) > 0 {
			t.Errorf("updated after %v", time.Since(began))
		}
		w.servers["one"].start()
		s := w.servers["one"].accept()
		s.expect(`node=test Cluster [a b] version="" nonce=""`)
		s.send("1", "n1", cluster("a"))
		w.expectUpdates("a=1")
	})
}

// The first response after an outage clears the errors of the values that the server
// does not send again.
func TestErrorClearsAfterOutage(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		w.want(cds, "a", "b")
		s := w.subscribe(eds, "a")
		s.receive()
		s.send("1", "n1", cluster("a"), cluster("b"))
		value := await(t, w.updates, "update")[0].Cluster
		s.send("1", "n1", assignment("a", 1))
		w.expectUpdates("a=1")
		s.send("2", "n2", badCluster("b"), cluster("a"))
		w.expectUpdates("ambient b: rejected")
		w.servers["one"].kill()
		w.expectUpdates("ambient a: unreachable, ambient a: unreachable")
		time.Sleep(time.Hour)
		w.expectNoUpdates()
		w.servers["one"].start()
		s = w.servers["one"].accept()
		s.send("1", "n1", assignment("other", 1)) // any response counts
		batch := await(t, w.updates, "update")
		if got := describe(batch); got != "a=1, a=2" {
			t.Fatalf("updates %q", got)
		}
		for _, u := range batch {
			if u.Key.Type == cds && u.Cluster != value {
				t.Error("the value is not the same pointer")
			}
		}
		w.expectNoUpdates()
	})
}

// A server need not send resources again: it is connected if it keeps the stream for 15 s.
func TestServerNeedNotRespond(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		w.load("a")
		w.servers["one"].kill()
		w.expectUpdates("ambient a: unreachable")
		w.servers["one"].start()
		s := w.servers["one"].accept()
		w.expectAway("a", true)
		w.expectUpdates("a=1")
		w.expectElapsed(s.opened, watchExpiry)
		w.expectAway("a", false)
		// It is not if it did not respond to a request for another resource, also after
		// that was dropped.
		s.end <- nil
		w.servers["one"].accept()
		w.want(cds, "b")
		time.Sleep(watchExpiry - time.Second)
		w.want(cds, "-b")
		time.Sleep(time.Hour)
		w.expectNoUpdates()
		w.expectAway("a", true)
	})
}
