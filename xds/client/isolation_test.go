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
func (w *harness) wantFor(target string, t resource.Type, names ...string) {
	add := make([]resource.Key, len(names))
	for i, n := range names {
		add[i] = resource.Key{Type: t, Name: n}
	}
	w.client.Want(target, add, nil)
}

// using returns the servers that targets use, such as "t=one typo=two*", with * for a
// fallback server.
func (w *harness) using() string {
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

func (w *harness) expectUsing(want string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.using(); got != want {
		w.t.Errorf("targets use %q, want %q", got, want)
	}
}

// A target with all its resources keeps its server when another target falls back, also if
// the fallback server lacks its resources.
func TestUnknownNameMovesNoOtherTarget(t *testing.T) {
	runTest(t, "one two", func(t *testing.T, w *harness) {
		w.want(cds, "a")
		w.want(eds, "a")
		one := w.servers["one"].accept()
		one.send("1", "n1", cluster("a"))
		w.expectUpdates("a=1")
		one.send("1", "n2", assignment("a", 1))
		w.expectUpdates("a=1")
		w.servers["one"].kill()
		w.expectUpdates("ambient a: unreachable, ambient a: unreachable")

		w.wantFor("typo", cds, "typo")
		two := w.servers["two"].accept()
		two.expect(`node=test Cluster [typo] version="" nonce=""`)
		two.send("9", "n1")
		w.expectUpdates("typo: expired")
		w.expectUsing("typo=two* t=one")
		if !w.client.Away("t", "a") || w.client.Away("typo", "typo") {
			t.Error("Away is not separate for each target")
		}
		if got := w.client.Server("t", "a"); got.URI != "passthrough:///one" {
			t.Errorf("t uses %v", got)
		}
		if e := event[FellBack](w); len(e.Targets) != 1 || e.Targets[0] != "typo" {
			t.Errorf("%+v", e)
		}
		time.Sleep(time.Hour)
		w.expectNoUpdates()

		// The target falls back when it lacks a resource.
		w.want(cds, "b")
		w.expectUpdates("a=1, a=1") // the server in use is connected
		two.expect(`Cluster [typo] version="9" nonce="n1"`)
		two.expect(`Cluster [a b typo] version="9" nonce="n1"`)
		two.expect(`ClusterLoadAssignment [a] version="" nonce=""`)
		two.send("10", "n2", cluster("a"), cluster("b"))
		w.expectUpdates("b=10") // a is unchanged
		w.expectUsing("t=two* typo=two*")
	})
}

// A later target gets the state of a resource at once: the server does not send it again
// on the stream.
func TestLaterTargetGetsCachedState(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		one := w.subscribe(cds, "a", "bad", "worse", "never")
		one.send("1", "n1", cluster("a"), cluster("bad"), badCluster("worse"))
		w.expectUpdates("a=1, bad=1, worse: rejected")
		one.receive()
		one.send("2", "n2", cluster("a"), badCluster("bad"), badCluster("worse"))
		w.expectUpdates("ambient bad: rejected")
		w.expectUpdates("never: expired")
		one.receive()
		before := w.client.Status().Updates

		w.wantFor("late", cds, "a", "bad", "worse", "never")
		w.expectUpdates("a=2, ambient bad: rejected, bad=1, never: expired, worse: rejected")
		one.expectNothing()
		for _, r := range w.client.Status().Resources {
			if r.Target == "late" && r.State != w.state(cds, r.Key.Name).State {
				t.Errorf("%s is %s for the later target", r.Key, r.State)
			}
		}
		// A value is decoded and counted once, and is shared.
		one.send("3", "n3", cluster("a", "other"), badCluster("bad"), badCluster("worse"))
		batch := await(t, w.updates, "update")
		if len(batch) != 2 || batch[0].Cluster != batch[1].Cluster || batch[0].Target == batch[1].Target {
			t.Errorf("updates %+v", batch)
		}
		after := w.client.Status().Updates
		valid := UpdateCount{"passthrough:///one", cds, UpdateValid}
		if after[valid] != before[valid]+1 {
			t.Errorf("counted %d valid, after %d", after[valid], before[valid])
		}
		// One target drops the resources: the other keeps them, without a request.
		one.receive()
		w.want(cds, "-a", "-bad", "-worse", "-never")
		one.expectNothing()
		one.send("4", "n4", cluster("a"), badCluster("bad"), badCluster("worse"))
		w.expectUpdates("a=4")
	})
}

