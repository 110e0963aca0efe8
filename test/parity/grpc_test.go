package parity_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/emptypb"
)

// topPolicy is what grpc-go's xds resolver puts at the top of its tree. It is
// registered a second time, with a tap on it.
const topPolicy = "xds_cluster_manager_experimental"

func init() {
	balancer.Register(tapBuilder{balancer.Get(topPolicy)})
	balancer.Register(clusterTapBuilder{balancer.Get(clusterPolicy)})
}

type tapBuilder struct{ balancer.Builder }

// taps holds the tap of each target.
var taps sync.Map

// Build builds grpc's own policy, where the target has a tap on a ClientConn that
// records.
func (b tapBuilder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	if own, ok := tapOf[*tap](opts.Target); ok {
		return b.Builder.Build(&tapped{ClientConn: cc, tap: own, wrap: func(p balancer.Picker) balancer.Picker { return probePicker{p} }}, opts)
	}
	return b.Builder.Build(cc, opts)
}

// tapOf returns a target's tap, of one kind.
func tapOf[T any](t resolver.Target) (own T, ok bool) {
	found, _ := taps.Load(t.Endpoint())
	own, ok = found.(T)
	return own, ok
}

// ParseConfig is grpc's.
func (b tapBuilder) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	return parseConfig(b.Builder, js)
}

func parseConfig(b balancer.Builder, js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	parser, ok := b.(balancer.ConfigParser)
	if !ok {
		return nil, fmt.Errorf("policy %s parses no config", b.Name())
	}
	return parser.ParseConfig(js)
}

// tap records what passes between the tree and its channel.
type tap struct {
	mu     sync.Mutex
	state  balancer.State
	states int64
	// failedAt is how many states there were when the last config could not be
	// used; -1 where it could. The parent then has a picker that says so, until
	// there is another state.
	failedAt int64
	subConns map[balancer.SubConn]*tappedSubConn
}

func newTap() *tap { return &tap{subConns: make(map[balancer.SubConn]*tappedSubConn), failedAt: -1} }

type tappedSubConn struct {
	address string
	state   connectivity.State
}

// tapped is the ClientConn below a tap.
type tapped struct {
	balancer.ClientConn
	tap  *tap
	wrap func(balancer.Picker) balancer.Picker
}

func (c *tapped) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	own := &tappedSubConn{address: addrs[0].Addr}
	listener := opts.StateListener
	var sc balancer.SubConn
	opts.StateListener = func(s balancer.SubConnState) {
		c.tap.subConnState(sc, own, s.ConnectivityState)
		listener(s)
	}
	c.tap.mu.Lock()
	defer c.tap.mu.Unlock()
	sc, err := c.ClientConn.NewSubConn(addrs, opts)
	if err == nil {
		c.tap.subConns[sc] = own
	}
	return sc, err
}

func (t *tap) subConnState(sc balancer.SubConn, own *tappedSubConn, to connectivity.State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own.state = to
	if to == connectivity.Shutdown {
		delete(t.subConns, sc)
	}
}

func (c *tapped) UpdateState(s balancer.State) {
	c.tap.mu.Lock()
	c.tap.state = s
	c.tap.states++
	c.tap.mu.Unlock()
	c.ClientConn.UpdateState(balancer.State{ConnectivityState: s.ConnectivityState, Picker: c.wrap(s.Picker)})
}

// probeKey is the context key of a call that only asks for its own context.
type probeKey struct{}

// probePicker answers probes with their context: that which grpc's pickers get,
// with the cluster and the hash of the call in it.
type probePicker struct{ balancer.Picker }

var errProbed = status.Error(codes.Unavailable, "probed")

func (p probePicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	if probe, ok := info.Ctx.Value(probeKey{}).(chan context.Context); ok {
		probe <- info.Ctx
		return balancer.PickResult{}, errProbed
	}
	return p.Picker.Pick(info)
}

// grpcSide is a channel of grpc-go's for an xds:/// target.
type grpcSide struct {
	target string
	conn   *grpc.ClientConn
	tap    *tap
	calls  [hashes]context.Context // of calls, as the pickers get them
	dialed sync.Map                // each call that was connected
}

// connectParams make grpc-go try about as often as lbd does.
var connectParams = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 300 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: 20 * time.Second,
}

