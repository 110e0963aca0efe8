package client

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// A type that nobody knows is neither accepted nor refused, as in gRPC; nor is one
// that was not asked for.
func TestUnknownTypes(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a")
		s := w.servers["one"].accept()
		s.hear()
		s.sayOf("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "1", "n1", cluster("a"))
		s.sayOf("", "1", "n2")
		s.sayOf(resource.TypeRoutes.URL(), "1", "n3", cluster("a"))
		s.say("1", "n4", assignment("a", 1))
		s.expectNothing()
		w.expectNothingTold()
		if w.client.Away("t", "a") {
			t.Error("away, although the server speaks")
		}
		s.say("1", "n5", cluster("a"))
		w.expectTold("a=1")
		s.expect(`Cluster [a] version="1" nonce="n5"`)
	})
}

func TestWhatNobodyAskedFor(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a")
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "n1", cluster("a"), cluster("b"), cluster("c"))
		w.expectTold("a=1")
		s.expect(`Cluster [a] version="1" nonce="n1"`)
		// Bad is bad, whoever wants it.
		s.say("2", "n2", cluster("a"), badCluster("b"))
		s.expect(`Cluster [a] version="1" nonce="n2" NACK`)
		w.expectNothingTold()
		if n := len(w.client.Status().Resources); n != 1 {
			t.Errorf("%d resources", n)
		}
	})
}

func TestNoNonce(t *testing.T) {
	play(t, "one", func(_ *testing.T, w *world) {
		w.want(cds, "a")
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "", cluster("a"))
		w.expectTold("a=1")
		s.expect(`Cluster [a] version="1" nonce=""`)
		s.say("", "", badCluster("a"))
		w.expectTold("ambient a: rejected")
		s.expect(`Cluster [a] version="1" nonce="" NACK`)
	})
}

func TestTheSameResourceTwiceInAResponse(t *testing.T) {
	play(t, "one", func(_ *testing.T, w *world) {
		w.want(cds, "a", "b")
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "n1", cluster("a"), badCluster("b"), cluster("a", "other"), cluster("b"))
		w.expectTold("a=1, b=1")
		s.expect(`Cluster [a b] version="" nonce="n1" NACK`)
	})
}

// Each way to cut a resource short is refused, or is a good one.
func TestHalfResources(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(eds, "a")
		s := w.servers["one"].accept()
		s.hear()
		s.say("0", "n", assignment("a", 1))
		s.hear()
		w.expectTold("a=0")
		good := pack(assignmentProto("a", 3, 1))
		for i := range len(good.GetValue()) {
			s.say(strings.Repeat("v", i+1), "n", &anypb.Any{TypeUrl: good.GetTypeUrl(), Value: good.GetValue()[:i]})
			r := await(t, s.requests, "request")
			refused := r.GetErrorDetail() != nil
			if !refused && r.GetVersionInfo() == "0" {
				t.Fatalf("cut at %d: %s", i, describeRequest(r))
			}
		}
		if got := w.state(eds, "a"); got.Version == "" {
			t.Errorf("nothing is good any more: %+v", got)
		}
	})
}

func TestGarbageOnTheStream(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a")
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		s.garbage(garbage("\xff\xff\xff this is no protobuf"))
		e := event[Disconnected](w)
		if status.Code(e.Err) != codes.Internal {
			t.Errorf("ended with %v", e.Err)
		}
		// It had answered, so that is nobody's business yet. One that answers
		// with nothing else is not reached.
		for range 3 {
			s = w.servers["one"].accept()
			s.garbage(garbage("\xff\xff\xff this is no protobuf"))
		}
		w.expectTold("ambient a: unreachable")
		s = w.servers["one"].accept()
		s.expect(`node=test Cluster [a] version="1" nonce=""`)
		w.expectNothingTold()
	})
}

