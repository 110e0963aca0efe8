package foreign_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/foreign"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/test/lbtest"
)

var errRefused = errors.New("connection refused")

func TestConfigs(t *testing.T) {
	s := play(t)
	s.Config(part("1", endpoint("a:1", "a:2"), endpoint("b:1")))
	s.Config(part("1", endpoint("a:1", "a:2")))
	s.Config(part("2", endpoint("a:1")))
	s.expect("of configs", "config 1 of 3 addresses", "config 1 of 2 addresses", "config 2 of 1 addresses")
	s.onConfig = func(balancer.ClientConnState) error { return errRefused }
	if err := s.Update(part("2")); !errors.Is(err, errRefused) {
		t.Errorf("a config that the policy refuses: %v", err)
	}
	s.onConfig = func(balancer.ClientConnState) error { return balancer.ErrBadResolverState }
	s.Config(part("2"))
}

func TestParseConfig(t *testing.T) {
	s := &script{t: t}
	for _, tt := range []struct {
		inner balancer.Builder
		text  string
		want  string
	}{
		{s, "1", "1, <nil>"},
		{s, "null", "none, config of policy script: no script"},
		{struct{ balancer.Builder }{s}, "null", "none, <nil>"}, // a builder that takes no config
	} {
		config, err := lbtest.As[balancer.ConfigParser](t, foreign.Wrap(tt.inner)).ParseConfig(json.RawMessage(tt.text))
		got := "none"
		if c, ok := config.(*scriptConfig); ok {
			got = c.text
		}
		equal(t, tt.text, fmt.Sprintf("%s, %v", got, err), tt.want)
	}
}

func TestWhatIsPassedUp(t *testing.T) {
	s := play(t)
	s.cc.ResolveNow(resolver.ResolveNowOptions{})
	equal(t, "Target", s.cc.Target(), "")
	if s.cc.MetricsRecorder() == nil {
		t.Error("no MetricsRecorder")
	}

	var a, b balancer.SubConn
	s.act(func() {
		a, b = s.subConn("a", addressesOf(endpoint("a:1"))...), s.subConn("b", addressesOf(endpoint("b:1"))...)
		a.Connect()
	})
	equal(t, "Connect", s.Connected, []string{"a:1"})
	s.act(func() {
		a.UpdateAddresses(addressesOf(endpoint("a:2")))
		s.cc.UpdateAddresses(b, addressesOf(endpoint("b:2")))
	})
	s.SubConn("a:2")
	s.SubConn("b:2")
	s.act(func() {
		a.Shutdown()
		s.cc.RemoveSubConn(b)
	})
	for _, sc := range s.SubConns {
		equal(t, "shut down", sc.Closed, true)
	}
	s.expect("of its SubConns", "a SHUTDOWN", "b SHUTDOWN")
}

