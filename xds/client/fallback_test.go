package client

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestFallBackAtTheStart(t *testing.T) {
	play(t, "one two three", func(t *testing.T, w *world) {
		w.servers["one"].kill()
		w.servers["two"].kill()
		if got := w.client.Server("t", "a"); got != nil {
			t.Errorf("asked of %v, before anything was", got)
		}
		w.want(cds, "a")
		s := w.servers["three"].accept()
		synctest.Wait() // until the client knows whom it asks
		if got := w.client.Server("t", "a"); got.URI != "passthrough:///three" {
			t.Errorf("asked of %v", got)
		}
		s.expect(`node=test Cluster [a] version="" nonce=""`)
		if e := event[FellBack](w); e.From != "passthrough:///one" || e.To != "passthrough:///two" || e.Err == nil {
			t.Errorf("%+v", e)
		}
		if e := event[FellBack](w); e.From != "passthrough:///two" || e.To != "passthrough:///three" {
			t.Errorf("%+v", e)
		}
		w.expectNothingTold()
		s.say("1", "n1", cluster("a"))
		w.expectTold("a=1")

		// Back to the second: the third is let go, the first tried on.
		w.servers["two"].start()
		two := w.servers["two"].accept()
		two.expect(`node=test Cluster [a] version="" nonce=""`)
		two.say("2", "n1", cluster("a", "other"))
		w.expectTold("a=2")
		if e := event[Returned](w); e.From != "passthrough:///three" || e.To != "passthrough:///two" {
			t.Errorf("%+v", e)
		}
		<-s.stream.Context().Done()
		nothing(t, w.servers["three"].streams, "stream")

		w.servers["one"].start()
		one := w.servers["one"].accept()
		one.hear()
		one.say("3", "n1", cluster("a", "other"))
		if e := event[Returned](w); e.From != "passthrough:///two" || e.To != "passthrough:///one" {
			t.Errorf("%+v", e)
		}
		<-two.stream.Context().Done()
		w.expectNothingTold() // it is as it was
		if got := w.client.Server("t", "a"); got.URI != "passthrough:///one" {
			t.Errorf("asked of %v", got)
		}
		if got := w.state(cds, "a"); got.Version != "3" {
			t.Errorf("it is %+v", got)
		}
	})
}

// While all is cached, an outage is only told; what is wanted then makes it fall
// back, at once.
func TestFallBackWhenSomethingIsMissing(t *testing.T) {
	play(t, "one two", func(t *testing.T, w *world) {
		w.want(cds, "a")
		w.want(eds, "gone")
		one := w.servers["one"].accept()
		one.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		w.expectTold("gone: expired") // known not to exist is known, too
		w.servers["one"].kill()
		w.expectTold("ambient a: unreachable")
		time.Sleep(time.Hour)
		nothing(t, w.servers["two"].streams, "stream")

		w.want(cds, "b")
		two := w.servers["two"].accept()
		two.expect(`node=test Cluster [a b] version="" nonce=""`)
		two.expect(`ClusterLoadAssignment [gone] version="" nonce=""`)
		// It answers: nothing is out of date any more.
		two.say("9", "n1", cluster("a"), cluster("b"))
		w.expectTold("a=9, b=9")

		// What is wanted meanwhile is known to the first one, too, when it is back.
		two.expect(`Cluster [a b] version="9" nonce="n1"`)
		w.want(cds, "c")
		two.expect(`Cluster [a b c] version="9" nonce="n1"`)
		w.servers["one"].start()
		w.servers["one"].accept().expect(`node=test Cluster [a b c] version="1" nonce=""`)
	})
}

func TestAStreamThatAnsweredMakesNobodyFallBack(t *testing.T) {
	play(t, "one two", func(t *testing.T, w *world) {
		w.want(cds, "a", "b")
		one := w.servers["one"].accept()
		one.hear()
		one.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		time.Sleep(5 * time.Second)
		one.end <- errors.New("maximal age")
		w.servers["one"].accept()
		w.expectNothingTold()
		nothing(t, w.servers["two"].streams, "stream")
	})
}

func TestAllServersAway(t *testing.T) {
	play(t, "one two", func(t *testing.T, w *world) {
		w.servers["one"].kill()
		w.servers["two"].kill()
		w.want(cds, "a")
		w.expectTold("a: unreachable")
		var e *UnreachableError
		if err := w.state(cds, "a").Err; !errors.As(err, &e) || e.Server != "passthrough:///two" {
			t.Errorf("told %v", err)
		}
		w.servers["two"].start()
		two := w.servers["two"].accept()
		two.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		// The first is tried on, and that is nobody's business.
		time.Sleep(time.Hour)
		w.expectNothingTold()
		if w.client.Away("t", "a") {
			t.Error("away")
		}
		w.servers["two"].kill()
		w.expectTold("ambient a: unreachable")
		if !w.client.Away("t", "a") {
			t.Error("not away")
		}
	})
}

// A value of a preferred server stays when a fallback server does not have it.
func TestAServerThatHasLess(t *testing.T) {
	play(t, "one two", func(t *testing.T, w *world) {
		w.want(cds, "a", "b")
		one := w.servers["one"].accept()
		one.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		w.servers["one"].kill()
		two := w.servers["two"].accept()
		two.hear()
		w.expectTold("b: silent")
		time.Sleep(time.Hour)
		w.expectNothingTold()
		two.say("1", "n1", cluster("b"))
		w.expectTold("ambient a: not found, b=1")
		two.say("2", "n2", cluster("b", "other"))
		w.expectTold("b=2") // once
		if got := w.state(cds, "a"); got.State != Acked || got.Version != "1" {
			t.Errorf("it is %+v", got)
		}
	})
}

// A server that comes back has its time from its first answer on.
func TestTheTimeOfAServerThatComesBack(t *testing.T) {
	play(t, "one two", func(t *testing.T, w *world) {
		w.servers["one"].kill()
		w.want(cds, "a")
		w.want(eds, "a")
		two := w.servers["two"].accept()
		two.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		w.servers["one"].start()
		one := w.servers["one"].accept()
		for time.Since(one.opened) <= watchExpiry {
			time.Sleep(5 * time.Second)
			two.end <- nil // the second is never on for long enough
			two = w.servers["two"].accept()
			two.say("1", "n1", cluster("a"))
		}
		w.expectNothingTold()
		one.say("1", "n1", cluster("a"))
		synctest.Wait()
		began := time.Now()
		w.expectTold("a: expired")
		if got := time.Since(began); got != watchExpiry {
			t.Errorf("after %v", got)
		}
		if got := w.state(eds, "a"); got.State != DoesNotExist {
			t.Errorf("it is %+v", got)
		}
	})
}

// A server that hung and then ended the stream never said that a resource does not
// exist: the resource is not cached (gRFC A71).
func TestFallBackFromAServerThatHung(t *testing.T) {
	for _, features := range []string{"", ":resource_timer_is_transient_error"} {
		t.Run("one"+features, func(t *testing.T) {
			play(t, "one"+features+" two", func(t *testing.T, w *world) {
				w.want(cds, "a")
				w.servers["one"].accept()
				time.Sleep(slowWatchExpiry + time.Second)
				if got := w.told(); got != "a: silent" && got != "a: timeout" {
					t.Fatalf("told %s", got)
				}
				w.servers["one"].kill()
				two := w.servers["two"].accept()
				two.say("1", "n1", cluster("a"))
				w.expectTold("a=1")
				w.expectUsing("t=two*")
			})
		})
	}
}
