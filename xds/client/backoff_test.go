package client

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackOff(t *testing.T) {
	middle := func() float64 { return 0.5 }
	for retries, want := range []time.Duration{
		time.Second, 1600 * time.Millisecond, 2560 * time.Millisecond, 4096 * time.Millisecond,
	} {
		if got := backOff(retries, middle); got.Round(time.Microsecond) != want {
			t.Errorf("after %d retries %v, want %v", retries, got, want)
		}
	}
	for _, retries := range []int{12, 1000} {
		if got := backOff(retries, middle); got != 120*time.Second {
			t.Errorf("after %d retries %v", retries, got)
		}
	}
	if low, high := backOff(1000, func() float64 { return 0 }), backOff(1000, func() float64 { return 1 }); low != 96*time.Second || high != 144*time.Second {
		t.Errorf("jitter from %v to %v", low, high)
	}
	if got := backOff(0, func() float64 { return 0 }); got != time.Second {
		t.Errorf("the first with jitter: %v", got)
	}
}

// A server that closes each stream at once is tried ever less often.
func TestAServerThatClosesAtOnce(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a")
		var before time.Time
		for i := range 6 {
			s := w.servers["one"].accept()
			if i > 0 {
				if got, want := s.opened.Sub(before), backOff(i-1, func() float64 { return 0.5 }); got != want {
					t.Errorf("try %d after %v, want %v", i, got, want)
				}
			}
			before = s.opened
			s.end <- errors.New("no")
		}
		w.expectTold("a: unreachable")
		w.expectNothingTold() // more than once

		// An answer makes it a server in good order: the next stream comes at
		// once, and its error is the first again.
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		time.Sleep(time.Minute)
		ended := time.Now()
		s.end <- errors.New("enough")
		s = w.servers["one"].accept()
		if !s.opened.Equal(ended) {
			t.Errorf("the next after %v", s.opened.Sub(ended))
		}
		w.expectNothingTold()
		s.end <- errors.New("no")
		before = s.opened
		if s = w.servers["one"].accept(); s.opened.Sub(before) != time.Second {
			t.Errorf("the next after %v", s.opened.Sub(before))
		}
		w.expectTold("ambient a: unreachable")
	})
}

func TestAServerThatAnswersAndClosesInALoop(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a")
		var before time.Time
		for i := range 10 {
			s := w.servers["one"].accept()
			if got := s.opened.Sub(before); i > 0 && got != time.Second {
				t.Fatalf("after %v", got)
			}
			before = s.opened
			s.hear()
			s.say("1", "n1", cluster("a"))
			synctest.Wait()
			s.end <- errors.New("enough")
		}
		w.expectTold("a=1")
		w.expectNothingTold() // no error, and nothing that is unchanged
	})
}

func TestAServerThatIsNotThere(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.servers["one"].kill()
		w.want(cds, "a")
		w.expectTold("a: unreachable")
		var e *UnreachableError
		if err := w.state(cds, "a").Err; !errors.As(err, &e) || e.Server != "passthrough:///one" {
			t.Errorf("told %v", err)
		}
		// What is wanted later is told at once, not when it is tried again.
		began := time.Now()
		w.want(cds, "b")
		w.expectTold("b: unreachable")
		if time.Since(began) > 0 {
			t.Errorf("told after %v", time.Since(began))
		}
		w.servers["one"].start()
		s := w.servers["one"].accept()
		s.expect(`node=test Cluster [a b] version="" nonce=""`)
		s.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
	})
}

// What an outage made doubtful is not, once the server speaks: what it does not
// send again is told again, with the same value.
func TestAfterAnOutage(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a", "b")
		w.want(eds, "a")
		s := w.servers["one"].accept()
		s.hear()
		s.hear()
		s.say("1", "n1", cluster("a"), cluster("b"))
		value := await(t, w.updates, "update")[0].Cluster
		s.say("1", "n1", assignment("a", 1))
		w.expectTold("a=1")
		s.say("2", "n2", badCluster("b"), cluster("a"))
		w.expectTold("ambient b: rejected")
		w.servers["one"].kill()
		w.expectTold("ambient a: unreachable, ambient a: unreachable")
		time.Sleep(time.Hour)
		w.expectNothingTold()
		w.servers["one"].start()
		s = w.servers["one"].accept()
		s.say("1", "n1", assignment("other", 1)) // any sign of life will do
		batch := await(t, w.updates, "update")
		if got := describe(batch); got != "a=1, a=2" {
			t.Fatalf("told %q", got)
		}
		for _, u := range batch {
			if u.Key.Type == cds && u.Cluster != value {
				t.Error("it is another value")
			}
		}
		w.expectNothingTold()
	})
}

// A server need not repeat what it sent before: one that keeps the stream is there.
func TestAServerWithNothingToSay(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a")
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		w.servers["one"].kill()
		w.expectTold("ambient a: unreachable")
		w.servers["one"].start()
		s = w.servers["one"].accept()
		if !w.client.Away("t", "a") {
			t.Error("not away")
		}
		w.expectTold("a=1")
		if got := time.Since(s.opened); got != watchExpiry {
			t.Errorf("told after %v", got)
		}
		if w.client.Away("t", "a") {
			t.Error("away")
		}
		// But one that was asked for more, and said nothing, is not taken for
		// one that speaks; not even if nobody wants that any more.
		s.end <- nil
		w.servers["one"].accept()
		w.want(cds, "b")
		time.Sleep(watchExpiry - time.Second)
		w.want(cds, "-b")
		time.Sleep(time.Hour)
		w.expectNothingTold()
		if !w.client.Away("t", "a") {
			t.Error("not away, although it never answered")
		}
	})
}
