package client

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/resource"
)

func blocking(w *harness, _ *Options) { w.block = make(chan struct{}) }

// The next response is received when OnUpdate has returned for the last. Requests and
// Status do not wait for it.
func TestFlowControl(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		s := w.load("a")
		s.expect(`Cluster [a] version="1" nonce="n1"`)
		s.send("2", "n2", cluster("a", "other"))
		s.expectNothing()
		w.want(cds, "b")
		s.expect(`Cluster [a b] version="1" nonce="n1"`)
		if got := w.state(cds, "a"); got.Version != "1" {
			t.Errorf("it is %+v", got)
		}
		w.block <- struct{}{}
		s.expect(`Cluster [a b] version="2" nonce="n2"`)
		w.expectUpdates("a=2")
		close(w.block)

		// A response without changes does not wait.
		for i := range 3 {
			s.send("3", strconv.Itoa(i), cluster("a", "other"))
			s.receive()
		}
		w.expectNoUpdates()
	}, blocking)
}

// HTTP/2 slows down a server that sends faster than OnUpdate returns: neither responses nor
// updates accumulate. The windows have at most 16 MB.
func TestFloodOfResponses(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		const windows = 400 // responses of 60 kB, with those in other buffers
		var sent atomic.Int64
		long := strings.Repeat("x", 60000)
		w.servers["one"].handle = func(s adsServerStream) error {
			for i := 0; ; i++ {
				v := strconv.Itoa(i)
				if err := s.Send(&discoveryv3.DiscoveryResponse{
					TypeUrl: cds.URL(), VersionInfo: v, Nonce: v, Resources: []*anypb.Any{cluster("a", long+v)},
				}); err != nil {
					return err
				}
				sent.Add(1)
			}
		}
		w.want(cds, "a")
		w.expectUpdates("a=0")
		synctest.Wait()
		before := sent.Load()
		if before > windows {
			t.Errorf("%d responses were sent while one was handled", before)
		}
		time.Sleep(time.Hour)
		w.expectNoUpdates()
		for i := range 100 {
			w.block <- struct{}{}
			w.expectUpdates("a=" + strconv.Itoa(i+1))
		}
		synctest.Wait()
		if got := sent.Load(); got > 100+windows {
			t.Errorf("%d responses were sent while 101 were handled", got)
		}
		w.expectNoUpdates()
		w.client.cancel() // the handler does not return
		close(w.block)
	}, blocking)
}

// An OnUpdate that blocks stops only its own authority.
func TestAuthoritiesDeliverIndependently(t *testing.T) {
	blocked := make(chan struct{})
	runTest(t, `{"node":{"id":"test"},"xds_servers":[`+serversJSON("one")+`],"authorities":{"x":{"xds_servers":[`+serversJSON("two")+`]}}}`,
		func(t *testing.T, w *harness) {
			const name = "xdstp://x/envoy.config.cluster.v3.Cluster/a"
			w.want(cds, "a", name)
			one, two := w.servers["one"].accept(), w.servers["two"].accept()
			one.send("1", "n1", cluster("a"))
			w.expectUpdates("a=1") // OnUpdate blocks
			for i := range 5 {
				v := strconv.Itoa(i)
				two.send(v, v, cluster(name, v))
				w.expectUpdates(name + "=" + v)
			}
			if got := w.client.Status(); len(got.Resources) != 2 {
				t.Errorf("status is %+v", got)
			}
			w.want(cds, "b")
			one.receive()
			close(blocked)
		}, func(w *harness, o *Options) {
			blocked = make(chan struct{})
			o.OnUpdate = func(u []Update) {
				w.updates <- u
				if u[0].Key.Name == "a" {
					<-blocked
				}
			}
		})
}

func TestOnUpdateMayCallTheClient(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		s := w.load("a")
		s.expect(`Cluster [a] version="1" nonce="n1"`)
		s.expect(`ClusterLoadAssignment [a] version="" nonce=""`)
		s.send("1", "n2", assignment("a", 1))
		w.expectUpdates("a=1")
	}, func(w *harness, o *Options) {
		o.OnUpdate = func(u []Update) {
			if u[0].Key.Type == cds {
				w.client.Want("t", []resource.Key{{Type: eds, Name: u[0].Cluster.AssignmentName()}}, nil)
				w.client.Status()
				w.client.Away("t", "a")
			}
			w.updates <- u
		}
	})
}

func TestCloseWaitsForOnUpdate(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		w.want(cds, "a")
		w.servers["one"].accept().send("1", "n1", cluster("a"))
		w.expectUpdates("a=1")
		closed := make(chan struct{})
		go func() { w.client.Close(); close(closed) }()
		expectNone(t, closed, "end of Close")
		close(w.block)
		<-closed
		w.want(cds, "b")
		if got := w.client.Status(); len(got.Resources) > 0 {
			t.Errorf("status is %+v", got)
		}
	}, blocking)
}

// A response that waits for a slow OnUpdate may have been sent in time.
func TestSlowOnUpdateExtendsTimeout(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		w.want(cds, "a")
		w.want(eds, "a", "b")
		s := w.servers["one"].accept()
		s.send("1", "n1", cluster("a"))
		s.send("1", "n2", assignment("a", 1))
		w.expectUpdates("a=1")
		time.Sleep(watchExpiry + 5*time.Second)
		close(w.block)
		w.expectUpdates("a=1")
		w.expectNoUpdates()
		w.expectAfter(watchExpiry-5*time.Second, "b: expired") // after a second timeout
	}, blocking)
}

// Only changed resources of a response are decoded.
func TestCachedResourcesAreNotDecoded(t *testing.T) {
	var decoded []string
	runTest(t, "one", func(t *testing.T, w *harness) {
		w.want(cds, "a", "b", "c")
		s := w.servers["one"].accept()
		s.send("1", "n1", namedPolicy("a", "pa"), namedPolicy("b", "pb"), namedPolicy("c", "pc"))
		w.expectUpdates("a=1, b=1, c=1")
		send := func(version, want string, resources ...*anypb.Any) {
			t.Helper()
			decoded = nil
			s.send(version, "n", resources...)
			synctest.Wait()
			slices.Sort(decoded)
			if got := strings.Join(slices.Compact(decoded), " "); got != want {
				t.Errorf("decoded %q, want %q", got, want)
			}
		}
		send("2", "px", namedPolicy("c", "px"), namedPolicy("a", "pa"), namedPolicy("b", "pb"))
		w.expectUpdates("c=2")
		send("3", "pc", namedPolicy("a", "pa"), namedPolicy("b", "pb"), namedPolicy("c", "pc")) // an earlier value
		w.expectUpdates("c=3")
		send("4", "", namedPolicy("a", "pa"), namedPolicy("c", "pc"))
		w.expectUpdates("ambient b: not found")
		send("5", "", namedPolicy("a", "pa"), namedPolicy("b", "pb"), namedPolicy("c", "pc"))
		w.expectUpdates("b=5")
		w.want(cds, "-a", "a")
		send("6", "pa", namedPolicy("a", "pa"), namedPolicy("b", "pb"), namedPolicy("c", "pc"))
		w.expectUpdates("a=6")
		w.expectNoUpdates()
		w.client.Close()
		if len(w.client.cache.byHash) != 3 {
			t.Errorf("%d are known", len(w.client.cache.byHash))
		}
	}, func(_ *harness, o *Options) {
		decoded = nil
		o.Policies = func(name string) *resource.PolicyTraits {
			decoded = append(decoded, name)
			return new(resource.PolicyTraits)
		}
	})
}
