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

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

func blocking(w *world, _ *Options) { w.block = make(chan struct{}) }

// The next response is received when the updates of the last were taken. Requests
// do not wait, nor does anybody who asks for the status.
func TestTheNextResponseWaits(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a")
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		s.expect(`Cluster [a] version="1" nonce="n1"`)
		s.say("2", "n2", cluster("a", "other"))
		s.expectNothing()
		w.want(cds, "b")
		s.expect(`Cluster [a b] version="1" nonce="n1"`)
		if got := w.state(cds, "a"); got.Version != "1" {
			t.Errorf("it is %+v", got)
		}
		w.block <- struct{}{}
		s.expect(`Cluster [a b] version="2" nonce="n2"`)
		w.expectTold("a=2")
		close(w.block)

		// What changes nothing is taken at once.
		for i := range 3 {
			s.say("3", strconv.Itoa(i), cluster("a", "other"))
			s.hear()
		}
		w.expectNothingTold()
	}, blocking)
}

// A flood is held back by the connection: neither responses nor updates pile up. Its
// windows are 16 MB at most.
func TestAFlood(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		const windows = 400 // of responses of 60 kB, with what else is on its way
		var sent atomic.Int64
		long := strings.Repeat("x", 60000)
		w.servers["one"].handle = func(s stub) error {
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
		w.expectTold("a=0")
		synctest.Wait()
		before := sent.Load()
		if before > windows {
			t.Errorf("%d responses went while one was taken", before)
		}
		time.Sleep(time.Hour)
		w.expectNothingTold()
		for i := range 100 {
			w.block <- struct{}{}
			w.expectTold("a=" + strconv.Itoa(i+1))
		}
		synctest.Wait()
		if got := sent.Load(); got > 100+windows {
			t.Errorf("%d responses went while 101 were taken", got)
		}
		w.expectNothingTold()
		w.client.cancel() // the server never ends by itself
		close(w.block)
	}, blocking)
}

// Who is stuck in OnUpdate stops its own authority alone.
func TestAuthoritiesDoNotWaitForEachOther(t *testing.T) {
	stuck := make(chan struct{})
	play(t, `{"node":{"id":"test"},"xds_servers":[`+serversJSON("one")+`],"authorities":{"x":{"xds_servers":[`+serversJSON("two")+`]}}}`,
		func(t *testing.T, w *world) {
			const name = "xdstp://x/envoy.config.cluster.v3.Cluster/a"
			w.want(cds, "a", name)
			one, two := w.servers["one"].accept(), w.servers["two"].accept()
			one.say("1", "n1", cluster("a"))
			w.expectTold("a=1") // and is stuck
			for i := range 5 {
				v := strconv.Itoa(i)
				two.say(v, v, cluster(name, v))
				w.expectTold(name + "=" + v)
			}
			if got := w.client.Status(); len(got.Resources) != 2 {
				t.Errorf("status is %+v", got)
			}
			w.want(cds, "b")
			one.hear()
			close(stuck)
		}, func(w *world, o *Options) {
			stuck = make(chan struct{})
			o.OnUpdate = func(u []Update) {
				w.updates <- u
				if u[0].Key.Name == "a" {
					<-stuck
				}
			}
		})
}

func TestOnUpdateMayCallTheClient(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a")
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		s.expect(`Cluster [a] version="1" nonce="n1"`)
		s.expect(`ClusterLoadAssignment [a] version="" nonce=""`)
		s.say("1", "n2", assignment("a", 1))
		w.expectTold("a=1")
	}, func(w *world, o *Options) {
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
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a")
		w.servers["one"].accept().say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		closed := make(chan struct{})
		go func() { w.client.Close(); close(closed) }()
		nothing(t, closed, "end of Close")
		close(w.block)
		<-closed
		w.want(cds, "b")
		if got := w.client.Status(); len(got.Resources) > 0 {
			t.Errorf("status is %+v", got)
		}
	}, blocking)
}

// What waits behind an update that takes its time may have been sent in time.
func TestTheTimeOfAServerIsNotThatOfOnUpdate(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a")
		w.want(eds, "a", "b")
		s := w.servers["one"].accept()
		s.say("1", "n1", cluster("a"))
		s.say("1", "n2", assignment("a", 1))
		w.expectTold("a=1")
		time.Sleep(watchExpiry + 5*time.Second)
		close(w.block)
		w.expectTold("a=1")
		w.expectNothingTold()
		began := time.Now()
		w.expectTold("b: expired") // it has its time once more
		if got := time.Since(began); got != watchExpiry-5*time.Second {
			t.Errorf("after %v", got)
		}
	}, blocking)
}

// Of all that is sent again, only what changed is decoded again.
func TestWhatIsKnownIsNotDecodedAgain(t *testing.T) {
	var decoded []string
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a", "b", "c")
		s := w.servers["one"].accept()
		s.say("1", "n1", namedPolicy("a", "pa"), namedPolicy("b", "pb"), namedPolicy("c", "pc"))
		w.expectTold("a=1, b=1, c=1")
		say := func(version, want string, resources ...*anypb.Any) {
			t.Helper()
			decoded = nil
			s.say(version, "n", resources...)
			synctest.Wait()
			slices.Sort(decoded)
			if got := strings.Join(slices.Compact(decoded), " "); got != want {
				t.Errorf("decoded %q, want %q", got, want)
			}
		}
		say("2", "px", namedPolicy("c", "px"), namedPolicy("a", "pa"), namedPolicy("b", "pb"))
		w.expectTold("c=2")
		say("3", "pc", namedPolicy("a", "pa"), namedPolicy("b", "pb"), namedPolicy("c", "pc")) // what it was once
		w.expectTold("c=3")
		say("4", "", namedPolicy("a", "pa"), namedPolicy("c", "pc"))
		w.expectTold("ambient b: not found")
		say("5", "", namedPolicy("a", "pa"), namedPolicy("b", "pb"), namedPolicy("c", "pc"))
		w.expectTold("b=5")
		w.want(cds, "-a", "a")
		say("6", "pa", namedPolicy("a", "pa"), namedPolicy("b", "pb"), namedPolicy("c", "pc"))
		w.expectTold("a=6")
		w.expectNothingTold()
		w.client.Close()
		if len(w.client.cache.byHash) != 3 {
			t.Errorf("%d are known", len(w.client.cache.byHash))
		}
	}, func(_ *world, o *Options) {
		decoded = nil
		o.Policies = func(name string) (decode.ConfigJudge, bool) { decoded = append(decoded, name); return nil, true }
	})
}
