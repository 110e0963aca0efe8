package parity_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
	"google.golang.org/grpc/status"
)

// clusterPolicy is the policy at the top of each cluster's tree in grpc-go. It is
// registered again, with a tap around it.
const clusterPolicy = "cds_experimental"

func init() { balancer.Register(tapBuilder{balancer.Get(clusterPolicy)}) }

type tapBuilder struct{ balancer.Builder }

// tapConfig is grpc-go's config, with the name of the cluster.
type tapConfig struct {
	serviceconfig.LoadBalancingConfig

	cluster string
}

func (b tapBuilder) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	config, err := parseConfig(b.Builder, js)
	if err != nil {
		return nil, err
	}
	var own struct {
		Cluster string `json:"cluster"`
	}
	if err := json.Unmarshal(js, &own); err != nil {
		return nil, err
	}
	return &tapConfig{config, own.Cluster}, nil
}

func parseConfig(b balancer.Builder, js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	parser, ok := b.(balancer.ConfigParser)
	if !ok {
		return nil, fmt.Errorf("policy %s parses no config", b.Name())
	}
	return parser.ParseConfig(js)
}

// targets holds the *clusterTaps of each target.
var targets sync.Map

// Build builds grpc-go's own policy between the two ends of a tap.
func (b tapBuilder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	t := &tap{ClientConn: cc, subConns: make(map[balancer.SubConn]*tappedSubConn), failedAt: -1}
	of, _ := targets.LoadOrStore(opts.Target.Endpoint(), &clusterTaps{all: make(map[string]*tap)})
	t.of, _ = of.(*clusterTaps)
	t.Balancer = b.Builder.Build(t, opts)
	return t
}

// clusterTaps are the taps of a target's clusters.
type clusterTaps struct {
	mu  sync.Mutex
	all map[string]*tap
}

func (c *clusterTaps) get(cluster string) *tap {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[cluster]
}

// clusters lists those that have a tree.
func (c *clusterTaps) clusters() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.all))
}

// tap records what passes between a cluster's tree and its parent: it is the Balancer
// that the parent calls and the ClientConn that the tree calls.
type tap struct {
	balancer.ClientConn
	balancer.Balancer

	of      *clusterTaps
	cluster string

	mu     sync.Mutex
	state  balancer.State
	states int64
	// failedAt is the number of states when the last config was rejected; -1 if it was
	// not. Until the next state, the parent has a picker with the error.
	failedAt int64
	subConns map[balancer.SubConn]*tappedSubConn
}

type tappedSubConn struct {
	address string
	state   connectivity.State
}

// UpdateClientConnState passes grpc-go's own config on.
func (t *tap) UpdateClientConnState(s balancer.ClientConnState) error {
	config, ok := s.BalancerConfig.(*tapConfig)
	if !ok {
		return fmt.Errorf("a cluster's config is a %T", s.BalancerConfig)
	}
	t.cluster = config.cluster
	t.of.mu.Lock()
	t.of.all[t.cluster] = t
	t.of.mu.Unlock()
	s.BalancerConfig = config.LoadBalancingConfig
	err := t.Balancer.UpdateClientConnState(s)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failedAt = -1; err != nil {
		t.failedAt = t.states
	}
	return err
}

func (t *tap) Close() {
	t.of.mu.Lock()
	if t.of.all[t.cluster] == t {
		delete(t.of.all, t.cluster)
	}
	t.of.mu.Unlock()
	t.Balancer.Close()
}

func (t *tap) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	own := &tappedSubConn{address: addrs[0].Addr}
	listener := opts.StateListener
	var sc balancer.SubConn
	opts.StateListener = func(s balancer.SubConnState) {
		t.mu.Lock()
		if own.state = s.ConnectivityState; own.state == connectivity.Shutdown {
			delete(t.subConns, sc)
		}
		t.mu.Unlock()
		listener(s)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	sc, err := t.ClientConn.NewSubConn(addrs, opts)
	if err == nil {
		t.subConns[sc] = own
	}
	return sc, err
}

func (t *tap) UpdateState(s balancer.State) {
	t.mu.Lock()
	t.state = s
	t.states++
	t.mu.Unlock()
	t.ClientConn.UpdateState(balancer.State{ConnectivityState: s.ConnectivityState, Picker: askedPicker{s.Picker, t, t.cluster}})
}

// askKey is the context key of a call that only asks for its destination: the value is
// the *directed to fill in.
type askKey struct{}

// directed is the destination of a request: the cluster, if one was chosen, and the
// result of the pick.
type directed struct {
	reply

	cluster string
}

// askedPicker answers calls that ask with the result of grpc-go's own picker.
type askedPicker struct {
	balancer.Picker

	tap     *tap
	cluster string
}

var errAsked = status.Error(codes.Unavailable, "the call only asks")

func (p askedPicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	if to, ok := info.Ctx.Value(askKey{}).(*directed); ok {
		*to = directed{p.tap.pick(p.Picker, info), p.cluster}
		return balancer.PickResult{}, errAsked
	}
	return p.Picker.Pick(info)
}

// pick calls one of the tap's pickers.
func (t *tap) pick(from balancer.Picker, info balancer.PickInfo) reply {
	res, err := from.Pick(info)
	if err != nil {
		return reply{kind: kindOf(err), ctx: info.Ctx}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := reply{kind: picked, ctx: info.Ctx, done: func() {
		if res.Done != nil {
			res.Done(balancer.DoneInfo{})
		}
	}}
	if sc := t.subConns[res.SubConn]; sc != nil {
		r.address = sc.address
	}
	return r
}

// kindOf returns the kind of a picker's error, by grpc-go's texts.
func kindOf(err error) kind {
	if errors.Is(err, balancer.ErrNoSubConnAvailable) {
		return queued
	}
	text := err.Error()
	if s, ok := status.FromError(err); ok {
		switch {
		case s.Code() == codes.Unavailable && s.Message() == "RPC is dropped":
			return dropped
		case s.Code() == codes.Unavailable && strings.HasPrefix(s.Message(), "max requests"):
			return broken
		}
		return kind(fmt.Sprintf("%v: %s", s.Code(), s.Message()))
	}
	for _, words := range []string{"no priority is provided", "produced zero addresses", "no children to pick from", "no targets to pick from"} {
		if strings.Contains(text, words) {
			return none
		}
	}
	if strings.Contains(text, "connection refused") {
		return refused
	}
	return kind("not ready: " + text)
}

// revived reports whether a tree serves although its last config was rejected.
func (t *tap) revived() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failedAt >= 0 && t.failedAt < t.states
}

// view is what a side shows of a tree: its state, the states of its SubConns by
// address, and a text that changes only if the results of picks can change.
type view struct {
	state  connectivity.State
	states map[string]connectivity.State
	saw    string
}

func (t *tap) look() view {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := view{state: t.state.ConnectivityState, states: make(map[string]connectivity.State, len(t.subConns))}
	for _, sc := range t.subConns {
		if v.states[sc.address] != connectivity.Ready {
			v.states[sc.address] = sc.state
		}
	}
	if t.failedAt == t.states {
		v.state = connectivity.TransientFailure
	}
	v.saw = fmt.Sprint(v.state, readyOf(v.states))
	return v
}

// readyOf lists the addresses that are READY.
func readyOf(states map[string]connectivity.State) []string {
	var out []string
	for address, s := range states {
		if s == connectivity.Ready {
			out = append(out, address)
		}
	}
	slices.Sort(out)
	return out
}
