package outlierdetection_test

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/outlierdetection"
	"github.com/lbd-dev/lbd/lb/pickfirst"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/priority"
	"github.com/lbd-dev/lbd/test/lbtest"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	interval = 10 * time.Second

	// What c's ejection says where it failed 5 of 5 requests.
	failing = "ejected by outlier detection: failure percentage 100.0% of 5 requests is above 50%"
)

// one has c fail all of its requests while a and b do well.
func one(s *stage) {
	s.t.Helper()
	all("a b", 5)(s)
	ends("c", 0, 5)(s)
}

func maxPercent(n uint32) func(*resource.OutlierDetection) {
	return func(c *resource.OutlierDetection) { c.MaxEjectionPercent = n }
}

func enforcement(n uint32) func(*resource.OutlierDetection) {
	return func(c *resource.OutlierDetection) {
		if c.FailurePercentage != nil {
			c.FailurePercentage.EnforcementPercentage = n
		}
		if c.SuccessRate != nil {
			c.SuccessRate.EnforcementPercentage = n
		}
	}
}

func times(base, longest time.Duration) func(*resource.OutlierDetection) {
	return func(c *resource.OutlierDetection) { c.BaseEjectionTime, c.MaxEjectionTime = base, longest }
}

func every(d time.Duration) func(*resource.OutlierDetection) {
	return func(c *resource.OutlierDetection) { c.Interval = d }
}

func nothing(c *resource.OutlierDetection) { c.SuccessRate, c.FailurePercentage = nil, nil }

// cUntil is what happens when c is ejected until then.
func cUntil(d time.Duration) string { return "c until " + d.String() }

func leaf(name string) step { return func(s *stage) { s.leaf = name } }

// percentOf is a draw of n of 100.
func percentOf(n uint64) uint64 { return n*(math.MaxUint64/100) + 1<<40 }

