package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// TestDataErrors is the table "Summary of Behavior Changes" of gRFC A88, row by row.
func TestDataErrors(t *testing.T) {
	const fail = "fail_on_data_errors"
	always := []string{"xds_v3", fail, "resource_timer_is_transient_error", "ignore_resource_deletion"}
	without := []string{"xds_v3", "ignore_resource_deletion"}
	with := []string{fail, fail + "+ignore_resource_deletion"}
	for _, row := range []struct {
		what     string
		cached   bool
		features []string // of the server, each on its own
		want     string   // the update
		state    State
		happen   func(*harness, *serverStream)
	}{
		{"the channel reports TRANSIENT_FAILURE", false, always, "a: unreachable", Requested, channelFails},
		{"the channel reports TRANSIENT_FAILURE", true, always, "ambient a: unreachable", Acked, channelFails},
		{"the ADS stream failed without reading a response", false, always, "a: unreachable", Requested, streamFails},
		{"the ADS stream failed without reading a response", true, always, "ambient a: unreachable", Acked, streamFails},
		{"NACK from client", false, always, "a: rejected", Nacked, sendInvalid},
		{"NACK from client", true, without, "ambient a: rejected", NackedButCached, sendInvalid},
		{"NACK from client", true, with, "a: rejected", Nacked, sendInvalid},
		{"resource timeout", false, []string{"xds_v3", fail, "ignore_resource_deletion"}, "a: expired", DoesNotExist, sendNothing(watchExpiry)},
		{
			"resource timeout", false,
			[]string{"resource_timer_is_transient_error", fail + "+resource_timer_is_transient_error"},
			"a: timeout", Timeout, sendNothing(slowWatchExpiry),
		},
		{"CDS resource deletion from server", true, without, "ambient a: not found", DoesNotExistButCached, sendOthers},
		{"CDS resource deletion from server", true, with, "a: not found", DoesNotExist, sendOthers},
		{"error with status NOT_FOUND", false, always, "a: reported NotFound reason", ReceivedError, report(codes.NotFound)},
		{"error with status NOT_FOUND", true, without, "ambient a: reported NotFound reason", ReceivedErrorButCached, report(codes.NotFound)},
		{"error with status NOT_FOUND", true, with, "a: reported NotFound reason", ReceivedError, report(codes.NotFound)},
		{"error with status PERMISSION_DENIED", false, always, "a: reported PermissionDenied reason", ReceivedError, report(codes.PermissionDenied)},
		{"error with status PERMISSION_DENIED", true, without, "ambient a: reported PermissionDenied reason", ReceivedErrorButCached, report(codes.PermissionDenied)},
		{"error with status PERMISSION_DENIED", true, with, "a: reported PermissionDenied reason", ReceivedError, report(codes.PermissionDenied)},
		{"error with other status", false, always, "a: reported Internal reason", ReceivedError, report(codes.Internal)},
		{"error with other status", true, always, "ambient a: reported Internal reason", ReceivedErrorButCached, report(codes.Internal)},
	} {
		for _, features := range row.features {
			name := row.what + ", not cached, " + features
			if row.cached {
				name = row.what + ", cached, " + features
			}
			t.Run(name, func(t *testing.T) {
				runTest(t, "one:"+features, func(t *testing.T, w *harness) {
					s := w.subscribe(cds, "a", "b")
					first := "b=1"
					if row.cached {
						first = "a=1, b=1"
						s.send("1", "n1", cluster("a"), cluster("b"))
					} else {
						s.send("1", "n1", cluster("b"))
					}
					w.expectUpdates(first)
					row.happen(w, s)
					w.expectReported("a", row.want)
					got := w.state(cds, "a")
					kept := row.cached && row.want[:len("ambient")] == "ambient"
					if got.State != row.state || (got.Version == "1") != kept {
						t.Errorf("it is %+v", got)
					}
					if b := w.state(cds, "b"); b.Version == "" {
						t.Errorf("b is %+v", b)
					}
				})
			})
		}
	}
}

func channelFails(w *harness, _ *serverStream) {
	w.servers["one"].kill()
	time.Sleep(2 * time.Second) // the server had responded on the stream
}

func streamFails(w *harness, s *serverStream) {
	s.end <- errors.New("over")
	w.servers["one"].accept().end <- errors.New("no answer")
}

func sendInvalid(_ *harness, s *serverStream) { s.send("2", "n2", badCluster("a"), cluster("b")) }

func sendOthers(_ *harness, s *serverStream) { s.send("2", "n2", cluster("b")) }

func sendNothing(expiry time.Duration) func(*harness, *serverStream) {
	return func(w *harness, _ *serverStream) {
		time.Sleep(expiry - time.Millisecond)
		w.expectNoUpdates()
		time.Sleep(time.Millisecond)
	}
}

