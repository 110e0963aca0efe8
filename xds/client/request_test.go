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
	runTest(t, "one", func(_ *testing.T, w *harness) {
		w.want(cds, "a")
		s := w.servers["one"].accept()
		s.expect(`node=test Cluster [a] version="" nonce=""`)
		s.expectNothing()

		s.send("1", "n1", cluster("a"))
		w.expectUpdates("a=1")
		s.expect(`Cluster [a] version="1" nonce="n1"`)

		// A NACK keeps the accepted version.
		s.send("2", "n2", badCluster("a"))
		w.expectUpdates("ambient a: rejected")
		s.expect(`Cluster [a] version="1" nonce="n2" NACK`)

		s.send("3", "n3", cluster("a", "other"))
		w.expectUpdates("a=3")
		s.expect(`Cluster [a] version="3" nonce="n3"`)
		s.expectNothing()
		w.expectNoUpdates()
	})
}

func TestNodeSentOncePerStream(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
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

// A new stream has the version of the last, and no nonce.
func TestNewStreamRequestsAllWithVersion(t *testing.T) {
	runTest(t, "one", func(_ *testing.T, w *harness) {
		w.want(cds, "b", "a")
		s := w.subscribe(eds, "a")
		s.receive()
		s.send("4", "n1", cluster("a"), cluster("b"))
		s.expect(`Cluster [a b] version="4" nonce="n1"`)
		s.send("5", "n2", badCluster("a"), cluster("b"))
		s.expect(`Cluster [a b] version="4" nonce="n2" NACK`)
		s.end <- nil

		w.want(cds, "c")
		s = w.servers["one"].accept()
		s.expect(`node=test Cluster [a b c] version="4" nonce=""`)
		s.expect(`ClusterLoadAssignment [a] version="" nonce=""`)
		s.expectNothing()
	})
}

func TestVersionPerServer(t *testing.T) {
	runTest(t, "one two", func(_ *testing.T, w *harness) {
		s := w.subscribe(cds, "a")
		s.send("4", "n1", cluster("a"))
		w.expectUpdates("a=4")
		w.servers["one"].kill()
		event[Disconnected](w)
		w.want(cds, "b")
		event[FellBack](w)
		w.servers["two"].accept().expect(`node=test Cluster [a b] version="" nonce=""`)
		w.servers["one"].start()
		w.servers["one"].accept().expect(`node=test Cluster [a b] version="4" nonce=""`)
	})
}

func TestNACKDetailNamesResources(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		s := w.subscribe(cds, "bad", "good", "worse")
		broken := cluster("x")
		broken.Value = []byte{0xff}
		s.send("1", "n1", badCluster("bad"), cluster("good"), badCluster("worse"), broken, assignment("elsewhere", 1))
		w.expectUpdates("bad: rejected, good=1, worse: rejected")
		r := await(t, s.requests, "request")
		if got := describeRequest(r); got != `Cluster [bad good worse] version="" nonce="n1" NACK` {
			t.Fatal(got)
		}
		text := r.GetErrorDetail().GetMessage()
		for _, want := range []string{"Cluster/bad: lb_policy", "Cluster/worse: lb_policy", "resources[3]: ", "resources[4]: "} {
			if !strings.Contains(text, want) {
				t.Errorf("the detail %q lacks %q", text, want)
			}
		}
		if strings.Contains(text, "good") {
			t.Errorf("the detail %q names a valid resource", text)
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

func TestNACKDetailLimit(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		s := w.subscribe(cds, "a")
		for i := range 20 {
			s.send("x", "n", badCluster(strings.Repeat("é", 100000)+string(rune('a'+i))), badCluster("last"))
			text := await(t, s.requests, "request").GetErrorDetail().GetMessage()
			if len(text) > maxNACKDetail+1024 || !strings.Contains(text, "Cluster/éé") {
				t.Fatalf("the detail has %d bytes", len(text))
			}
		}
	})
}

func TestChangesShareRequest(t *testing.T) {
	runTest(t, "one", func(_ *testing.T, w *harness) {
		s := w.subscribe(cds, "a")
		w.client.post(func() {
			// The owner runs this, and handles the calls together.
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

func TestDuplicateWant(t *testing.T) {
	runTest(t, "one", func(_ *testing.T, w *harness) {
		w.want(cds, "a", "a")
		s := w.servers["one"].accept()
		s.expect(`node=test Cluster [a] version="" nonce=""`)
		w.want(cds, "a")
		w.want(cds, "-never")
		s.expectNothing()
	})
}

// A server does not send a resource again whose name stays in the request. So one request
// omits a name that was dropped and is wanted again, even if both happen at once.
func TestResubscribe(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		s := w.load("a", "b")
		s.expect(`Cluster [a b] version="1" nonce="n1"`)
		w.want(cds, "-a")
		w.expectState(cds, "a", "")
		w.want(cds, "a")
		w.expectState(cds, "a", Requested, "")
		s.expect(`Cluster [b] version="1" nonce="n1"`)
		s.expect(`Cluster [a b] version="1" nonce="n1"`)
		s.expectNothing()
		w.expectNoUpdates()
		s.send("1", "n2", cluster("a"), cluster("b"))
		w.expectUpdates("a=1")

		// A name that was never in a request is not omitted.
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

// A resource that was dropped and wanted again without a stream is requested on the next one.
func TestResubscribeWithoutStream(t *testing.T) {
	runTest(t, "one", func(_ *testing.T, w *harness) {
		w.load("a", "b")
		w.servers["one"].kill()
		w.expectUpdates("ambient a: unreachable, ambient b: unreachable")
		w.want(cds, "-a", "a")
		w.expectUpdates("a: unreachable")
		w.servers["one"].start()
		s := w.servers["one"].accept()
		s.expect(`node=test Cluster [a b] version="1" nonce=""`)
		s.expectNothing()
	})
}

func TestUnsubscribeLastResource(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		w.want(cds, "a")
		s := w.subscribe(eds, "a")
		s.receive()
		s.send("1", "n1", cluster("a"))
		w.expectUpdates("a=1")
		s.expect(`Cluster [a] version="1" nonce="n1"`)
		w.want(cds, "-a")
		s.expect(`Cluster [] version="1" nonce="n1"`)

		// A new stream does not begin with an empty request, which would request all. A
		// response is not answered.
		s.end <- nil
		s = w.servers["one"].accept()
		s.expect(`node=test ClusterLoadAssignment [a] version="" nonce=""`)
		s.send("2", "n1", cluster("a"), cluster("b"))
		s.expectNothing()
		w.expectNoUpdates()

		// The connection ends with the last subscription.
		w.want(eds, "-a")
		<-s.stream.Context().Done()
		expectNone(t, w.servers["one"].streams, "stream")
		w.expectAway("a", true)
		// A new connection starts without a version.
		w.want(cds, "a")
		w.servers["one"].accept().expect(`node=test Cluster [a] version="" nonce=""`)
	})
}

// NACKs of the same version are delayed, for a server that answers each with the same.
func TestRepeatedNACKIsDelayed(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		w.want(cds, "a")
		s := w.subscribe(eds, "a")
		s.receive()
		s.send("1", "n1", badCluster("a"))
		w.expectUpdates("a: rejected")
		s.expect(`Cluster [a] version="" nonce="n1" NACK`)
		began := time.Now()
		for i := range 5 {
			s.send("1", "n2", badCluster("a"))
			s.expect(`Cluster [a] version="" nonce="n2" NACK`)
			w.expectElapsed(began, time.Duration(i+1)*nackInterval)
		}
		// Other types and another version are not delayed.
		s.send("1", "n3", badCluster("a"))
		s.send("1", "n4", badCluster("a"))
		s.send("1", "e1", assignment("a", 1))
		s.expect(`ClusterLoadAssignment [a] version="1" nonce="e1"`)
		w.expectUpdates("a=1")
		s.send("2", "n5", cluster("a"))
		s.expect(`Cluster [a] version="2" nonce="n5"`)
		w.expectElapsed(began, 5*nackInterval)
		w.expectUpdates("a=2")
		w.expectNoUpdates()

		// The first request of the next stream is not, either.
		for range 2 {
			s.send("3", "n6", badCluster("a"))
		}
		w.expectUpdates("ambient a: rejected")
		s.receive()
		s.expectNothing()
		s.end <- nil
		s = w.servers["one"].accept()
		s.expect(`node=test Cluster [a] version="2" nonce=""`)
		if !time.Now().Equal(s.opened) {
			t.Errorf("requested after %v", time.Since(s.opened))
		}
	})
}

// While a server does not read, all changes wait as one request per type.
func TestServerThatDoesNotRead(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		read := make(chan struct{})
		last := make(chan string, 1000)
		w.servers["one"].handle = func(s adsServerStream) error {
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
				// Each causes a request, until the windows are full.
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
