package client

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFallBackAtStart(t *testing.T) {
	runTest(t, "one two three", func(t *testing.T, w *harness) {
		w.servers["one"].kill()
		w.servers["two"].kill()
		if got := w.client.Server("t", "a"); got != nil {
			t.Errorf("%v is used before a resource was wanted", got)
		}
		w.want(cds, "a")
		s := w.servers["three"].accept()
		synctest.Wait() // until the server is selected
		if got := w.client.Server("t", "a"); got.URI != "passthrough:///three" {
			t.Errorf("%v is used", got)
		}
		s.expect(`node=test Cluster [a] version="" nonce=""`)
		if e := event[FellBack](w); e.From != "passthrough:///one" || e.To != "passthrough:///two" || e.Err == nil {
			t.Errorf("%+v", e)
		}
		if e := event[FellBack](w); e.From != "passthrough:///two" || e.To != "passthrough:///three" {
			t.Errorf("%+v", e)
		}
		w.expectNoUpdates()
		s.send("1", "n1", cluster("a"))
		w.expectUpdates("a=1")

		// The second returns: the third is released, and the first is still tried.
		w.servers["two"].start()
		two := w.servers["two"].accept()
		two.expect(`node=test Cluster [a] version="" nonce=""`)
		two.send("2", "n1", cluster("a", "other"))
		w.expectUpdates("a=2")
		if e := event[Returned](w); e.From != "passthrough:///three" || e.To != "passthrough:///two" {
			t.Errorf("%+v", e)
		}
		<-s.stream.Context().Done()
		expectNone(t, w.servers["three"].streams, "stream")

		w.servers["one"].start()
		one := w.servers["one"].accept()
		one.receive()
		one.send("3", "n1", cluster("a", "other"))
		if e := event[Returned](w); e.From != "passthrough:///two" || e.To != "passthrough:///one" {
			t.Errorf("%+v", e)
		}
		<-two.stream.Context().Done()
		w.expectNoUpdates() // it is unchanged
		if got := w.client.Server("t", "a"); got.URI != "passthrough:///one" {
			t.Errorf("%v is used", got)
		}
		if got := w.state(cds, "a"); got.Version != "3" {
			t.Errorf("it is %+v", got)
		}
	})
}

// An outage is only reported while all resources are cached. A new resource causes
// fallback at once.
func TestFallBackForMissingResource(t *testing.T) {
	runTest(t, "one two", func(t *testing.T, w *harness) {
		w.want(cds, "a")
		w.want(eds, "gone")
		one := w.servers["one"].accept()
		one.send("1", "n1", cluster("a"))
		w.expectUpdates("a=1")
		w.expectUpdates("gone: expired") // it is known not to exist
		w.servers["one"].kill()
		w.expectUpdates("ambient a: unreachable")
		time.Sleep(time.Hour)
		expectNone(t, w.servers["two"].streams, "stream")

		w.want(cds, "b")
		two := w.servers["two"].accept()
		two.expect(`node=test Cluster [a b] version="" nonce=""`)
		two.expect(`ClusterLoadAssignment [gone] version="" nonce=""`)
		two.send("9", "n1", cluster("a"), cluster("b"))
		w.expectUpdates("a=9, b=9")

		// The first one gets all subscriptions when it returns.
		two.expect(`Cluster [a b] version="9" nonce="n1"`)
		w.want(cds, "c")
		two.expect(`Cluster [a b c] version="9" nonce="n1"`)
		w.servers["one"].start()
		w.servers["one"].accept().expect(`node=test Cluster [a b c] version="1" nonce=""`)
	})
}

func TestNoFallbackAfterResponse(t *testing.T) {
	runTest(t, "one two", func(t *testing.T, w *harness) {
		one := w.subscribe(cds, "a", "b")
		one.send("1", "n1", cluster("a"))
		w.expectUpdates("a=1")
		time.Sleep(5 * time.Second)
		one.end <- errors.New("maximum age")
		w.servers["one"].accept()
		w.expectNoUpdates()
		expectNone(t, w.servers["two"].streams, "stream")
	})
}

func TestAllServersUnreachable(t *testing.T) {
	runTest(t, "one two", func(t *testing.T, w *harness) {
		w.servers["one"].kill()
		w.servers["two"].kill()
		w.want(cds, "a")
		w.expectUpdates("a: unreachable")
		if err := w.state(cds, "a").Err; !strings.HasPrefix(err.Error(), `management server "passthrough:///two" cannot be reached`) {
			t.Errorf("the error is %v", err)
		}
		w.servers["two"].start()
		two := w.servers["two"].accept()
		two.send("1", "n1", cluster("a"))
		w.expectUpdates("a=1")
		// Attempts to connect to the first are not reported.
		time.Sleep(time.Hour)
		w.expectNoUpdates()
		w.expectAway("a", false)
		w.servers["two"].kill()
		w.expectUpdates("ambient a: unreachable")
		w.expectAway("a", true)
	})
}

// A value of a preferred server stays if a fallback server does not have the resource.
func TestFallbackServerWithoutResource(t *testing.T) {
	runTest(t, "one two", func(t *testing.T, w *harness) {
		w.want(cds, "a", "b")
		one := w.servers["one"].accept()
		one.send("1", "n1", cluster("a"))
		w.expectUpdates("a=1")
		w.servers["one"].kill()
		two := w.servers["two"].accept()
		two.receive()
		w.expectUpdates("b: silent")
		time.Sleep(time.Hour)
		w.expectNoUpdates()
		two.send("1", "n1", cluster("b"))
		w.expectUpdates("ambient a: not found, b=1")
		two.send("2", "n2", cluster("b", "other"))
		w.expectUpdates("b=2") // once
		w.expectState(cds, "a", Acked, "1")
	})
}

// The timeout of a server that returns starts with its first response.
func TestTimeoutRestartsAfterReconnect(t *testing.T) {
	runTest(t, "one two", func(t *testing.T, w *harness) {
		w.servers["one"].kill()
		w.want(cds, "a")
		w.want(eds, "a")
		two := w.servers["two"].accept()
		two.send("1", "n1", cluster("a"))
		w.expectUpdates("a=1")
		w.servers["one"].start()
		one := w.servers["one"].accept()
		for time.Since(one.opened) <= watchExpiry {
			time.Sleep(5 * time.Second)
			two.end <- nil // no stream of the second lasts until the timeout
			two = w.servers["two"].accept()
			two.send("1", "n1", cluster("a"))
		}
		w.expectNoUpdates()
		one.send("1", "n1", cluster("a"))
		synctest.Wait()
		w.expectAfter(watchExpiry, "a: expired")
		w.expectState(eds, "a", DoesNotExist)
	})
}

// A resource is not known to be missing if the server was silent and then ended the stream:
// the target falls back (gRFC A71).
func TestFallBackFromSilentServer(t *testing.T) {
	for _, features := range []string{"", ":resource_timer_is_transient_error"} {
		t.Run("one"+features, func(t *testing.T) {
			runTest(t, "one"+features+" two", func(t *testing.T, w *harness) {
				w.want(cds, "a")
				w.servers["one"].accept()
				time.Sleep(slowWatchExpiry + time.Second)
				expectNone(t, w.servers["two"].streams, "stream") // a silent server is reachable
				if got := w.nextUpdates(); got != "a: silent" && got != "a: timeout" {
					t.Fatalf("updates %s", got)
				}
				w.servers["one"].kill()
				two := w.servers["two"].accept()
				two.send("1", "n1", cluster("a"))
				w.expectUpdates("a=1")
				w.expectUsing("t=two*")
			})
		})
	}
}
