package client

import (
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	cds = resource.TypeCluster
	eds = resource.TypeAssignment
)

func TestRequestsOfOneResource(t *testing.T) {
	play(t, "one", func(_ *testing.T, w *world) {
		w.want(cds, "a")
		s := w.servers["one"].accept()
		s.expect(`node=test Cluster [a] version="" nonce=""`)
		s.expectNothing()

		s.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		s.expect(`Cluster [a] version="1" nonce="n1"`)

		// A refused one leaves the version, and is told from the last good one.
		s.say("2", "n2", badCluster("a"))
		w.expectTold("ambient a: rejected")
		s.expect(`Cluster [a] version="1" nonce="n2" NACK`)

		s.say("3", "n3", cluster("a", "other"))
		w.expectTold("a=3")
		s.expect(`Cluster [a] version="3" nonce="n3"`)
		s.expectNothing()
		w.expectNothingTold()
	})
}

func TestNodeIsSentOnceAStream(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a")
		w.want(eds, "a")
		for range 2 {
			s := w.servers["one"].accept()
			r := await(t, s.requests, "request")
			if n := r.GetNode(); n.GetId() != "test" || n.GetUserAgentName() != "lbd" || n.GetUserAgentVersion() != "1" || len(n.GetClientFeatures()) == 0 {
				t.Errorf("node is %v", n)
			}
			s.expect(`ClusterLoadAssignment [a] version="" nonce=""`)
			s.end <- nil
		}
	})
}

func TestVersionsAndNoncesAreOfTypes(t *testing.T) {
	play(t, "one", func(_ *testing.T, w *world) {
		w.want(cds, "a")
		w.want(eds, "a", "b")
		s := w.servers["one"].accept()
		s.expect(`node=test Cluster [a] version="" nonce=""`)
		s.expect(`ClusterLoadAssignment [a b] version="" nonce=""`)
		s.say("1", "n1", cluster("a"))
		s.expect(`Cluster [a] version="1" nonce="n1"`)
		s.say("7", "n2", assignment("a", 1))
		s.expect(`ClusterLoadAssignment [a b] version="7" nonce="n2"`)
		w.want(cds, "c")
		s.expect(`Cluster [a c] version="1" nonce="n1"`)
	})
}

// What the client has, it still has on a new stream; the nonce is the stream's.
func TestANewStreamAsksForAllWithTheVersion(t *testing.T) {
	play(t, "one", func(_ *testing.T, w *world) {
		w.want(cds, "b", "a")
		w.want(eds, "a")
		s := w.servers["one"].accept()
		s.hear()
		s.hear()
		s.say("4", "n1", cluster("a"), cluster("b"))
		s.expect(`Cluster [a b] version="4" nonce="n1"`)
		s.say("5", "n2", badCluster("a"), cluster("b"))
		s.expect(`Cluster [a b] version="4" nonce="n2" NACK`)
		s.end <- nil

		w.want(cds, "c")
		s = w.servers["one"].accept()
		s.expect(`node=test Cluster [a b c] version="4" nonce=""`)
		s.expect(`ClusterLoadAssignment [a] version="" nonce=""`)
		s.expectNothing()
	})
}

func TestVersionsAreOfServers(t *testing.T) {
	play(t, "one two", func(_ *testing.T, w *world) {
		w.want(cds, "a")
		s := w.servers["one"].accept()
		s.hear()
		s.say("4", "n1", cluster("a"))
		w.expectTold("a=4")
		w.servers["one"].kill()
		event[Disconnected](w)
		w.want(cds, "b")
		event[FellBack](w)
		w.servers["two"].accept().expect(`node=test Cluster [a b] version="" nonce=""`)
		w.servers["one"].start()
		w.servers["one"].accept().expect(`node=test Cluster [a b] version="4" nonce=""`)
	})
}

