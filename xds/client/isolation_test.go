package client

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lbd-dev/lbd/xds/resource"
)

// wantFor is want for another target than the one of want.
func (w *world) wantFor(target string, t resource.Type, names ...string) {
	add := make([]resource.Key, len(names))
	for i, n := range names {
		add[i] = resource.Key{Type: t, Name: n}
	}
	w.client.Want(target, add, nil)
}

// using returns the servers that targets use, such as "t=one typo=two*", with * for a
// fallback server.
func (w *world) using() string {
	w.t.Helper()
	var words []string
	for _, s := range w.client.Status().Targets {
		word := s.Target + "=" + strings.TrimPrefix(s.Server, "passthrough:///")
		if s.Fallback {
			word += "*"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func (w *world) expectUsing(want string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.using(); got != want {
		w.t.Errorf("in use are %q, want %q", got, want)
	}
}

// A target that has all that it needs stays with its server when another one falls
// back, and when the fallback server does not have the first one's resources.
func TestAnUnknownNameMovesNobodyElse(t *testing.T) {
	play(t, "one two", func(t *testing.T, w *world) {
		w.want(cds, "a")
		w.want(eds, "a")
		one := w.servers["one"].accept()
		one.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		one.say("1", "n2", assignment("a", 1))
		w.expectTold("a=1")
		w.servers["one"].kill()
		w.expectTold("ambient a: unreachable, ambient a: unreachable")

		w.wantFor("typo", cds, "typo")
		two := w.servers["two"].accept()
		two.expect(`node=test Cluster [typo] version="" nonce=""`)
		two.say("9", "n1")
		w.expectTold("typo: expired")
		w.expectUsing("typo=two* t=one")
		if !w.client.Away("t", "a") || w.client.Away("typo", "typo") {
			t.Error("whether a server is away is not the target's own")
		}
		if got := w.client.Server("t", "a"); got.URI != "passthrough:///one" {
			t.Errorf("t uses %v", got)
		}
		if e := event[FellBack](w); len(e.Targets) != 1 || e.Targets[0] != "typo" {
			t.Errorf("%+v", e)
		}
		time.Sleep(time.Hour)
		w.expectNothingTold()

		// The target itself falls back when it lacks something.
		w.want(cds, "b")
		w.expectTold("a=1, a=1") // the server that it uses now answers
		two.expect(`Cluster [typo] version="9" nonce="n1"`)
		two.expect(`Cluster [a b typo] version="9" nonce="n1"`)
		two.expect(`ClusterLoadAssignment [a] version="" nonce=""`)
		two.say("10", "n2", cluster("a"), cluster("b"))
		w.expectTold("b=10") // a is as it was
		w.expectUsing("t=two* typo=two*")
	})
}

// The server does not send again what it was asked for on the stream: a target that
// comes later has it at once, good or bad.
func TestATargetThatComesLaterIsToldAtOnce(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a", "bad", "worse", "never")
		one := w.servers["one"].accept()
		one.hear()
		one.say("1", "n1", cluster("a"), cluster("bad"), badCluster("worse"))
		w.expectTold("a=1, bad=1, worse: rejected")
		one.hear()
		one.say("2", "n2", cluster("a"), badCluster("bad"), badCluster("worse"))
		w.expectTold("ambient bad: rejected")
		w.expectTold("never: expired")
		one.hear()
		before := w.client.Status().Updates

		w.wantFor("late", cds, "a", "bad", "worse", "never")
		w.expectTold("a=2, ambient bad: rejected, bad=1, never: expired, worse: rejected")
		one.expectNothing()
		for _, r := range w.client.Status().Resources {
			if r.Target == "late" && r.State != w.state(cds, r.Key.Name).State {
				t.Errorf("%s is %s for the one that came later", r.Key, r.State)
			}
		}
		// What comes is decoded and counted once, and one value for both.
		one.say("3", "n3", cluster("a", "other"), badCluster("bad"), badCluster("worse"))
		batch := await(t, w.updates, "update")
		if len(batch) != 2 || batch[0].Cluster != batch[1].Cluster || batch[0].Target == batch[1].Target {
			t.Errorf("told %+v", batch)
		}
		after := w.client.Status().Updates
		valid := UpdateCount{"passthrough:///one", cds, UpdateValid}
		if after[valid] != before[valid]+1 {
			t.Errorf("counted %d valid, after %d", after[valid], before[valid])
		}
		// One of them leaves: the other keeps what it has, and the server is not told.
		one.hear()
		w.want(cds, "-a", "-bad", "-worse", "-never")
		one.expectNothing()
		one.say("4", "n4", cluster("a"), badCluster("bad"), badCluster("worse"))
		w.expectTold("a=4")
	})
}

// A server that a target falls back to may know already what it needs, from another
// target: it is not asked again, and the target has it at once.
func TestFallingBackToAServerThatIsInUse(t *testing.T) {
	play(t, "one two", func(_ *testing.T, w *world) {
		w.want(cds, "a")
		one := w.servers["one"].accept()
		one.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		w.servers["one"].kill()
		w.expectTold("ambient a: unreachable")
		w.wantFor("u", cds, "a", "b") // a is known of the first, b is not
		w.expectTold("a=1, ambient a: unreachable")
		two := w.servers["two"].accept()
		two.hear()
		two.say("7", "n1", cluster("a", "other"), cluster("b"))
		w.expectTold("a=7, b=7")
		w.expectUsing("u=two* t=one")
		w.want(cds, "b")
		w.expectTold("a=7, b=7")
		w.expectUsing("t=two* u=two*")
		two.expect(`Cluster [a b] version="7" nonce="n1"`)
		two.expectNothing()
	})
}

// A preferred server takes a target back when it has something of that target's, not
// when it answers another one.
func TestATargetReturnsForItsOwnResources(t *testing.T) {
	play(t, "one two", func(t *testing.T, w *world) {
		w.servers["one"].kill()
		w.want(eds, "a")
		w.wantFor("u", eds, "b")
		two := w.servers["two"].accept()
		two.say("1", "n1", assignment("a", 1), assignment("b", 1))
		w.expectTold("a=1, b=1")
		w.expectUsing("t=two* u=two*")
		w.servers["one"].start()
		one := w.servers["one"].accept()
		one.say("5", "n1", assignment("b", 2))
		w.expectTold("b=5")
		w.expectUsing("t=two* u=one")
		if e := event[Returned](w); len(e.Targets) != 1 || e.Targets[0] != "u" {
			t.Errorf("%+v", e)
		}
		time.Sleep(time.Hour) // the first does not have a: the second's serves on
		w.expectNothingTold()
		two.say("2", "n2", assignment("a", 3))
		w.expectTold("a=2")
		one.say("6", "n2", assignment("a", 4))
		w.expectTold("a=6")
		w.expectUsing("t=one u=one")
	})
}

// What a preferred server knew of before its outage is taken back when it speaks on
// the new stream and need not send it again: after 15 s, as one that is silent.
func TestReturnToAServerThatNeedNotSendAgain(t *testing.T) {
	play(t, "one two", func(_ *testing.T, w *world) {
		w.want(eds, "a", "b")
		one := w.servers["one"].accept()
		one.say("1", "n1", assignment("a", 1), assignment("b", 1))
		w.expectTold("a=1, b=1")
		w.servers["one"].kill()
		w.expectTold("ambient a: unreachable, ambient b: unreachable")
		w.want(eds, "c")
		two := w.servers["two"].accept()
		two.say("7", "n1", assignment("a", 7), assignment("b", 7), assignment("c", 7))
		w.expectTold("a=7, b=7, c=7")
		w.servers["one"].start()
		one = w.servers["one"].accept()
		one.say("2", "n1", assignment("a", 2)) // of b it may have something new, in a moment
		w.expectTold("a=2")
		w.expectUsing("t=one")
		w.expectTold("b=1")
	})
}

// What a server had sent on an earlier stream counts again 15 s after its first answer,
// however late that is.
func TestReturnToAServerThatAnswersLate(t *testing.T) {
	play(t, "one two", func(_ *testing.T, w *world) {
		w.want(eds, "a", "b")
		one := w.servers["one"].accept()
		one.say("1", "n1", assignment("a", 1), assignment("b", 1))
		w.expectTold("a=1, b=1")
		w.servers["one"].kill()
		w.expectTold("ambient a: unreachable, ambient b: unreachable")
		w.want(eds, "c")
		two := w.servers["two"].accept()
		two.say("7", "n1", assignment("a", 7), assignment("b", 7), assignment("c", 7))
		w.expectTold("a=7, b=7, c=7")
		w.servers["one"].start()
		one = w.servers["one"].accept()
		time.Sleep(20 * time.Second)
		one.say("2", "n1", assignment("a", 2))
		w.expectTold("a=2")
		w.expectUsing("t=one")
		w.expectTold("b=1")
	})
}

// A preferred server that never had a resource takes nothing away from a target that
// returns to it: otherwise, a response that another target causes would.
func TestWhatAPreferredServerNeverHadStays(t *testing.T) {
	play(t, "one:fail_on_data_errors two", func(t *testing.T, w *world) {
		w.servers["one"].kill()
		w.want(cds, "a", "b")
		two := w.servers["two"].accept()
		two.say("1", "n1", cluster("a"), cluster("b"))
		w.expectTold("a=1, b=1")
		w.servers["one"].start()
		one := w.servers["one"].accept()
		one.say("1", "n1", cluster("a", "other"))
		w.expectTold("a=1, ambient b: not found")
		w.expectUsing("t=one")
		w.wantFor("u", cds, "c")
		one.say("2", "n2", cluster("a", "other"), cluster("c"))
		w.expectTold("c=2")
		w.expectNothingTold()
		if got := w.state(cds, "b"); got.Version != "1" {
			t.Errorf("b is %+v", got)
		}
	})
}

// What was not told while a server was not in use is told when it is used again.
func TestWhatAServerLetPassWhileItWasNotInUse(t *testing.T) {
	play(t, "one two", func(_ *testing.T, w *world) {
		w.servers["one"].kill()
		w.want(eds, "a", "b")
		two := w.servers["two"].accept()
		two.say("1", "n1", assignment("a", 1))
		w.expectTold("a=1")
		w.servers["one"].start()
		one := w.servers["one"].accept()
		one.hear()
		two.end <- nil
		w.servers["two"].kill() // the time of b has not passed there
		one.say("1", "n1", assignment("other", 1))
		time.Sleep(14 * time.Second)
		w.expectUsing("t=two*")
		time.Sleep(time.Minute) // on the first it has passed
		one.say("2", "n2", assignment("a", 2))
		for {
			if got := w.told(); strings.Contains(got, "a=2") {
				break
			}
		}
		w.expectUsing("t=one")
		if got := w.state(eds, "b"); got.State != DoesNotExist {
			w.t.Errorf("b is %+v", got)
		}
	})
}

// A target that fell back returns to the preferred server for a resource that this
// server has sent already, because another target asked it: it does not send it again.
func TestReturnForAResourceThatIsKnown(t *testing.T) {
	play(t, "one two", func(t *testing.T, w *world) {
		w.want(eds, "a")
		one := w.servers["one"].accept()
		one.say("1", "n1", assignment("a", 1))
		w.expectTold("a=1")
		w.servers["one"].kill()
		w.expectTold("ambient a: unreachable")
		w.wantFor("other", eds, "unknown")
		w.servers["two"].accept().hear()
		w.expectUsing("other=two* t=one")
		w.servers["one"].start()
		one = w.servers["one"].accept()
		one.say("1", "n1", assignment("a", 1))
		w.expectTold("a=1")
		w.expectUsing("other=two* t=one")

		w.wantFor("other", eds, "a")
		w.expectTold("a=1")
		w.expectUsing("other=one t=one")
		<-time.After(time.Hour)
		synctest.Wait()
		if got := w.state(eds, "unknown"); got.State != DoesNotExist {
			t.Errorf("it is %+v", got)
		}
	})
}

// What a server that is away was last known not to have counts for the target that saw
// it. Another one asks the next server.
func TestAnErrorOfAnEarlierStreamIsNotANewTargets(t *testing.T) {
	for _, c := range []struct {
		name  string
		learn func(one *conversation, w *world)
	}{
		{"expired", func(one *conversation, w *world) {
			one.say("1", "n1", cluster("a"))
			w.expectTold("a=1")
			w.expectTold("x: expired")
		}},
		{"rejected", func(one *conversation, w *world) {
			one.say("1", "n1", cluster("a"), badCluster("x"))
			w.expectTold("a=1, x: rejected")
		}},
		{"reported", func(one *conversation, w *world) {
			one.fail("1", "n1", "x", codes.NotFound, cluster("a"))
			w.expectTold("a=1, x: reported NotFound reason")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			play(t, "one two", func(_ *testing.T, w *world) {
				w.want(cds, "a", "x")
				c.learn(w.servers["one"].accept(), w)
				w.servers["one"].kill()
				w.expectTold("ambient a: unreachable")
				w.wantFor("u", cds, "x")
				two := w.servers["two"].accept()
				two.say("7", "n1", cluster("x"))
				w.expectTold("x=7")
				w.expectUsing("u=two* t=one")
			})
		})
	}
}

// The same without another server: the target waits, and is told in time.
func TestAnErrorOfAnEarlierStreamIsFoundOutAgain(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a", "x")
		one := w.servers["one"].accept()
		one.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		w.expectTold("x: expired")
		w.servers["one"].kill()
		w.expectTold("ambient a: unreachable")
		w.wantFor("u", cds, "x")
		w.expectTold("x: unreachable")
		w.servers["one"].start()
		one = w.servers["one"].accept()
		one.say("2", "n1", cluster("a", "other"))
		w.expectTold("a=2")
		began := time.Now()
		w.expectTold("x: expired")
		if got := time.Since(began); got > watchExpiry {
			t.Errorf("after %v", got)
		}
		w.wantFor("v", cds, "x")
		w.expectTold("x: expired") // at once
		w.expectNothingTold()
	})
}

// A server reports an error for a resource again on its next stream: that is the answer
// for a target that came meanwhile.
func TestAnErrorThatIsReportedAgain(t *testing.T) {
	play(t, "one", func(_ *testing.T, w *world) {
		w.want(cds, "a", "x")
		one := w.servers["one"].accept()
		one.fail("1", "n1", "x", codes.NotFound, cluster("a"))
		w.expectTold("a=1, x: reported NotFound reason")
		w.servers["one"].kill()
		w.expectTold("ambient a: unreachable")
		w.wantFor("u", cds, "x")
		w.expectTold("x: unreachable")
		w.servers["one"].start()
		w.servers["one"].accept().fail("2", "n1", "x", codes.NotFound, cluster("a", "other"))
		w.expectTold("a=2, x: reported NotFound reason")
	})
}