func TestOutlierDetection(t *testing.T) {
	three := []step{detect(percentage(3, 3)), endpoints("a b c")}
	tests := []struct {
		name  string
		steps []step
	}{
		{"all is well", []step{all("a b c", 5), after(interval), happened(), reaches("a b c")}},
		{"one fails: out, once the interval ends", []step{
			one, after(interval - 1), happened(), reaches("a b c"),
			after(1), happened("c until 40s"), reaches("a b"), describes("c", failure, failing), counts(policy.Census{Ready: 2, Ejected: 1}),
		}},
		{"and back after its time", []step{
			one, after(4*interval - 1), happened("c until 40s"), reaches("a b"),
			after(1), happened("c back"), reaches("a b c"), describes("c", ready, ""), counts(policy.Census{Ready: 3}),
		}},
		{"half of the requests is not above 50%", []step{
			all("a b", 5), ends("c", 3, 3), after(interval), happened(),
			all("a b", 5), ends("c", 3, 4), after(interval), happened("c until 50s"),
		}},
		{"each interval counts for itself", []step{
			all("a b", 5), ends("c", 0, 2), after(interval), happened(),
			all("a b", 5), ends("c", 0, 2), after(interval), happened(),
		}},
		{"a request counts where it ends, not where it was picked", []step{
			holds("c", 5), after(interval), happened(), all("a b", 5), gives("c", 5, policy.OutcomeError), after(interval), happened("c until 50s"),
		}},
		{"too few requests", []step{all("a b", 5), ends("c", 0, 2), after(interval), happened()}},
		{"just enough", []step{all("a b", 3), ends("c", 0, 3), after(interval), happened("c until 40s")}},
		{"too few endpoints with enough requests", []step{ends("a", 5, 0), ends("b", 2, 0), ends("c", 0, 5), after(interval), happened()}},
		{"not enforced", []step{detect(enforcement(0)), one, after(interval), happened(), reaches("a b c")}},
		{"enforced by the dice, which say yes", []step{
			detect(enforcement(30)), one, draws(0, percentOf(29)), after(interval), happened("c until 40s"),
		}},
		{"and no", []step{detect(enforcement(30)), one, draws(0, percentOf(30)), after(interval), happened()}},
		{"nothing may be ejected", []step{detect(maxPercent(0)), one, after(interval), happened()}},
		{"1% of three is one: the share before counts", []step{
			detect(maxPercent(1)), ends("a", 5, 0), ends("b", 0, 5), ends("c", 0, 5), after(interval), happened("b until 40s"), reaches("a c"),
		}},
		{"which one is left to chance", []step{
			detect(maxPercent(1)), ends("a", 5, 0), ends("b", 0, 5), ends("c", 0, 5), draws(percentOf(67), 0), after(interval), happened("c until 40s"),
		}},
		{"34% of three are two", []step{
			detect(maxPercent(34)), ends("a", 0, 5), ends("b", 0, 5), ends("c", 0, 5), after(interval), happened("a until 40s", "b until 40s"),
		}},
		{"33% of three are one", []step{
			detect(maxPercent(33)), ends("a", 0, 5), ends("b", 0, 5), ends("c", 0, 5), after(interval), happened("a until 40s"),
		}},
		{"what is back makes room for others", []step{
			detect(maxPercent(33)), one, after(4 * interval), happened("c until 40s", "c back"),
			all("b c", 5), ends("a", 0, 5), after(interval), happened("a until 1m20s"),
		}},
		{"all may be ejected: the last reason is reported", []step{
			ends("a", 0, 5), ends("b", 0, 5), ends("c", 0, 5), after(interval),
			happened("a until 40s", "b until 40s", "c until 40s"), reaches(failing), counts(policy.Census{Ejected: 3}),
		}},
		{"each time longer, up to the most", []step{
			detect(times(30*time.Second, 80*time.Second)),
			one, after(4 * interval), happened("c until 40s", "c back"),
			one, after(7 * interval), happened("c until 1m50s", "c back"),
			one, after(8 * interval), happened("c until 3m20s"),
			after(interval), happened("c back"),
		}},
		{"never shorter than the base time", []step{
			detect(times(30*time.Second, 10*time.Second)), one, after(4 * interval), happened("c until 40s", "c back"),
			one, after(interval), happened("c until 1m20s"),
		}},
		{"an interval without ejection makes the next shorter", []step{
			one, after(4 * interval), happened("c until 40s", "c back"),
			after(interval), one, after(interval), happened("c until 1m30s"),
		}},
		{"by one time each", []step{
			one, after(4 * interval), happened("c until 40s", "c back"), one, after(7 * interval), happened("c until 1m50s", "c back"),
			after(interval), one, after(interval), happened("c until 3m10s"),
		}},
		{"and no shorter than once", []step{
			one, after(4 * interval), after(9 * interval), happened("c until 40s", "c back"),
			one, after(interval), happened("c until 2m50s"),
		}},
		{"ejected for no time: back at once", []step{
			detect(times(0, 0)), one, after(interval), happened("c until 10s", "c back"), reaches("a b c"), describes("c", ready, ""),
		}},
		{"what no duration holds is the longest time", []step{
			detect(times(math.MaxInt64/4, math.MaxInt64/2)), holds("c", 20),
			all("a b", 5), gives("c", 5, policy.OutcomeError), after(interval), happened(cUntil(interval + math.MaxInt64/4)),
			all("a b", 5), gives("c", 5, policy.OutcomeError), after(interval), happened(cUntil(2*interval + math.MaxInt64/4*2)),
			all("a b", 5), gives("c", 5, policy.OutcomeError), after(interval), happened(cUntil(3*interval + math.MaxInt64/2)),
			all("a b", 5), gives("c", 5, policy.OutcomeError), after(interval), happened(cUntil(4*interval + math.MaxInt64/2)),
		}},
		{"what ends late makes it longer", []step{
			holds("c", 5), one, after(interval), happened("c until 40s"),
			all("a b", 5), gives("c", 5, policy.OutcomeError), after(interval), happened("c until 1m20s"), counts(policy.Census{Ready: 2, Ejected: 1}),
			after(5 * interval), happened(), after(interval), happened("c back"), counts(policy.Census{Ready: 3}),
		}},
		{"other ejection times hold for what is ejected", []step{
			one, after(interval), happened("c until 40s"), untilOf("c", 40*time.Second),
			detect(times(15*time.Second, 15*time.Second)), untilOf("c", 25*time.Second),
			after(interval), happened(), after(interval), happened("c back"),
		}},
		{"nothing to detect any more: all back at once, and forgotten", []step{
			one, after(interval), happened("c until 40s"),
			detect(nothing), happened("c back"), reaches("a b c"), describes("c", ready, ""),
			one, after(9 * interval), happened(),
			detect(percentage(3, 3)), one, after(interval), happened("c until 2m20s"),
		}},
		{"earlier counts do not count after a restart", []step{
			holds("c", 5), detect(nothing), gives("c", 5, policy.OutcomeError), all("a b", 5),
			detect(percentage(3, 3)), all("a b", 5), after(interval), happened(),
		}},
		{"another interval: less what has passed", []step{
			after(5 * time.Second), one, detect(every(9 * time.Second)), after(4*time.Second - 1), happened(), after(1), happened("c until 39s"),
		}},
		{"and passed already: at once", []step{
			after(5 * time.Second), one, detect(every(3 * time.Second)), after(10 * time.Millisecond), happened("c until 35.01s"),
		}},
		{"the same config again restarts nothing", []step{
			after(9 * time.Second), one, detect(), after(time.Second), happened("c until 40s"),
		}},
		{"an interval of nothing leaves time to breathe", []step{
			detect(every(0)), one, after(10 * time.Millisecond), happened("c until 30.01s"),
		}},
		{"an ejected endpoint is removed, and comes back as new", []step{
			one, after(interval), happened("c until 40s"),
			endpoints("a b"), counts(policy.Census{Ready: 2}), reaches("a b"),
			endpoints("a b c"), reaches("a b c"), counts(policy.Census{Ready: 3}),
			detect(maxPercent(1)), one, after(interval), happened("c until 50s"), // no other endpoint counts as ejected
		}},
		{"others are removed", []step{
			one, after(interval), endpoints("c b"), happened("c until 40s"), reaches("b"), after(3 * interval), happened("c back"), reaches("c b"),
		}},
		{"other addresses are another endpoint", []step{
			endpoints("a b c+d"), all("a b", 5), ends("c+d", 0, 5), after(interval), happened("c until 40s"), reaches("a b"),
			endpoints("a b d"), reaches("a b d"),
		}},
		{"the same addresses in another order are not", []step{
			endpoints("a b c+d"), all("a b", 5), ends("c+d", 0, 5), after(interval), happened("c until 40s"),
			endpoints("a b d+c"), reaches("a b"), describes("d+c", failure, failing), after(3 * interval), happened("d back"), reaches("a b d+c"),
		}},
		{"an ejected endpoint's connection is kept up", []step{
			one, after(interval), connects("c", 1),
			says("c", idle), connects("c", 2), says("c", connecting, failure), describes("c", failure, failing),
			says("c", idle), connects("c", 3), says("c", connecting, ready), reaches("a b"), counts(policy.Census{Ready: 2, Ejected: 1}),
			after(3 * interval), happened("c until 40s", "c back"), reaches("a b c"),
		}},
		{"back, but not connected", []step{
			one, after(interval), says("c", idle, connecting), after(3 * interval),
			happened("c until 40s", "c back"), reaches("a b"), describes("c", connecting, failing), says("c", ready), reaches("a b c"),
			says("a", idle, connecting), reaches("b c"),
		}},
		{"back, but failed", []step{
			one, after(interval), says("c", idle, connecting, failure), after(3 * interval),
			happened("c until 40s", "c back"), reaches("a b"), describes("c", failure, "c refused"),
		}},
		{"another policy: the ejected stay so", []step{
			one, after(interval), leaf("other"), detect(), connectNew, reaches("a b"), describes("c", failure, failing),
			after(3 * interval), happened("c until 40s", "c back"), reaches("a b c"),
		}},
		{"only success and error count", []step{
			all("a b", 5), ends("c", 3, 2), holds("c", 20), gives("c", 20, policy.OutcomeCancelled), holds("c", 20), gives("c", 20, policy.OutcomeExpired),
			after(interval), happened(),
			all("a b", 5), holds("b", 20), gives("b", 20, policy.OutcomeCancelled), after(interval), happened(),
			all("a b", 5), ends("c", 5, 0), unheld("c", 20), after(interval), happened(),
			all("a b", 5), ends("c", 2, 3), holds("c", 20), gives("c", 20, policy.OutcomeExpired), after(interval), happened("c until 1m10s"),
		}},
		{"nothing is ejected from under pick_first", []step{
			leaf(pickfirst.Name), detect(), connectNew, one, after(9 * interval), happened(), reaches("a b c"),
		}},
		{"nor once it is pick_first", []step{
			holds("c", 5), all("a b", 5), leaf(pickfirst.Name), detect(), connectNew, gives("c", 5, policy.OutcomeError), after(9 * interval), happened(),
		}},
		{"nor in a locality, by priority", []step{
			leaf(pickfirst.Name), endpoints("a b c|d"), one, after(9 * interval), happened(),
		}},
		{"by priority", []step{
			detect(percentage(1, 3)), endpoints("a b c|d e"), one, after(interval), happened("c until 40s"), says("b", idle, connecting, failure),
			counts(policy.Census{Ready: 1, TransientFailure: 1, Ejected: 1}, policy.Census{Idle: 2}),
			ends("a", 0, 5), says("b", idle, connecting), after(interval), happened("a until 50s"),
			counts(policy.Census{Connecting: 1, Ejected: 2}, policy.Census{Idle: 2}), says("b", failure), connectNew,
			counts(policy.Census{TransientFailure: 1, Ejected: 2}, policy.Census{Ready: 2}), reaches("d e"),
			endpoints("d e|a b c"), counts(policy.Census{Ready: 2}, policy.Census{Ready: 1, Ejected: 2}),
			after(3 * interval), happened("c back", "a back"), counts(policy.Census{Ready: 2}, policy.Census{Ready: 3}),
		}},
		{"30% of ten are three, wherever they are", []step{
			detect(percentage(1, 3), maxPercent(30)), endpoints("a b c d|e f g h i j"),
			ends("a", 0, 5), ends("b", 0, 5), ends("c", 0, 5), ends("d", 0, 5), after(interval),
			happened("a until 40s", "b until 40s", "c until 40s"), reaches("d"), counts(policy.Census{Ready: 1, Ejected: 3}, policy.Census{Idle: 6}),
		}},
		{"whether those below have served or not", []step{
			detect(percentage(1, 3), maxPercent(30)), endpoints("a|e f g"), says("a", idle, connecting, failure), connectNew, reaches("e f g"),
			says("a", idle, connecting, ready), reaches("a"), ends("a", 0, 5), after(interval), happened("a until 40s"),
			ends("e", 0, 5), after(interval), happened("e until 50s"), ends("f", 0, 5), after(interval), happened(), reaches("f g"),
		}},
		{"an endpoint that is there twice is one", []step{
			detect(percentage(1, 3), maxPercent(30)), endpoints("a a b c"), all("a", 5), ends("b", 0, 5), ends("c", 0, 5), after(interval),
			happened("b until 40s"), reaches("a a c"),
		}},
		{"an ejected endpoint moves where nothing connects to it, and back", []step{
			detect(percentage(1, 3)), endpoints("a b c|d"), one, after(interval), happened("c until 40s"),
			endpoints("a b|d c"), reaches("a b"), counts(policy.Census{Ready: 2}, policy.Census{Idle: 2}),
			endpoints("a b c|d"), reaches("a b"), counts(policy.Census{Ready: 2, Ejected: 1}, policy.Census{Idle: 1}),
			after(3 * interval), happened("c back"), reaches("a b c"), one, after(interval), happened("c until 1m50s"),
		}},
		{"and is not taken for another there, which failed", []step{
			detect(percentage(1, 3)), endpoints("a b c|d"),
			says("a", idle, connecting, failure), says("b", idle, connecting, failure), says("c", idle, connecting, failure),
			connectNew, says("d", idle, connecting, failure),
			says("a", idle, connecting, ready), says("b", idle, connecting, ready), says("c", idle, connecting, ready),
			one, after(interval), happened("c until 40s"), counts(policy.Census{Ready: 2, Ejected: 1}, policy.Census{TransientFailure: 1}),
			endpoints("a b|d c"), counts(policy.Census{Ready: 2}, policy.Census{TransientFailure: 1}),
		}},
		{"and its time is over meanwhile", []step{
			detect(percentage(1, 3)), endpoints("a b c|d"), one, after(interval), happened("c until 40s"),
			endpoints("a b|d c"), after(3 * interval), happened("c back"), endpoints("a b c|d"), reaches("a b c"),
		}},
		{"or nothing is detected any more", []step{
			detect(percentage(1, 3)), endpoints("a b c|d"), one, after(interval), happened("c until 40s"),
			endpoints("a b|d c"), detect(nothing), happened("c back"), endpoints("a b c|d"), reaches("a b c"),
		}},
		{"it is removed while a priority that is kept has a connection to it", []step{
			detect(percentage(1, 3)), endpoints("a|c d"), says("a", idle, connecting, failure), connectNew, ends("c", 0, 5), after(interval),
			happened("c until 40s"), reaches("d"), says("a", idle, connecting, ready), reaches("a"),
			endpoints("a|d"), endpoints("a|c d"), says("a", idle, connecting, failure), reaches("c d"), after(9 * interval), happened(),
			ends("c", 0, 5), after(interval), happened("c until 2m20s"), reaches("d"),
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { play(t, append(three, tt.steps...)...) })
	}
}

func TestSuccessRate(t *testing.T) {
	five := []step{detect(rate(1900, 5, 10)), endpoints("a b c d e")}
	tests := []struct {
		name  string
		steps []step
		want  []string
	}{
		// a to d at 100 %, e at 40 %: the mean is 88 %, the deviation 24 %,
		// 88 - 1.9 × 24 = 42.4.
		{"just below", []step{all("a b c d", 10), ends("e", 4, 6)}, []string{"e until 40s"}},
		{"the same deviations for any that stands alone", []step{all("a b c d", 10), ends("e", 9, 1)}, []string{"e until 40s"}},
		{"two stand alone no more", []step{all("a b c", 10), ends("d", 0, 10), ends("e", 0, 10)}, nil},
		{"unless the factor is smaller", []step{
			detect(rate(1000, 5, 10)), all("a b c", 10), ends("d", 0, 10), ends("e", 0, 10),
		}, []string{"d until 40s", "e until 40s"}},
		{"just at what is required", []step{detect(rate(2000, 5, 10)), all("a b c d", 10), ends("e", 0, 10)}, nil},
		{"all the same", []step{all("a b c d e", 10)}, nil},
		{"all as bad", []step{ends("a", 0, 10), ends("b", 0, 10), ends("c", 0, 10), ends("d", 0, 10), ends("e", 0, 10)}, nil},
		{"too few requests", []step{all("a b c d", 10), ends("e", 0, 9)}, nil},
		{"which is too few endpoints then", []step{detect(rate(100, 5, 10)), all("a b c", 10), ends("d", 9, 0), ends("e", 0, 10)}, nil},
		{"but four are enough for four", []step{detect(rate(100, 4, 10)), all("a b c", 10), ends("d", 0, 9), ends("e", 0, 10)}, []string{"e until 40s"}},
		{"those without a request have no rate", []step{detect(rate(100, 3, 0)), ends("a", 1, 0), ends("b", 1, 0), ends("c", 0, 1)}, []string{"c until 40s"}},
		{"nor count among the endpoints", []step{detect(rate(100, 4, 0)), ends("a", 1, 0), ends("b", 1, 0), ends("c", 0, 1)}, nil},
		{"not enforced", []step{detect(enforcement(0)), all("a b c d", 10), ends("e", 0, 10)}, nil},
		{"the dice say yes", []step{detect(enforcement(99)), all("a b c d", 10), ends("e", 0, 10), draws(0, percentOf(98))}, []string{"e until 40s"}},
		{"the dice say no", []step{detect(enforcement(99)), all("a b c d", 10), ends("e", 0, 10), draws(0, percentOf(99))}, nil},
		{"both algorithms eject", []step{
			detect(percentage(5, 10)), all("a b c d", 10), ends("e", 0, 10),
		}, []string{"e until 1m10s"}},
		{"success rate comes first, and leaves nothing to eject", []step{
			detect(percentage(5, 10), maxPercent(20)), all("a b c d", 10), ends("e", 0, 10),
		}, []string{"e until 40s"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			play(t, append(append(five, tt.steps...), after(interval), happened(tt.want...))...)
		})
	}
}

// TestReason: numbers, of all algorithms that found the endpoint.
func TestReason(t *testing.T) {
	play(
		t, detect(rate(1900, 5, 10)), endpoints("a b c d e"), all("a b c d", 10), ends("e", 4, 6), after(interval),
		describes("e", failure, "ejected by outlier detection: success rate 40.0% of 10 requests is below 42.4% "+
			"(mean 88.0%, standard deviation 24.0%, factor 1.9)"),
	)
	play(
		t, detect(rate(1900, 5, 10), percentage(5, 10)), endpoints("a b c d e"), all("a b c d", 10), ends("e", 4, 6), after(interval),
		describes("e", failure, "ejected by outlier detection: success rate 40.0% of 10 requests is below 42.4% "+
			"(mean 88.0%, standard deviation 24.0%, factor 1.9); failure percentage 60.0% of 10 requests is above 50%"),
		happened("e until 1m10s"), after(6*interval), happened("e back"),
	)
}

// TestReadyAtOnce: a picker that is older than the ejection picks the endpoint no
// more.
func TestReadyAtOnce(t *testing.T) {
	play(t, detect(percentage(3, 3)), endpoints("a b c"), one, func(s *stage) {
		old := s.tree.Picker()
		after(interval)(s)
		for _, exclude := range [][]string{{"a", "b"}, {"a", "b"}} {
			call := &policy.Call{Context: t.Context(), Exclude: exclude, Hold: true}
			if _, err := old.Pick(balancer.PickInfo{Ctx: call}); err != balancer.ErrNoSubConnAvailable { //nolint:errorlint // pickers return it bare
				t.Errorf("the old picker: %v, want to wait for the next", err)
			}
		}
		if n := s.tree.Counters.Get(resource.ServiceKey{Cluster: "orders"}).Breaker.InFlight(); n != 0 {
			t.Errorf("%d in flight", n)
		}
	})
}

// TestChildListener: the states that a child's listener gets of its SubConn.
func TestChildListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListener(t, 1, "a")
		defer l.tree.Close()
		says := func(state connectivity.State, err error) {
			l.tree.Batch(func() { l.tree.SubConns[0].Says(state, err) })
		}
		fail := func() { // a request
			t.Helper()
			call := &policy.Call{Hold: true}
			res, err := l.tree.Pick(call)
			if err != nil || lbtest.Picked(t, res) != l.tree.SubConns[0] {
				t.Fatalf("picked %v, %v; want the SubConn from above", res.SubConn, err)
			}
			call.Held().Finish(policy.OutcomeError, policy.NoInfo)
		}
		fail() // nothing is detected: it is not counted
		says(connecting, nil)
		says(ready, nil)
		l.expect("CONNECTING <nil>", "READY <nil>")
		l.config(percentage(1, 1))
		fail() // the config has no such endpoint: it is not counted
		l.config(percentage(1, 1), "a")
		fail()
		l.expect()
		l.tree.Sleep(interval)
		l.expect("TRANSIENT_FAILURE " + ejected)
		says(idle, errors.New("lost"))
		says(connecting, nil)
		says(failure, errors.New("refused"))
		l.expect()
		l.tree.Sleep(3 * interval)
		l.expect("TRANSIENT_FAILURE refused")
		says(idle, nil)
		says(connecting, nil)
		says(ready, nil)
		l.expect("IDLE <nil>", "CONNECTING <nil>", "READY <nil>")
		fail()
		l.tree.Sleep(interval)
		l.states = nil
		l.tree.Batch(l.sc.Shutdown)
		l.expect("SHUTDOWN <nil>")
		l.tree.Sleep(9 * interval) // the ejection is over
		l.expect()
	})
}

