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
		want     string   // what is reported
		state    State
		happen   func(*world, *conversation)
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
				play(t, "one:"+features, func(t *testing.T, w *world) {
					w.want(cds, "a", "b")
					s := w.servers["one"].accept()
					s.hear()
					first := "b=1"
					if row.cached {
						first = "a=1, b=1"
						s.say("1", "n1", cluster("a"), cluster("b"))
					} else {
						s.say("1", "n1", cluster("b"))
					}
					w.expectTold(first)
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

func channelFails(w *world, _ *conversation) {
	w.servers["one"].kill()
	time.Sleep(2 * time.Second) // the stream that ended had been answered
}

func streamFails(w *world, s *conversation) {
	s.end <- errors.New("over")
	w.servers["one"].accept().end <- errors.New("no answer")
}

func sendInvalid(_ *world, s *conversation) { s.say("2", "n2", badCluster("a"), cluster("b")) }

func sendOthers(_ *world, s *conversation) { s.say("2", "n2", cluster("b")) }

func sendNothing(expiry time.Duration) func(*world, *conversation) {
	return func(w *world, _ *conversation) {
		time.Sleep(expiry - time.Millisecond)
		w.expectNothingTold()
		time.Sleep(time.Millisecond)
	}
}

func report(code codes.Code) func(*world, *conversation) {
	return func(_ *world, s *conversation) { s.fail("2", "n2", "a", code, cluster("b")) }
}

// expectReported expects what is reported of a name next; other names may be
// reported, too.
func (w *world) expectReported(name, want string) {
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

// A server reports an error once: later responses without the resource do not change
// it, until the resource comes.
func TestReportedErrorIsRemembered(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a", "b")
		s := w.servers["one"].accept()
		s.hear()
		s.fail("1", "n1", "a", codes.PermissionDenied, cluster("b"))
		w.expectTold("a: reported PermissionDenied reason, b=1")
		s.expect(`Cluster [a b] version="1" nonce="n1"`) // it is no reason for a NACK
		s.say("2", "n2", cluster("b"))
		s.fail("3", "n3", "a", codes.PermissionDenied, cluster("b"))
		time.Sleep(time.Hour) // the resource timer is cancelled
		w.expectNothingTold()
		if got := w.state(cds, "a"); got.State != ReceivedError {
			t.Errorf("it is %+v", got)
		}
		s.say("4", "n4", cluster("a"), cluster("b"))
		w.expectTold("a=4")
		s.fail("5", "n5", "a", codes.Unavailable, cluster("b"))
		w.expectTold("ambient a: reported Unavailable reason")
		s.say("6", "n6", cluster("b"))
		w.expectNothingTold()
		if got := w.state(cds, "a"); got.State != ReceivedErrorButCached || got.Version != "4" {
			t.Errorf("it is %+v", got)
		}
		s.say("7", "n7", cluster("a"), cluster("b"))
		w.expectTold("a=7") // the error is over
	})
}

// A deleted resource is reported once, and again after it was back.
func TestDeletedResourceStaysCached(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a", "b")
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "n1", cluster("a"), cluster("b"))
		w.expectTold("a=1, b=1")
		for range 3 {
			s.say("2", "n2", cluster("a"))
		}
		w.expectTold("ambient b: not found")
		w.expectNothingTold()
		if e := event[DataError](w); e.Count != 1 || e.Keys[0].Name != "b" || e.Cached != 1 {
			t.Errorf("%+v", e)
		}
		if got := w.state(cds, "b"); got.State != DoesNotExistButCached || got.Version != "1" || got.Err == nil {
			t.Errorf("it is %+v", got)
		}
		s.say("3", "n3", cluster("a"), cluster("b"))
		w.expectTold("b=3")
		s.say("4", "n4", cluster("a"))
		w.expectTold("ambient b: not found")
		if e := event[DataError](w); e.Count != 1 || e.Keys[0].Name != "b" || e.Cached != 1 {
			t.Errorf("%+v", e)
		}
	})
}

// An error for a name that nobody wants, or without a name, changes nothing.
func TestErrorsForOthers(t *testing.T) {
	play(t, "one", func(_ *testing.T, w *world) {
		w.want(cds, "a")
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		for _, name := range []string{"", "*", "other"} {
			s.fail("2", "n2", name, codes.NotFound, cluster("a"))
		}
		s.fail("2", "n2", "a", codes.OK, cluster("a"))
		w.expectNothingTold()
	})
}

// A server that reports that a name does not exist is no event: anybody can invent
// names. That it takes a resource back, or may not send it, is one.
func TestNamesThatDoNotExistAreNoEvents(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a", "b", "typo")
		s := w.servers["one"].accept()
		s.fail("1", "n1", "typo", codes.NotFound, cluster("a"))
		w.expectTold("a=1, typo: reported NotFound reason")
		s.fail("2", "n2", "b", codes.PermissionDenied, cluster("a"))
		w.expectTold("b: reported PermissionDenied reason")
		s.fail("3", "n3", "a", codes.NotFound)
		w.expectTold("ambient a: reported NotFound reason")
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
	play(t, "one", func(t *testing.T, w *world) {
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
		s.say("1", "n1", first...)
		w.told()
		event[Connected](w)
		s.say("2", "n2", second...)
		w.told()
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
		s.say("3", "n3", second...)
		nothing(t, w.events, "event")
	})
}
