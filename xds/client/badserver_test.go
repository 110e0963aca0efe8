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

	"github.com/lbd-dev/lbd/xds/resource"
)

// A response of an unknown type, or of one that was not requested, is neither
// acknowledged nor rejected, as in gRPC.
func TestUnknownTypes(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		s := w.subscribe(cds, "a")
		s.sendType("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "1", "n1", cluster("a"))
		s.sendType("", "1", "n2")
		s.sendType(resource.TypeRoutes.URL(), "1", "n3", cluster("a"))
		s.send("1", "n4", assignment("a", 1))
		s.expectNothing()
		w.expectNoUpdates()
		w.expectAway("a", false)
		s.send("1", "n5", cluster("a"))
		w.expectUpdates("a=1")
		s.expect(`Cluster [a] version="1" nonce="n5"`)
	})
}

func TestUnrequestedResources(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		s := w.subscribe(cds, "a")
		s.send("1", "n1", cluster("a"), cluster("b"), cluster("c"))
		w.expectUpdates("a=1")
		s.expect(`Cluster [a] version="1" nonce="n1"`)
		// An invalid resource that was not requested is rejected as well.
		s.send("2", "n2", cluster("a"), badCluster("b"))
		s.expect(`Cluster [a] version="1" nonce="n2" NACK`)
		w.expectNoUpdates()
		w.expectResources(1)
	})
}

func TestNoNonce(t *testing.T) {
	runTest(t, "one", func(_ *testing.T, w *harness) {
		s := w.subscribe(cds, "a")
		s.send("1", "", cluster("a"))
		w.expectUpdates("a=1")
		s.expect(`Cluster [a] version="1" nonce=""`)
		s.send("", "", badCluster("a"))
		w.expectUpdates("ambient a: rejected")
		s.expect(`Cluster [a] version="1" nonce="" NACK`)
	})
}

func TestDuplicateResource(t *testing.T) {
	runTest(t, "one", func(_ *testing.T, w *harness) {
		s := w.subscribe(cds, "a", "b")
		s.send("1", "n1", cluster("a"), badCluster("b"), cluster("a", "other"), cluster("b"))
		w.expectUpdates("a=1, b=1")
		s.expect(`Cluster [a b] version="" nonce="n1" NACK`)
	})
}

// Each truncated resource is rejected, or is valid.
func TestTruncatedResources(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		s := w.subscribe(eds, "a")
		s.send("0", "n", assignment("a", 1))
		s.receive()
		w.expectUpdates("a=0")
		good := pack(assignmentProto("a", 3, 1))
		for i := range len(good.GetValue()) {
			s.send(strings.Repeat("v", i+1), "n", &anypb.Any{TypeUrl: good.GetTypeUrl(), Value: good.GetValue()[:i]})
			r := await(t, s.requests, "request")
			rejected := r.GetErrorDetail() != nil
			if !rejected && r.GetVersionInfo() == "0" {
				t.Fatalf("cut at %d: %s", i, describeRequest(r))
			}
		}
		if got := w.state(eds, "a"); got.Version == "" {
			t.Errorf("there is no good version: %+v", got)
		}
	})
}

func TestInvalidMessage(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		s := w.load("a")
		s.rawMessage(rawMessage("\xff\xff\xff this is no protobuf"))
		e := event[Disconnected](w)
		if status.Code(e.Err) != codes.Internal {
			t.Errorf("ended with %v", e.Err)
		}
		// The server had responded, so there is no error yet. Without a response it is
		// unreachable.
		for range 3 {
			s = w.servers["one"].accept()
			s.rawMessage(rawMessage("\xff\xff\xff this is no protobuf"))
		}
		w.expectUpdates("ambient a: unreachable")
		s = w.servers["one"].accept()
		s.expect(`node=test Cluster [a] version="1" nonce=""`)
		w.expectNoUpdates()
	})
}