// What is larger than any response may be is an error that is told: it would be as
// large at once again.
func TestTooLargeAResponse(t *testing.T) {
	play(t, "one two", func(t *testing.T, w *world) {
		large := make([]byte, 1<<20)
		w.want(cds, "a")
		w.want(eds, "a")
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		_ = s.stream.Send(&discoveryv3.DiscoveryResponse{TypeUrl: eds.URL(), Resources: []*anypb.Any{{Value: large}}}) // it may be over before all is sent
		if e := event[Disconnected](w); status.Code(e.Err) != codes.ResourceExhausted || !strings.Contains(e.Err.Error(), "larger than max") {
			t.Errorf("ended with %v", e.Err)
		}
		w.servers["two"].accept().say("1", "n1", assignment("a", 1))
		w.expectTold("a=1")
	}, func(_ *world, o *Options) {
		// So that it need not be that of the bootstrap, which takes long to fill.
		o.dial = append(o.dial, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<20)))
	})
}

// What the server says of a request that is too much for it is what is told, not that
// sending failed.
func TestTooLargeARequest(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		var names []string
		for i := range 5000 {
			names = append(names, fmt.Sprint(i)+strings.Repeat("x", 1000))
		}
		w.want(cds, names...)
		if e := event[Disconnected](w); status.Code(e.Err) != codes.ResourceExhausted || !strings.Contains(e.Err.Error(), "larger than max") {
			t.Errorf("ended with %v", e.Err)
		}
	})
}

// A panic of what decodes is a refusal of that resource. Here it is that of a
// function that is given to the decoder.
func TestAPanicIsARefusal(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a", "b")
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "n1", namedPolicy("a", "boom"), cluster("b"))
		w.expectTold("a: rejected, b=1")
		r := await(t, s.requests, "request")
		if text := r.GetErrorDetail().GetMessage(); !strings.Contains(text, "Cluster/a: ") || !strings.Contains(text, "boom") {
			t.Errorf("says %q", text)
		}
	}, func(_ *world, o *Options) {
		o.Policies = func(name string) (decode.ConfigJudge, bool) {
			if name == "boom" {
				panic("boom")
			}
			return nil, false
		}
	})
}

// A config that a policy's own builder refuses is a NACK in its words, and the
// last good one goes on.
func TestAPolicyRefusesItsConfig(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a", "b")
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "n1", namedPolicy("a", "fussy"), cluster("b"))
		w.expectTold("a=1, b=1")
		s.hear()
		s.say("2", "n2", configuredPolicy("a", "fussy", &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewNumberValue(1)}}))
		w.expectTold("ambient a: rejected, ambient b: not found")
		r := await(t, s.requests, "request")
		if text := r.GetErrorDetail().GetMessage(); !strings.Contains(text, `Cluster/a: `) || !strings.Contains(text, `is rejected by fussy: {"x":1} is not to my taste`) {
			t.Errorf("says %q", text)
		}
	}, func(_ *world, o *Options) {
		o.Policies = func(name string) (decode.ConfigJudge, bool) {
			return func(config json.RawMessage) (string, []resource.ConfigFinding) {
				if string(config) == "null" {
					return "", nil
				}
				return "", []resource.ConfigFinding{{Text: fmt.Sprintf("is rejected by fussy: %s is not to my taste", config)}}
			}, name == "fussy"
		}
	})
}

func TestAServerThatNeverAnswers(t *testing.T) {
	play(t, "one two", func(t *testing.T, w *world) {
		w.want(cds, "a")
		w.servers["one"].accept()
		w.expectTold("a: silent")
		if !w.client.Away("t", "a") {
			t.Error("not away")
		}
		nothing(t, w.servers["two"].streams, "stream") // it is there: nobody falls back
	})
}

// Nobody can ask for these: an empty list or "*" would be everything, and what is not
// UTF-8 would end the stream.
func TestNamesThatNobodyCanAskFor(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a")
		s := w.servers["one"].accept()
		s.hear()
		w.want(cds, "", "*", "\xff")
		w.expectTold("*: not found, : not found, \xff: not found")
		s.expectNothing()
		for _, name := range []string{"", "*", "\xff"} {
			if !w.client.Away("t", name) {
				t.Errorf("%q is not away", name)
			}
			w.want(cds, "-"+name)
		}
		synctest.Wait()
		if n := len(w.client.Status().Resources); n != 1 {
			t.Errorf("%d resources", n)
		}
		w.client.Want("t", []resource.Key{{Type: "Secret", Name: "x"}}, []resource.Key{{Type: "Secret", Name: "y"}})
		s.expectNothing()
		time.Sleep(time.Minute)
		w.expectTold("a: silent")
	})
}