// A fallback server that another target uses may have sent the resources: the target gets
// them at once, without a request.
func TestFallBackToServerInUse(t *testing.T) {
	runTest(t, "one two", func(_ *testing.T, w *harness) {
		w.load("a")
		w.servers["one"].kill()
		w.expectUpdates("ambient a: unreachable")
		w.wantFor("u", cds, "a", "b") // the first has sent a, but not b
		w.expectUpdates("a=1, ambient a: unreachable")
		two := w.servers["two"].accept()
		two.receive()
		two.send("7", "n1", cluster("a", "other"), cluster("b"))
		w.expectUpdates("a=7, b=7")
		w.expectUsing("u=two* t=one")
		w.want(cds, "b")
		w.expectUpdates("a=7, b=7")
		w.expectUsing("t=two* u=two*")
		two.expect(`Cluster [a b] version="7" nonce="n1"`)
		two.expectNothing()
	})
}

// A target returns to a preferred server that sends one of its resources, not one of another
// target.
func TestTargetReturnsForOwnResources(t *testing.T) {
	runTest(t, "one two", func(t *testing.T, w *harness) {
		w.servers["one"].kill()
		w.want(eds, "a")
		w.wantFor("u", eds, "b")
		two := w.servers["two"].accept()
		two.send("1", "n1", assignment("a", 1), assignment("b", 1))
		w.expectUpdates("a=1, b=1")
		w.expectUsing("t=two* u=two*")
		w.servers["one"].start()
		one := w.servers["one"].accept()
		one.send("5", "n1", assignment("b", 2))
		w.expectUpdates("b=5")
		w.expectUsing("t=two* u=one")
		if e := event[Returned](w); len(e.Targets) != 1 || e.Targets[0] != "u" {
			t.Errorf("%+v", e)
		}
		time.Sleep(time.Hour) // the first does not have a: the value of the second stays
		w.expectNoUpdates()
		two.send("2", "n2", assignment("a", 3))
		w.expectUpdates("a=2")
		one.send("6", "n2", assignment("a", 4))
		w.expectUpdates("a=6")
		w.expectUsing("t=one u=one")
	})
}

// What a preferred server sent before its outage, and need not send again, counts again
// 15 s after its first response on the new stream, however late that is.
func TestReturnToServerThatNeedNotResend(t *testing.T) {
	for _, delay := range []time.Duration{0, 20 * time.Second} {
		t.Run(delay.String(), func(t *testing.T) {
			runTest(t, "one two", func(_ *testing.T, w *harness) {
				w.want(eds, "a", "b")
				one := w.servers["one"].accept()
				one.send("1", "n1", assignment("a", 1), assignment("b", 1))
				w.expectUpdates("a=1, b=1")
				w.servers["one"].kill()
				w.expectUpdates("ambient a: unreachable, ambient b: unreachable")
				w.want(eds, "c")
				two := w.servers["two"].accept()
				two.send("7", "n1", assignment("a", 7), assignment("b", 7), assignment("c", 7))
				w.expectUpdates("a=7, b=7, c=7")
				w.servers["one"].start()
				one = w.servers["one"].accept()
				time.Sleep(delay)
				one.send("2", "n1", assignment("a", 2)) // b may follow
				w.expectUpdates("a=2")
				w.expectUsing("t=one")
				w.expectUpdates("b=1")
			})
		})
	}
}

// A preferred server that never sent a resource does not withdraw it when a target returns,
// also not with a response for another target.
func TestPreferredServerWithoutResource(t *testing.T) {
	runTest(t, "one:fail_on_data_errors two", func(t *testing.T, w *harness) {
		w.servers["one"].kill()
		w.want(cds, "a", "b")
		two := w.servers["two"].accept()
		two.send("1", "n1", cluster("a"), cluster("b"))
		w.expectUpdates("a=1, b=1")
		w.servers["one"].start()
		one := w.servers["one"].accept()
		one.send("1", "n1", cluster("a", "other"))
		w.expectUpdates("a=1, ambient b: not found")
		w.expectUsing("t=one")
		w.wantFor("u", cds, "c")
		one.send("2", "n2", cluster("a", "other"), cluster("c"))
		w.expectUpdates("c=2")
		w.expectNoUpdates()
		if got := w.state(cds, "b"); got.Version != "1" {
			t.Errorf("b is %+v", got)
		}
	})
}