// A response above the limit is an error that causes fallback: the next one would be as
// large.
func TestResponseTooLarge(t *testing.T) {
	runTest(t, "one two", func(t *testing.T, w *harness) {
		large := make([]byte, 1<<20)
		w.want(cds, "a")
		s := w.subscribe(eds, "a")
		s.send("1", "n1", cluster("a"))
		w.expectUpdates("a=1")
		_ = s.stream.Send(&discoveryv3.DiscoveryResponse{TypeUrl: eds.URL(), Resources: []*anypb.Any{{Value: large}}}) // the stream may end first
		if e := event[Disconnected](w); status.Code(e.Err) != codes.ResourceExhausted || !strings.Contains(e.Err.Error(), "larger than max") {
			t.Errorf("ended with %v", e.Err)
		}
		w.servers["two"].accept().send("1", "n1", assignment("a", 1))
		w.expectUpdates("a=1")
	}, func(_ *harness, o *Options) {
		// The limit of the bootstrap takes long to fill.
		o.dial = append(o.dial, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<20)))
	})
}

// The error for a request above the limit is that of the server, not that of Send.
func TestRequestTooLarge(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
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

// A panic of the decoder rejects the resource.
func TestPanicIsRejection(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		s := w.subscribe(cds, "a", "b")
		s.send("1", "n1", namedPolicy("a", "boom"), cluster("b"))
		w.expectUpdates("a: rejected, b=1")
		r := await(t, s.requests, "request")
		if text := r.GetErrorDetail().GetMessage(); !strings.Contains(text, "Cluster/a: ") || !strings.Contains(text, "boom") {
			t.Errorf("the detail is %q", text)
		}
	}, func(_ *harness, o *Options) {
		o.Policies = func(name string) *resource.PolicyTraits {
			if name == "boom" {
				panic("boom")
			}
			return nil
		}
	})
}

// If a policy rejects its config, the NACK has the policy's text and the last good version
// stays in use.
func TestPolicyRejectsConfig(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		s := w.subscribe(cds, "a", "b")
		s.send("1", "n1", namedPolicy("a", "fussy"), cluster("b"))
		w.expectUpdates("a=1, b=1")
		s.receive()
		s.send("2", "n2", configuredPolicy("a", "fussy", &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewNumberValue(1)}}))
		w.expectUpdates("ambient a: rejected, ambient b: not found")
		r := await(t, s.requests, "request")
		if text := r.GetErrorDetail().GetMessage(); !strings.Contains(text, `Cluster/a: `) || !strings.Contains(text, `is rejected by fussy: {"x":1} is not accepted`) {
			t.Errorf("the detail is %q", text)
		}
	}, func(_ *harness, o *Options) {
		o.Policies = func(name string) *resource.PolicyTraits {
			if name != "fussy" {
				return nil
			}
			return &resource.PolicyTraits{Judge: func(config json.RawMessage) (string, []resource.ConfigFinding) {
				if string(config) == "null" {
					return "", nil
				}
				return "", []resource.ConfigFinding{{Text: fmt.Sprintf("is rejected by fussy: %s is not accepted", config)}}
			}}
		}
	})
}

// Some names cannot be requested: an empty list and "*" request all resources, and
// a name that is not UTF-8 ends the stream.
func TestUnrequestableNames(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		s := w.subscribe(cds, "a")
		w.want(cds, "", "*", "\xff")
		w.expectUpdates("*: not found, : not found, \xff: not found")
		s.expectNothing()
		for _, name := range []string{"", "*", "\xff"} {
			if !w.client.Away("t", name) {
				t.Errorf("%q is not away", name)
			}
			w.want(cds, "-"+name)
		}
		synctest.Wait()
		w.expectResources(1)
		w.client.Want("t", []resource.Key{{Type: "Secret", Name: "x"}}, []resource.Key{{Type: "Secret", Name: "y"}})
		s.expectNothing()
		time.Sleep(time.Minute)
		w.expectUpdates("a: silent")
	})
}