func TestRefusalsNameEachResource(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "bad", "good", "worse")
		s := w.servers["one"].accept()
		s.hear()
		broken := cluster("x")
		broken.Value = []byte{0xff}
		s.say("1", "n1", badCluster("bad"), cluster("good"), badCluster("worse"), broken, assignment("elsewhere", 1))
		w.expectTold("bad: rejected, good=1, worse: rejected")
		r := await(t, s.requests, "request")
		if got := describeRequest(r); got != `Cluster [bad good worse] version="" nonce="n1" NACK` {
			t.Fatal(got)
		}
		text := r.GetErrorDetail().GetMessage()
		for _, want := range []string{"Cluster/bad: lb_policy", "Cluster/worse: lb_policy", "resources[3]: ", "resources[4]: "} {
			if !strings.Contains(text, want) {
				t.Errorf("says %q, without %q", text, want)
			}
		}
		if strings.Contains(text, "good") {
			t.Errorf("says %q, of what is good", text)
		}
		if r.GetErrorDetail().GetCode() != 3 { // INVALID_ARGUMENT
			t.Errorf("code %d", r.GetErrorDetail().GetCode())
		}
		counts := w.client.Status().Updates
		if n := counts[UpdateCount{"passthrough:///one", cds, UpdateInvalid}]; n != 4 {
			t.Errorf("counted %d invalid, want 2 and 2 without a name", n)
		}
	})
}

func TestRefusalsAreNotEndless(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a")
		s := w.servers["one"].accept()
		s.hear()
		for i := range 20 {
			s.say("x", "n", badCluster(strings.Repeat("é", 100000)+string(rune('a'+i))), badCluster("last"))
			text := await(t, s.requests, "request").GetErrorDetail().GetMessage()
			if len(text) > maxNACKDetail+1024 || !strings.Contains(text, "Cluster/éé") {
				t.Fatalf("says %d bytes", len(text))
			}
		}
	})
}

func TestChangesComeTogether(t *testing.T) {
	play(t, "one", func(_ *testing.T, w *world) {
		w.want(cds, "a")
		s := w.servers["one"].accept()
		s.hear()
		w.client.post(func() {
			// The owner is here, so that what follows meets it together.
			for _, n := range []string{"b", "c", "-a", "d", "-c"} {
				w.want(cds, n)
			}
			w.want(eds, "x", "y")
		})
		s.expect(`Cluster [b d] version="" nonce=""`)
		s.expect(`ClusterLoadAssignment [x y] version="" nonce=""`)
		s.expectNothing()
	})
}

func TestWhatIsWantedTwiceIsAskedForOnce(t *testing.T) {
	play(t, "one", func(_ *testing.T, w *world) {
		w.want(cds, "a", "a")
		s := w.servers["one"].accept()
		s.expect(`node=test Cluster [a] version="" nonce=""`)
		w.want(cds, "a")
		w.want(cds, "-never")
		s.expectNothing()
	})
}

// A server does not send again what it is asked for all the time. So what was
// dropped and is wanted again is left out once, even where both come together.
func TestDroppedAndWantedAgain(t *testing.T) {
	play(t, "one", func(_ *testing.T, w *world) {
		w.want(cds, "a", "b")
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "n1", cluster("a"), cluster("b"))
		w.expectTold("a=1, b=1")
		s.expect(`Cluster [a b] version="1" nonce="n1"`)
		w.want(cds, "-a", "a")
		s.expect(`Cluster [b] version="1" nonce="n1"`)
		s.expect(`Cluster [a b] version="1" nonce="n1"`)
		s.expectNothing()
		w.expectNothingTold()
		s.say("1", "n2", cluster("a"), cluster("b"))
		w.expectTold("a=1")

		// Dropped and wanted before it was ever asked for, it is nothing new.
		s.expect(`Cluster [a b] version="1" nonce="n2"`)
		w.client.post(func() {
			w.want(cds, "c")
			w.want(cds, "-c")
			w.want(cds, "c")
		})
		s.expect(`Cluster [a b c] version="1" nonce="n2"`)
		s.expectNothing()
	})
}

// What was dropped and wanted again while there was no stream is asked for on the
// next as all else.
func TestDroppedAndWantedAgainWithoutAStream(t *testing.T) {
	play(t, "one", func(_ *testing.T, w *world) {
		w.want(cds, "a", "b")
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "n1", cluster("a"), cluster("b"))
		w.expectTold("a=1, b=1")
		w.servers["one"].kill()
		w.expectTold("ambient a: unreachable, ambient b: unreachable")
		w.want(cds, "-a", "a")
		w.expectTold("a: unreachable")
		w.servers["one"].start()
		s = w.servers["one"].accept()
		s.expect(`node=test Cluster [a b] version="1" nonce=""`)
		s.expectNothing()
	})
}