func report(code codes.Code) func(*harness, *serverStream) {
	return func(_ *harness, s *serverStream) { s.fail("2", "n2", "a", code, cluster("b")) }
}

// expectReported expects the updates of one name; there may be updates of others.
func (w *harness) expectReported(name, want string) {
	w.t.Helper()
	synctest.Wait()
	var got []string
	for len(w.updates) > 0 {
		for _, u := range <-w.updates {
			if u.Key.Name == name {
				got = append(got, describe([]Update{u}))
			}
		}
	}
	if !slices.Equal(got, []string{want}) {
		w.t.Fatalf("reported %q, want %q", got, want)
	}
}

// A server reports an error once: it stays until the resource is sent.
func TestReportedErrorIsRemembered(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		s := w.subscribe(cds, "a", "b")
		s.fail("1", "n1", "a", codes.PermissionDenied, cluster("b"))
		w.expectUpdates("a: reported PermissionDenied reason, b=1")
		s.expect(`Cluster [a b] version="1" nonce="n1"`) // not a NACK
		s.send("2", "n2", cluster("b"))
		s.fail("3", "n3", "a", codes.PermissionDenied, cluster("b"))
		time.Sleep(time.Hour) // without a timeout
		w.expectNoUpdates()
		w.expectState(cds, "a", ReceivedError)
		s.send("4", "n4", cluster("a"), cluster("b"))
		w.expectUpdates("a=4")
		s.fail("5", "n5", "a", codes.Unavailable, cluster("b"))
		w.expectUpdates("ambient a: reported Unavailable reason")
		s.send("6", "n6", cluster("b"))
		w.expectNoUpdates()
		w.expectState(cds, "a", ReceivedErrorButCached, "4")
		s.send("7", "n7", cluster("a"), cluster("b"))
		w.expectUpdates("a=7") // the error is cleared
	})
}

// An error for a name that is not wanted, or without a name, changes nothing.
func TestErrorsForUnwantedResources(t *testing.T) {
	runTest(t, "one", func(_ *testing.T, w *harness) {
		s := w.load("a")
		for _, name := range []string{"", "*", "other"} {
			s.fail("2", "n2", name, codes.NotFound, cluster("a"))
		}
		s.fail("2", "n2", "a", codes.OK, cluster("a"))
		w.expectNoUpdates()
	})
}

// An error NOT_FOUND for a name that never existed is no event: clients of lbd can
// request any name. A deletion, or another error, is one.
func TestNoEventForUnknownNames(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		w.want(cds, "a", "b", "typo")
		s := w.servers["one"].accept()
		s.fail("1", "n1", "typo", codes.NotFound, cluster("a"))
		w.expectUpdates("a=1, typo: reported NotFound reason")
		s.fail("2", "n2", "b", codes.PermissionDenied, cluster("a"))
		w.expectUpdates("b: reported PermissionDenied reason")
		s.fail("3", "n3", "a", codes.NotFound)
		w.expectUpdates("ambient a: reported NotFound reason")
		for _, want := range []string{"b", "a"} {
			if e := event[DataError](w); e.Keys[0].Name != want {
				t.Errorf("%+v", e)
			}
		}
	})
}

// However many resources a response deletes or breaks, it causes one event of each type,
// which counts them and names the first.
func TestOneEventPerResponse(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		var names []string
		var first, second []*anypb.Any
		for i := range 1000 {
			name := fmt.Sprintf("c%03d", i)
			names = append(names, name)
			first = append(first, cluster(name))
			if i%2 == 0 {
				second = append(second, badCluster(name))
			}
		}
		slices.Reverse(second)
		w.want(cds, names...)
		s := w.servers["one"].accept()
		s.send("1", "n1", first...)
		w.nextUpdates()
		event[Connected](w)
		s.send("2", "n2", second...)
		w.nextUpdates()
		check := func(r Resources, err error, parity int) {
			t.Helper()
			if r.Count != 500 || len(r.Keys) != maxEventKeys {
				t.Fatalf("%d resources, %d of them are named", r.Count, len(r.Keys))
			}
			for i, key := range r.Keys {
				if key != (resource.Key{Type: cds, Name: names[2*i+parity]}) {
					t.Errorf("resource %d is %v", i, key)
				}
			}
			if !strings.Contains(err.Error(), r.Keys[0].String()) {
				t.Errorf("the error is %v", err)
			}
		}
		rejected, _ := await(t, w.events, "event").(Rejected)
		check(rejected.Resources, rejected.Err, 0)
		deleted, _ := await(t, w.events, "event").(DataError)
		if check(deleted.Resources, deleted.Err, 1); deleted.Cached != 500 {
			t.Errorf("%d are cached", deleted.Cached)
		}
		s.send("3", "n3", second...)
		expectNone(t, w.events, "event")
	})
}