func newGRPCSide(target, management string) (*grpcSide, error) {
	g := &grpcSide{
		target: target,
		tap:    newTap(),
	}
	taps.Store(target, g.tap)
	builder, err := xds.NewXDSResolverWithConfigForTesting(bootstrapOf(management, target, keepDeleted))
	if err != nil {
		return nil, fmt.Errorf("bootstrap grpc: %w", err)
	}
	g.conn, err = grpc.NewClient("xds:///"+target,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithResolvers(builder),
		grpc.WithConnectParams(connectParams), grpc.WithNoProxy(), grpc.WithContextDialer(g.dial))
	if err != nil {
		return nil, fmt.Errorf("open grpc's channel: %w", err)
	}
	g.conn.Connect()
	return g, nil
}

// keepDeleted is the server feature that makes grpc-go keep deleted resources, as lbd
// always does (gRFC A88).
const keepDeleted = "ignore_resource_deletion"

// bootstrapOf leads a node to the management server, which has a feature.
func bootstrapOf(management, node, feature string) []byte {
	return fmt.Appendf(nil,
		`{"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3", %q]}], "node": {"id": %q}}`,
		management, feature, node)
}

func (g *grpcSide) dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err == nil {
		g.dialed.Store(call{c.LocalAddr().String(), address}, true)
	}
	return c, err
}

// prepare gets the contexts of calls with each hash. It waits for the first
// picker, and for the Listener where a machine stood still for so long that
// grpc-go gave it up.
func (g *grpcSide) prepare(ctx context.Context) (err error) {
	for i := range hashes {
		for range mostLooks {
			if g.calls[i], err = g.probe(ctx, hashText(i)); err == nil {
				break
			}
			time.Sleep(pause)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// probe gets the context that a call with a hash has when it reaches a picker.
func (g *grpcSide) probe(ctx context.Context, hash string) (context.Context, error) {
	probe := make(chan context.Context, 1)
	ctx = metadata.AppendToOutgoingContext(context.WithValue(ctx, probeKey{}, probe), hashHeader, hash)
	err := g.conn.Invoke(ctx, "/parity.Probe/Pick", &emptypb.Empty{}, &emptypb.Empty{})
	select {
	case got := <-probe:
		return context.WithoutCancel(got), nil
	default:
		return nil, fmt.Errorf("probe grpc's picker: %w", err)
	}
}

func (g *grpcSide) name() string { return "grpc-go" }

// called reports whether a connection comes from here.
func (g *grpcSide) called(c call) bool {
	_, ok := g.dialed.Load(c)
	return ok
}

func (g *grpcSide) pick(n int) reply {
	g.tap.mu.Lock()
	picker, number := g.tap.state.Picker, g.tap.states
	g.tap.mu.Unlock()
	r := g.tap.pick(picker, balancer.PickInfo{FullMethodName: "/parity.Probe/Pick", Ctx: g.calls[n%hashes]})
	r.picker = number
	return r
}

// pick asks one of the tap's pickers.
func (t *tap) pick(from balancer.Picker, info balancer.PickInfo) reply {
	res, err := from.Pick(info)
	if err != nil {
		return reply{kind: kindOf(err)}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := reply{kind: picked, done: func() {
		if res.Done != nil {
			res.Done(balancer.DoneInfo{})
		}
	}}
	if sc := t.subConns[res.SubConn]; sc != nil {
		r.address = sc.address
	}
	return r
}

// kindOf tells the kind of a picker's error by the words that grpc-go has for
// it.
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

// look tells the channel's state, those of its SubConns, by address, and, in
// some form, what changes only with what picks come to.
func (g *grpcSide) look() (state connectivity.State, states map[string]connectivity.State, saw string) {
	return g.tap.look()
}

func (t *tap) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failedAt = -1; err != nil {
		t.failedAt = t.states
	}
}

// revived reports whether a tree whose last config could not be used serves all the
// same.
func (t *tap) revived() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failedAt >= 0 && t.failedAt < t.states
}

func (t *tap) look() (state connectivity.State, states map[string]connectivity.State, saw string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	states = make(map[string]connectivity.State, len(t.subConns))
	for _, sc := range t.subConns {
		if states[sc.address] != connectivity.Ready {
			states[sc.address] = sc.state
		}
	}
	if state = t.state.ConnectivityState; t.failedAt == t.states {
		state = connectivity.TransientFailure
	}
	return state, states, fmt.Sprint(state, readyOf(states))
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

func (g *grpcSide) close() {
	_ = g.conn.Close()
	taps.Delete(g.target)
}