// just picks one SubConn.
type just struct{ sc balancer.SubConn }

func (p just) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	return policy.ConnectionOf(p.sc).Upstream().Pick(policy.CallOf(info.Ctx)), nil
}

// TestClose: a closed tree ejects no more, and gives nothing back.
func TestClose(t *testing.T) {
	play(t, detect(percentage(3, 3)), endpoints("a b c"), one, after(interval), happened("c until 40s"), func(s *stage) {
		held := s.pick("a")
		s.tree.Close()
		for range 5 {
			held.Finish(policy.OutcomeError, policy.NoInfo)
		}
		time.Sleep(10 * interval)
		if len(s.tree.TakeEvents()) != 0 {
			t.Error("events after Close")
		}
		for _, sc := range s.tree.SubConns {
			if !sc.Closed {
				t.Errorf("%s is not shut down", sc.Addresses[0].Addr)
			}
		}
	})
}

// TestRemoved: an outlier_detection that its tree has no use for any more leaves
// no timer behind.
func TestRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		actors := &lbtest.Troupe{PolicyName: "actor"}
		tree := lbtest.NewTree(t, priority.Builder(), outlierdetection.Builder(), actors)
		defer tree.Close()
		draws := 0
		tree.Draw = func() uint64 { draws++; return 0 }
		cfg := &policy.OutlierDetectionConfig{OutlierDetection: new(resource.OutlierDetection), Cluster: "orders", Child: actors.Child("x")}
		cfg.Interval = interval
		percentage(1, 1)(cfg.OutlierDetection)
		child := policy.Child{Policy: policy.OutlierDetection, Config: cfg}
		tree.Config(policy.Child{Config: &policy.PriorityConfig{Children: []policy.PriorityChild{{Name: "0", Child: child}}}})
		tree.Sleep(interval)
		if draws != 1 {
			t.Fatalf("%d draws at an interval's end, want 1", draws)
		}
		tree.Config(policy.Child{Config: &policy.PriorityConfig{Children: []policy.PriorityChild{{Name: "1", Child: actors.Child("y")}}}})
		tree.Sleep(5 * interval)
		if draws != 1 {
			t.Errorf("%d draws after the removal", draws-1)
		}
	})
}