func TestTheLastOneIsDropped(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a")
		w.want(eds, "a")
		s := w.servers["one"].accept()
		s.hear()
		s.hear()
		s.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		s.expect(`Cluster [a] version="1" nonce="n1"`)
		w.want(cds, "-a")
		s.expect(`Cluster [] version="1" nonce="n1"`)

		// On a new stream, none is not asked for: that would mean all. Nor is
		// what comes all the same answered.
		s.end <- nil
		s = w.servers["one"].accept()
		s.expect(`node=test ClusterLoadAssignment [a] version="" nonce=""`)
		s.say("2", "n1", cluster("a"), cluster("b"))
		s.expectNothing()
		w.expectNothingTold()

		// With the last of all, the connection ends.
		w.want(eds, "-a")
		<-s.stream.Context().Done()
		nothing(t, w.servers["one"].streams, "stream")
		if !w.client.Away("t", "a") {
			t.Error("not away without a stream")
		}
		// And begins again. The version was the old connection's.
		w.want(cds, "a")
		w.servers["one"].accept().expect(`node=test Cluster [a] version="" nonce=""`)
	})
}

func TestDroppedResourcesLeaveTheCache(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a", "b")
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "n1", cluster("a"), cluster("b"))
		w.expectTold("a=1, b=1")
		w.want(cds, "-a")
		s.hear()
		s.hear()
		if got := w.state(cds, "a"); got.State != "" {
			t.Errorf("still there: %v", got)
		}
		w.want(cds, "a")
		if got := w.state(cds, "a"); got.State != Requested || got.Version != "" {
			t.Errorf("it is %+v", got)
		}
		w.expectNothingTold()
	})
}

// A NACK is not said again and again to a server that answers it with the same.
func TestTheSameRefusalIsPaced(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a")
		w.want(eds, "a")
		s := w.servers["one"].accept()
		s.hear()
		s.hear()
		s.say("1", "n1", badCluster("a"))
		w.expectTold("a: rejected")
		s.expect(`Cluster [a] version="" nonce="n1" NACK`)
		began := time.Now()
		for i := range 5 {
			s.say("1", "n2", badCluster("a"))
			s.expect(`Cluster [a] version="" nonce="n2" NACK`)
			if got := time.Since(began); got != time.Duration(i+1)*nackInterval {
				t.Fatalf("said after %v", got)
			}
		}
		// It holds nothing else up: not other types, not another version.
		s.say("1", "n3", badCluster("a"))
		s.say("1", "n4", badCluster("a"))
		s.say("1", "e1", assignment("a", 1))
		s.expect(`ClusterLoadAssignment [a] version="1" nonce="e1"`)
		w.expectTold("a=1")
		s.say("2", "n5", cluster("a"))
		s.expect(`Cluster [a] version="2" nonce="n5"`)
		if got := time.Since(began); got != 5*nackInterval {
			t.Errorf("said after %v", got)
		}
		w.expectTold("a=2")
		w.expectNothingTold()

		// Nor the first request of the next stream.
		for range 2 {
			s.say("3", "n6", badCluster("a"))
		}
		w.expectTold("ambient a: rejected")
		s.hear()
		s.expectNothing()
		s.end <- nil
		s = w.servers["one"].accept()
		s.expect(`node=test Cluster [a] version="2" nonce=""`)
		if !time.Now().Equal(s.opened) {
			t.Errorf("asked after %v", time.Since(s.opened))
		}
	})
}

// While a server does not read, any number of changes wait as one request a type.
func TestRequestsWaitForAServerThatDoesNotRead(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		read := make(chan struct{})
		last := make(chan string, 1000)
		w.servers["one"].handle = func(s stub) error {
			<-read
			for {
				r, err := s.Recv()
				if err != nil {
					return err
				}
				r.ResourceNames = r.ResourceNames[:min(1, len(r.ResourceNames))]
				last <- describeRequest(r)
			}
		}
		long := strings.Repeat("x", 1<<10)
		w.want(eds, "a")
		for i := range 2000 {
			w.want(cds, "a"+string(rune(i+1000))+long)
			if i%100 == 0 {
				// Each of them makes a request, until the windows are full.
				w.client.Status()
			}
		}
		w.want(cds, "0")
		close(read)
		seen := 0
		for {
			seen++
			if r := await(t, last, "request"); strings.Contains(r, `Cluster [0]`) {
				break
			}
		}
		if seen > 30 {
			t.Errorf("%d requests of 2001 changes", seen)
		}
	})
}
