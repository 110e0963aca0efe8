package parity_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/serviceconfig"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/emptypb"
)

// clusterPolicy is what grpc-go's xds resolver puts at the top of each cluster's
// tree. It is registered a second time, with a tap on it.
const clusterPolicy = "cds_experimental"

type clusterTapBuilder struct{ balancer.Builder }

// clusterTapConfig is grpc's config, and whose it is.
type clusterTapConfig struct {
	serviceconfig.LoadBalancingConfig

	cluster string
}

// ParseConfig is grpc's.
func (b clusterTapBuilder) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
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
	return &clusterTapConfig{config, own.Cluster}, nil
}

// Build builds grpc's own policy, where the target has a tap on a ClientConn that
// records.
func (b clusterTapBuilder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	of, ok := tapOf[*clusterTaps](opts.Target)
	if !ok {
		return tappedCluster{Balancer: b.Builder.Build(cc, opts), begin: func(string) {}, failed: func(error) {}, end: func() {}}
	}
	own := newTap()
	wrapper := &tapped{ClientConn: cc, tap: own}
	var cluster string
	wrapper.wrap = func(p balancer.Picker) balancer.Picker { return askedPicker{p, own, cluster} }
	return tappedCluster{
		Balancer: b.Builder.Build(wrapper, opts),
		begin: func(name string) {
			cluster = name
			of.set(name, own)
		},
		failed: own.fail,
		end:    func() { of.unset(cluster, own) },
	}
}

// tappedCluster tells the tap which cluster it is of.
type tappedCluster struct {
	balancer.Balancer

	begin  func(cluster string)
	failed func(error)
	end    func()
}

// UpdateClientConnState hands grpc's own config on.
func (b tappedCluster) UpdateClientConnState(s balancer.ClientConnState) error {
	config, ok := s.BalancerConfig.(*clusterTapConfig)
	if !ok {
		return fmt.Errorf("a cluster's config is a %T", s.BalancerConfig)
	}
	b.begin(config.cluster)
	s.BalancerConfig = config.LoadBalancingConfig
	err := b.Balancer.UpdateClientConnState(s)
	b.failed(err)
	return err
}

func (b tappedCluster) Close() {
	b.end()
	b.Balancer.Close()
}

// clusterTaps are the taps of a target's clusters.
type clusterTaps struct {
	mu  sync.Mutex
	all map[string]*tap
}

func (c *clusterTaps) set(cluster string, t *tap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[cluster] = t
}

func (c *clusterTaps) unset(cluster string, t *tap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[cluster] == t {
		delete(c.all, cluster)
	}
}

func (c *clusterTaps) get(cluster string) *tap {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[cluster]
}

// askKey is the context key of a call that only asks where it would go: its value
// is the answer's place.
type askKey struct{}

// directed is where a request goes: the cluster, where it got one, and what came
// of that.
type directed struct {
	reply

	cluster string
}

// askedPicker answers calls that ask, with what grpc's own picker says.
type askedPicker struct {
	balancer.Picker

	tap     *tap
	cluster string
}

func (p askedPicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	if to, ok := info.Ctx.Value(askKey{}).(*directed); ok {
		*to = directed{p.tap.pick(p.Picker, info), p.cluster}
		return balancer.PickResult{}, errProbed
	}
	return p.Picker.Pick(info)
}

// grpcTarget is a channel of grpc-go's for an xds:/// target. Calls go through
// all of it, up to the picker of the cluster.
type grpcTarget struct {
	target string
	conn   *grpc.ClientConn
	taps   *clusterTaps
}

func newGRPCTarget(bootstrap []byte, target string, creds credentials.TransportCredentials) (*grpcTarget, error) {
	g := &grpcTarget{target: target, taps: &clusterTaps{all: make(map[string]*tap)}}
	taps.Store(target, g.taps)
	builder, err := xds.NewXDSResolverWithConfigForTesting(bootstrap)
	if err != nil {
		return nil, fmt.Errorf("bootstrap grpc: %w", err)
	}
	g.conn, err = grpc.NewClient("xds:///"+target,
		grpc.WithTransportCredentials(creds), grpc.WithResolvers(builder),
		grpc.WithConnectParams(connectParams), grpc.WithNoProxy(), grpc.WithIdleTimeout(0))
	if err != nil {
		return nil, fmt.Errorf("open grpc's channel: %w", err)
	}
	g.conn.Connect()
	return g, nil
}

// askTimeout bounds a call that has no picker yet.
const askTimeout = time.Second

func (g *grpcTarget) ask(ctx context.Context, r *request) directed {
	var to directed
	md := make(metadata.MD)
	for _, h := range r.headers {
		md.Append(h.name, h.value)
	}
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(context.WithValue(ctx, askKey{}, &to), md), askTimeout)
	defer cancel()
	err := g.conn.Invoke(ctx, r.path, &emptypb.Empty{}, &emptypb.Empty{})
	if to.kind == "" {
		to = g.refusal(err)
	}
	return to
}

// refusal tells what a call's error says that came to no cluster's policy.
func (g *grpcTarget) refusal(err error) directed {
	text := err.Error()
	if of := failedCluster.FindStringSubmatch(text); of != nil {
		return directed{reply{kind: clusterFailure(text)}, of[1]}
	}
	return directed{reply: reply{kind: targetFailure(status.Code(err), text)}}
}

// failedCluster finds the cluster in the words of grpc-go's cluster manager for
// one that cannot be used.
var failedCluster = regexp.MustCompile(`failed to push new configuration .* to child "cluster:([^"]+)"`)

// clusterFailure tells why a cluster cannot be used.
func clusterFailure(text string) kind {
	switch {
	case strings.Contains(text, "has been removed"):
		return noCluster
	case strings.Contains(text, "no leaf clusters"):
		return noLeaf
	}
	return badCluster
}

func targetFailure(code codes.Code, text string) kind {
	switch {
	case code == codes.DeadlineExceeded:
		return queued
	case code != codes.Unavailable:
	case strings.Contains(text, "no matched route was found"):
		return noRoute
	case strings.Contains(text, "does not have a supported route action"):
		return unsupported
	case strings.Contains(text, "listener resource error") && strings.Contains(text, "has been removed"):
		return noListener
	case strings.Contains(text, "route resource error") && strings.Contains(text, "has been removed"):
		return noRoutes
	case strings.Contains(text, "could not find VirtualHost"):
		return noHost
	case strings.Contains(text, "listener resource error"), strings.Contains(text, "route resource error"):
		return badTarget
	}
	return kind("refused: " + text)
}

// look tells of a cluster what look does of a channel. A cluster that is not
// there has no states.
func (g *grpcTarget) look(cluster string) (state connectivity.State, states map[string]connectivity.State, saw string) {
	t := g.taps.get(cluster)
	if t == nil {
		return connectivity.Shutdown, nil, "none"
	}
	return t.look()
}

// revived reports whether a cluster that cannot be used serves all the same.
func (g *grpcTarget) revived(cluster string) bool {
	t := g.taps.get(cluster)
	return t != nil && t.revived()
}

// clusters lists those that have a tree.
func (g *grpcTarget) clusters() []string {
	g.taps.mu.Lock()
	defer g.taps.mu.Unlock()
	var names []string
	for name := range g.taps.all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (g *grpcTarget) close() {
	_ = g.conn.Close()
	taps.Delete(g.target)
}