// A timeout that expired while a server was not in use is reported when it is used again.
func TestTimeoutWhileNotInUse(t *testing.T) {
	runTest(t, "one two", func(_ *testing.T, w *harness) {
		w.servers["one"].kill()
		w.want(eds, "a", "b")
		two := w.servers["two"].accept()
		two.send("1", "n1", assignment("a", 1))
		w.expectUpdates("a=1")
		w.servers["one"].start()
		one := w.servers["one"].accept()
		one.receive()
		two.end <- nil
		w.servers["two"].kill() // before the timeout of b
		one.send("1", "n1", assignment("other", 1))
		time.Sleep(14 * time.Second)
		w.expectUsing("t=two*")
		time.Sleep(time.Minute) // after the timeout on the first
		one.send("2", "n2", assignment("a", 2))
		for {
			if got := w.nextUpdates(); strings.Contains(got, "a=2") {
				break
			}
		}
		w.expectUsing("t=one")
		w.expectState(eds, "b", DoesNotExist)
	})
}

// A target returns to a preferred server for a resource that this server sent to another
// target.
func TestReturnForCachedResource(t *testing.T) {
	runTest(t, "one two", func(t *testing.T, w *harness) {
		w.want(eds, "a")
		one := w.servers["one"].accept()
		one.send("1", "n1", assignment("a", 1))
		w.expectUpdates("a=1")
		w.servers["one"].kill()
		w.expectUpdates("ambient a: unreachable")
		w.wantFor("other", eds, "unknown")
		w.servers["two"].accept().receive()
		w.expectUsing("other=two* t=one")
		w.servers["one"].start()
		one = w.servers["one"].accept()
		one.send("1", "n1", assignment("a", 1))
		w.expectUpdates("a=1")
		w.expectUsing("other=two* t=one")

		w.wantFor("other", eds, "a")
		w.expectUpdates("a=1")
		w.expectUsing("other=one t=one")
		<-time.After(time.Hour)
		synctest.Wait()
		w.expectState(eds, "unknown", DoesNotExist)
	})
}

// An error of a server that is now unreachable counts for the target that got it. Another
// target falls back.
func TestEarlierErrorCausesFallback(t *testing.T) {
	for _, c := range []struct {
		name  string
		learn func(one *serverStream, w *harness)
	}{
		{"expired", func(one *serverStream, w *harness) {
			one.send("1", "n1", cluster("a"))
			w.expectUpdates("a=1")
			w.expectUpdates("x: expired")
		}},
		{"rejected", func(one *serverStream, w *harness) {
			one.send("1", "n1", cluster("a"), badCluster("x"))
			w.expectUpdates("a=1, x: rejected")
		}},
		{"reported", func(one *serverStream, w *harness) {
			one.fail("1", "n1", "x", codes.NotFound, cluster("a"))
			w.expectUpdates("a=1, x: reported NotFound reason")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			runTest(t, "one two", func(_ *testing.T, w *harness) {
				w.want(cds, "a", "x")
				c.learn(w.servers["one"].accept(), w)
				w.servers["one"].kill()
				w.expectUpdates("ambient a: unreachable")
				w.wantFor("u", cds, "x")
				two := w.servers["two"].accept()
				two.send("7", "n1", cluster("x"))
				w.expectUpdates("x=7")
				w.expectUsing("u=two* t=one")
			})
		})
	}
}

// Without another server, the target gets the error after a timeout.
func TestEarlierErrorTimesOutAgain(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		w.want(cds, "a", "x")
		one := w.servers["one"].accept()
		one.send("1", "n1", cluster("a"))
		w.expectUpdates("a=1")
		w.expectUpdates("x: expired")
		w.servers["one"].kill()
		w.expectUpdates("ambient a: unreachable")
		w.wantFor("u", cds, "x")
		w.expectUpdates("x: unreachable")
		w.servers["one"].start()
		one = w.servers["one"].accept()
		one.send("2", "n1", cluster("a", "other"))
		w.expectUpdates("a=2")
		began := time.Now()
		w.expectUpdates("x: expired")
		if got := time.Since(began); got > watchExpiry {
			t.Errorf("after %v", got)
		}
		w.wantFor("v", cds, "x")
		w.expectUpdates("x: expired") // at once
		w.expectNoUpdates()
	})
}

// A server reports an error again on its next stream: a target that was added in between
// gets it.
func TestErrorReportedAgain(t *testing.T) {
	runTest(t, "one", func(_ *testing.T, w *harness) {
		w.want(cds, "a", "x")
		one := w.servers["one"].accept()
		one.fail("1", "n1", "x", codes.NotFound, cluster("a"))
		w.expectUpdates("a=1, x: reported NotFound reason")
		w.servers["one"].kill()
		w.expectUpdates("ambient a: unreachable")
		w.wantFor("u", cds, "x")
		w.expectUpdates("x: unreachable")
		w.servers["one"].start()
		w.servers["one"].accept().fail("2", "n1", "x", codes.NotFound, cluster("a", "other"))
		w.expectUpdates("a=2, x: reported NotFound reason")
	})
}