// The states of a SubConn without a listener go to the policy.
func TestSubConnWithoutListener(t *testing.T) {
	s := play(t)
	var mine balancer.SubConn
	s.act(func() {
		var err error
		mine, err = s.cc.NewSubConn(addressesOf(endpoint("a:1")), balancer.NewSubConnOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	s.onState = func(sc balancer.SubConn, state balancer.SubConnState) {
		if sc != mine || !errors.Is(state.ConnectionError, errRefused) {
			t.Errorf("state of %v: %+v", sc, state)
		}
	}
	s.say("a:1", failing, errRefused)
	s.expect("", "SubConn TRANSIENT_FAILURE")
}

func TestSubConnThatCannotBe(t *testing.T) {
	s := play(t)
	s.act(func() {
		if _, err := s.cc.NewSubConn(nil, balancer.NewSubConnOptions{}); err == nil {
			t.Error("a SubConn without address")
		}
	})
	s.RefuseSubConn = func(string) error { return errRefused }
	s.Config(part("1", endpoint("a:1")))
	s.expect("", "config 1 of 1 addresses")
	var sc balancer.SubConn
	s.act(func() {
		sc = s.subConn("a", addressesOf(endpoint("a:1"))...)
		sc.Connect()
	})
	s.expect("", "a TRANSIENT_FAILURE: connection refused")
	n := s.Describe().Endpoints
	if len(n) != 1 || n[0].State != failing || !errors.Is(n[0].LastErr, errRefused) {
		t.Errorf("described as %+v", n)
	}
	s.act(func() {
		sc.Shutdown()
		sc.Shutdown()
	})
	s.expect("", "a SHUTDOWN")
	s.act(func() { s.subConn("b", addressesOf(endpoint("a:1"))...).Shutdown() })
	s.expect("of one that is shut down at once", "b SHUTDOWN")
	equal(t, "counted", s.Summarize().Census, policy.Census{Idle: 1})
}

func TestHealthListener(t *testing.T) {
	s := play(t)
	var sc balancer.SubConn
	s.act(func() { sc = s.subConn("a", addressesOf(endpoint("a:1"))...) })
	s.say("a:1", ready, nil)
	s.expect("", "a READY")
	below := s.SubConn("a:1")
	reportReady := func(i int) { s.Batch(func() { below.Healths[i](balancer.SubConnState{ConnectivityState: ready}) }) }

	s.act(func() { sc.RegisterHealthListener(s.listen("health 0")) })
	reportReady(0)
	s.expect("", "health 0 READY")
	s.act(func() { sc.RegisterHealthListener(s.listen("health 1")) })
	reportReady(0)
	reportReady(1)
	s.expect("once there is another listener", "health 1 READY")
	s.act(func() { sc.RegisterHealthListener(nil) })
	reportReady(1)
	s.expect("once the listener is dropped")
	equal(t, "listeners", len(below.Healths), 2)

	s.act(func() { sc.RegisterHealthListener(s.listen("health 2")) })
	s.say("a:1", connectivity.Idle, nil)
	reportReady(2)
	s.expect("once the connection is lost", "a IDLE")
	s.act(func() { sc.RegisterHealthListener(s.listen("health 3")) })
	s.Close()
	s.calls = nil
	below.Healths[3](balancer.SubConnState{ConnectivityState: ready})
	s.expect("after its end")
}

// What the policy calls while the owner is in it is done when the owner leaves it;
// it is not called back from within (see script.record).
func TestCallsFromWithin(t *testing.T) {
	s := play(t)
	picker := &policy.ErrPicker{Err: errRefused}
	var a balancer.SubConn
	s.onConfig = func(balancer.ClientConnState) error {
		a = s.subConn("a", addressesOf(endpoint("a:1"))...)
		a.Connect()
		s.cc.UpdateState(balancer.State{ConnectivityState: connecting, Picker: picker})
		if len(s.SubConns) > 0 || len(s.Reports) > 0 {
			t.Error("the tree is called from within the policy")
		}
		return nil
	}
	s.Batch(func() {
		if err := s.Root().Update(part("1", endpoint("a:1"))); err != nil {
			t.Error(err)
		}
		if len(s.Reports) != 1 || len(s.Connected) != 1 {
			t.Errorf("after the config was taken: %d reports, %v is connected", len(s.Reports), s.Connected)
		}
	})
	s.expect("", "config 1 of 1 addresses")

	// So is what it calls when it gets the state of a SubConn, of its health and of errors.
	listener := s.listen("b")
	s.act(func() {
		sc, err := s.cc.NewSubConn(addressesOf(endpoint("b:1")), balancer.NewSubConnOptions{StateListener: func(state balancer.SubConnState) {
			listener(state)
			a.Connect()
			a.Shutdown()
		}})
		if err != nil {
			t.Error(err)
		}
		sc.RegisterHealthListener(func(balancer.SubConnState) { a.Connect() })
	})
	first, b := s.SubConn("a:1"), s.SubConn("b:1")
	s.Batch(func() {
		b.Healths[0](balancer.SubConnState{ConnectivityState: ready})
		equal(t, "asked to connect", first.Connects, 2)
		b.Says(ready, nil)
		equal(t, "asked to connect", first.Connects, 3)
	})
	s.expect("", "b READY", "a SHUTDOWN")
}

// What the policy calls while it gets the result of a call waits for its turn.
func TestCallsWithinCalls(t *testing.T) {
	s := play(t)
	var never, a, b balancer.SubConn
	s.RefuseSubConn = func(address string) error {
		if address == "never:1" {
			return errRefused
		}
		return nil
	}
	s.act(func() {
		var err error
		never, err = s.cc.NewSubConn(addressesOf(endpoint("never:1")), balancer.NewSubConnOptions{StateListener: func(state balancer.SubConnState) {
			if state.ConnectivityState == shutdown {
				b.Connect()
			}
		}})
		if err != nil {
			t.Error(err)
		}
		a, b = s.subConn("a", addressesOf(endpoint("a:1"))...), s.subConn("b", addressesOf(endpoint("b:1"))...)
	})
	s.act(func() {
		never.Shutdown()
		a.Connect()
	})
	equal(t, "connected", s.Connected, []string{"a:1", "b:1"})
}

// What the policy calls from elsewhere comes later, and before what it calls later.
func TestCallsFromElsewhere(t *testing.T) {
	s := play(t)
	var a balancer.SubConn
	s.Batch(func() { // the owner is busy, and not with the policy
		done := make(chan struct{})
		go func() {
			defer close(done)
			a = s.subConn("a", addressesOf(endpoint("a:1"))...)
		}()
		<-done
		equal(t, "SubConns", len(s.SubConns), 0)
		s.do(func() { a.Connect() })
		equal(t, "connected", s.Connected, []string{"a:1"})
	})
	var all sync.WaitGroup
	for range 100 {
		all.Go(a.Connect)
	}
	all.Wait()
	s.Batch(func() {})
	equal(t, "Connect", s.SubConns[0].Connects, 101)
}

// A policy that makes a new SubConn as soon as one cannot be made does not keep
// the owner from anything else.
func TestPolicyThatTriesForEver(t *testing.T) {
	s := play(t)
	s.RefuseSubConn = func(string) error { return errRefused }
	tries := 0
	var try func(balancer.SubConnState)
	try = func(balancer.SubConnState) {
		tries++
		if _, err := s.cc.NewSubConn(addressesOf(endpoint("a:1")), balancer.NewSubConnOptions{StateListener: try}); err != nil {
			t.Error(err)
		}
	}
	s.act(func() { try(balancer.SubConnState{}) })
	for range 10 {
		s.Batch(func() {})
	}
	s.Close()
	if tries < 2 {
		t.Errorf("%d tries", tries)
	}
}

func TestAfterTheEnd(t *testing.T) {
	s := play(t)
	s.act(func() { s.subConn("a", addressesOf(endpoint("a:1"))...) })
	a := s.SubConn("a:1")
	s.onClose = func() {
		s.subConn("late", addressesOf(endpoint("b:1"))...)
		s.cc.UpdateState(balancer.State{ConnectivityState: ready})
	}
	s.Close()
	s.expect("", "close")
	equal(t, "what it left is shut down", a.Closed, true)
	equal(t, "SubConns", len(s.SubConns), 1)
	equal(t, "reports", len(s.Reports), 0)
	if _, err := s.cc.NewSubConn(addressesOf(endpoint("b:1")), balancer.NewSubConnOptions{}); err == nil {
		t.Error("a SubConn after the end")
	}
}

// fixed is a picker that gives one answer, and counts the calls of Done.
type fixed struct {
	sc          balancer.SubConn
	err         error
	asked, done int
}

func (f *fixed) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	f.asked++
	if info.Ctx == nil {
		return balancer.PickResult{}, errors.New("asked without context")
	}
	return balancer.PickResult{SubConn: f.sc, Done: func(balancer.DoneInfo) { f.done++ }}, f.err
}

// Why the policy has failed is asked of its picker, once.
func TestWhyItFailed(t *testing.T) {
	s := play(t)
	for _, c := range []struct {
		state  connectivity.State
		picker fixed
		why    error
		asked  int
		done   int
	}{
		{failing, fixed{err: errRefused}, errRefused, 1, 0},
		{connecting, fixed{err: errRefused}, nil, 0, 0},
		{failing, fixed{err: balancer.ErrNoSubConnAvailable}, nil, 1, 0},
		{failing, fixed{}, nil, 1, 1},
	} {
		p := c.picker
		s.act(func() { s.cc.UpdateState(balancer.State{ConnectivityState: c.state, Picker: &p}) })
		last := s.Reports[len(s.Reports)-1]
		n := s.Describe()
		equal(t, "described", n.Err, c.why)
		equal(t, "state", n.State, c.state)
		equal(t, "failure", policy.FailureOf(last), c.why)
		equal(t, "asked", p.asked, c.asked)
		equal(t, "done calls", p.done, c.done)
	}
}

// Picks wait while the policy has no picker, as under grpc's channel.
func TestNoPicker(t *testing.T) {
	s := play(t)
	for _, state := range []connectivity.State{failing, ready, connecting, idle} {
		s.act(func() { s.cc.UpdateState(balancer.State{ConnectivityState: state}) })
		if _, err := s.Pick(nil); err != balancer.ErrNoSubConnAvailable { //nolint:errorlint // pickers return it bare
			t.Errorf("%v: %v, want %v", state, err, balancer.ErrNoSubConnAvailable)
		}
		n := s.Describe()
		equal(t, "state", n.State, state)
		equal(t, "failure", n.Err, error(nil))
	}
}

// An endpoint is one thing, however many SubConns the policy makes for it, and
// whatever of it a config changes.
func TestEndpoints(t *testing.T) {
	s := play(t)
	two, untried := endpoint("a:1", "a:2"), endpoint("b:1")
	var first, second, other balancer.SubConn
	s.onConfig = func(c balancer.ClientConnState) error {
		if first == nil {
			addrs := c.ResolverState.Endpoints[0].Addresses
			first, second = s.subConn("first", addrs[:1]...), s.subConn("second", addrs[1:]...)
			other = s.subConn("other", resolver.Address{Addr: "c:1"})
		}
		return nil
	}
	s.Config(part("1", two, untried))
	counted := func(when string, want policy.Census) {
		t.Helper()
		equal(t, when, s.Summarize().Census, want)
	}
	counted("at first", policy.Census{Idle: 3})
	s.say("a:1", failing, errRefused)
	counted("one address failed", policy.Census{Idle: 3})
	s.say("a:2", failing, errors.New("unreachable"))
	counted("both failed", policy.Census{Idle: 2, TransientFailure: 1})
	n := s.Describe().Endpoints
	for range 20 { // of two that are the same, the first counts
		equal(t, "last error", s.Describe().Endpoints[0].LastErr, errRefused)
	}
	if len(n) != 3 || n[0].Endpoint != two || n[1].Endpoint != untried || n[2].Endpoint.Addresses[0] != "c:1" {
		t.Fatalf("described as %+v", n)
	}
	if n[0].State != failing || n[0].LastErr != errRefused || n[1].State != idle || n[1].LastErr != nil { //nolint:errorlint // the same
		t.Errorf("described as %+v", n)
	}
	s.say("a:2", connecting, nil)
	if n := s.Describe().Endpoints[0]; n.State != connecting || n.LastErr == nil {
		t.Errorf("described as %+v", n)
	}
	s.say("a:2", ready, nil)
	counted("one is READY", policy.Census{Idle: 2, Ready: 1})
	if n := s.Describe().Endpoints[0]; n.State != ready || n.Address != "a:2" || n.LastErr != nil {
		t.Errorf("described as %+v", n)
	}

	s.say("a:2", idle, nil)
	s.say("a:1", connecting, nil)
	s.say("a:1", ready, nil)
	s.say("a:1", idle, nil)
	if n := s.Describe().Endpoints[0]; n.State != idle || n.LastErr != nil {
		t.Errorf("after both were READY described as %+v", n)
	}
	s.say("a:1", failing, errRefused)
	s.say("a:2", ready, nil)

	// A picked SubConn is of the endpoint as the config has it now.
	now := endpoint("a:3", "a:2", "a:1")
	s.Config(part("2", now))
	s.act(func() {
		s.cc.UpdateState(balancer.State{ConnectivityState: ready, Picker: &fixed{sc: second}})
	})
	call := &policy.Call{Exclude: []string{"a:3"}}
	if _, err := s.Pick(call); err == nil {
		t.Error("an address that is excluded is picked")
	}
	call = new(policy.Call)
	if res, err := s.Pick(call); err != nil || call.Endpoint != now || lbtest.Picked(t, res) != s.SubConn("a:2") {
		t.Errorf("picked %+v, %v of %+v", res.SubConn, err, call.Endpoint)
	}
	counted("the other endpoint is gone", policy.Census{Idle: 1, Ready: 1})
	s.act(second.Shutdown)
	counted("one is shut down", policy.Census{Idle: 1, TransientFailure: 1})

	// One SubConn for several endpoints is of that which it is connected to.
	s.Config(part("3", endpoint("a:1"), endpoint("c:1"), endpoint("d:1")))
	s.act(func() {
		first.Shutdown()
		other.UpdateAddresses([]resolver.Address{{Addr: "d:1"}, {Addr: "c:1"}})
	})
	s.say("d:1", connecting, nil)
	counted("it connects", policy.Census{Idle: 2, Connecting: 1})
	if n := s.Describe().Endpoints[2]; n.State != connecting {
		t.Errorf("described as %+v", n)
	}
	slices.Reverse(s.SubConn("d:1").Addresses) // the first is the one that is connected
	s.say("c:1", ready, nil)
	if n := s.Describe().Endpoints[1]; n.State != ready || n.Address != "c:1" {
		t.Errorf("described as %+v", n)
	}

	// What the policy keeps of endpoints that the config has no more counts, too.
	s.act(func() { s.subConn("new", addressesOf(endpoint("e:1"))...) })
	s.Config(part("4"))
	counted("no endpoint is left", policy.Census{Ready: 1, Idle: 1})
	for range 20 {
		n := s.Describe().Endpoints
		if len(n) != 2 || n[0].Address != "c:1" || n[1].Endpoint.Addresses[0] != "e:1" {
			t.Fatalf("described as %+v", n)
		}
	}
}

// The summary of a tree is made again where a policy is marked: whatever changes the
// counts marks it.
func TestWhatChangesTheSummaryMarks(t *testing.T) {
	s := play(t)
	var sc balancer.SubConn
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"a config", func() { s.Config(part("1", endpoint("a:1"))) }},
		{"a SubConn", func() { s.act(func() { sc = s.subConn("b", resolver.Address{Addr: "b:1"}) }) }},
		{"its state", func() { s.say("b:1", ready, nil) }},
		{"its address", func() { s.act(func() { sc.UpdateAddresses(addressesOf(endpoint("a:1"))) }) }},
		{"its end", func() { s.act(sc.Shutdown) }},
		{"the policy's state", func() { s.act(func() { s.cc.UpdateState(balancer.State{ConnectivityState: connecting}) }) }},
	} {
		touched := lbtest.As[interface{ Touched() uint64 }](t, s.cc)
		before, after := uint64(0), uint64(0)
		s.Batch(func() { before = touched.Touched() })
		c.do()
		s.Batch(func() { after = touched.Touched() })
		if after == before {
			t.Errorf("%s marks nothing", c.name)
		}
	}
}