// TestPassesOn: what is not its own goes to the child and back.
func TestPassesOn(t *testing.T) {
	actors := &lbtest.Troupe{PolicyName: "actor"}
	tree := lbtest.NewTree(t, outlierdetection.Builder(), actors)
	if n := tree.Describe(); n.Policy != policy.OutlierDetection || n.State != connecting {
		t.Errorf("before the first config: %+v", n)
	}
	config := func(c policy.Child) policy.Child {
		return policy.Child{Config: &policy.OutlierDetectionConfig{Cluster: "orders", Child: c}}
	}
	tree.Config(config(actors.Child("x")))
	tree.Batch(func() { actors.Actor("x").Says(ready) })
	if res, err := tree.Pick(nil); tree.State() != ready || err != nil || res.Done != nil {
		t.Errorf("%v, %+v, %v", tree.State(), res, err)
	}
	if a := actors.Actor("x"); a.Updates != 1 {
		t.Errorf("the child got %+v", a)
	}
	errBad := errors.New("bad config")
	tree.Config(config(actors.Refusing("x", errBad)))
	if _, err := tree.Pick(nil); tree.State() != failure || !errors.Is(err, errBad) {
		t.Errorf("%v, %v; want TRANSIENT_FAILURE, %v", tree.State(), err, errBad)
	}
	tree.Config(config(actors.Child("x")))
	errMode := errors.New("no such connect mode")
	tree.RefuseSubConn = func(string) error { return errMode }
	tree.Batch(func() {
		_, err := actors.Actor("x").Conn.NewSubConn([]resolver.Address{{Addr: "a"}}, balancer.NewSubConnOptions{})
		if !errors.Is(err, errMode) {
			t.Errorf("a SubConn that is refused: %v", err)
		}
	})
	tree.RefuseSubConn = nil
	tree.Batch(func() { // without listeners
		sc, err := actors.Actor("x").Conn.NewSubConn([]resolver.Address{{Addr: "a"}}, balancer.NewSubConnOptions{})
		if err != nil {
			t.Fatal(err)
		}
		tree.SubConn("a").Says(ready, nil)
		if at, ok := policy.ConnectionOf(sc).Ready(); at != "a" || !ok {
			t.Errorf("ready at %q: %t", at, ok)
		}
		sc.Shutdown()
	})
}
