package parity_test

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/emptypb"
)

// grpcTarget is a channel of grpc-go for an xds:/// target. Calls pass through all of
// it, up to the picker of the cluster.
type grpcTarget struct {
	*clusterTaps

	target string
	conn   *grpc.ClientConn
}

// connectParams make grpc-go try about as often as lbd does.
var connectParams = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 300 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: 20 * time.Second,
}

func newGRPCTarget(bootstrap []byte, target string, creds credentials.TransportCredentials, more ...grpc.DialOption) (*grpcTarget, error) {
	g := &grpcTarget{target: target, clusterTaps: &clusterTaps{all: make(map[string]*tap)}}
	targets.Store(target, g.clusterTaps)
	builder, err := xds.NewXDSResolverWithConfigForTesting(bootstrap)
	if err != nil {
		return nil, fmt.Errorf("bootstrap grpc: %w", err)
	}
	g.conn, err = grpc.NewClient("xds:///"+target, append(more,
		grpc.WithTransportCredentials(creds), grpc.WithResolvers(builder),
		grpc.WithConnectParams(connectParams), grpc.WithNoProxy(), grpc.WithIdleTimeout(0))...)
	if err != nil {
		return nil, fmt.Errorf("open grpc's channel: %w", err)
	}
	g.conn.Connect()
	return g, nil
}

// keepDeleted is the server feature that makes grpc-go keep deleted resources, as lbd
// always does (gRFC A88).
const keepDeleted = "ignore_resource_deletion"

// bootstrapOf configures a node and the management server, which has a feature.
func bootstrapOf(management, node, feature string) []byte {
	return fmt.Appendf(nil,
		`{"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3", %q]}], "node": {"id": %q}}`,
		management, feature, node)
}

const (
	// askTimeout bounds a call that has no picker yet.
	askTimeout = time.Second
	// method is the method of calls that may have any.
	method = "/parity.Probe/Pick"
)

func (g *grpcTarget) ask(ctx context.Context, r *request) directed {
	var to directed
	md := make(metadata.MD)
	for _, h := range r.headers {
		md.Append(h.name, h.value)
	}
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(context.WithValue(ctx, askKey{}, &to), md), askTimeout)
	defer cancel()
	if err := g.conn.Invoke(ctx, r.path, &emptypb.Empty{}, &emptypb.Empty{}); to.kind == "" {
		to = refusal(err)
	}
	return to
}

// failedCluster finds the cluster in the error of grpc-go's cluster manager for a
// cluster that cannot be used.
var failedCluster = regexp.MustCompile(`failed to push new configuration .* to child "cluster:([^"]+)"`)

// refusal returns the reason of an error from above the policies of clusters, and the
// cluster that it names.
func refusal(err error) directed {
	text := err.Error()
	if of := failedCluster.FindStringSubmatch(text); of != nil {
		why := badCluster
		switch {
		case strings.Contains(text, "has been removed"):
			why = noCluster
		case strings.Contains(text, "no leaf clusters"):
			why = noLeaf
		}
		return directed{reply{kind: why}, of[1]}
	}
	return directed{reply: reply{kind: targetFailure(status.Code(err), text)}}
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

// look returns the view of a cluster. A cluster without a tree has no states.
func (g *grpcTarget) look(cluster string) view {
	t := g.get(cluster)
	if t == nil {
		return view{state: connectivity.Shutdown, saw: "none"}
	}
	return t.look()
}

// revived reports whether a cluster that cannot be used is served nevertheless.
func (g *grpcTarget) revived(cluster string) bool {
	t := g.get(cluster)
	return t != nil && t.revived()
}

func (g *grpcTarget) close() {
	_ = g.conn.Close()
	targets.Delete(g.target)
}

// grpcSide is a target whose routes choose one cluster: that cluster's picker is called
// directly.
type grpcSide struct {
	*grpcTarget

	cluster string
	calls   [hashes]context.Context // of calls with each hash, as the picker gets them
	dialed  sync.Map                // the calls that were connected
}

func newGRPCSide(target, cluster, management string) (*grpcSide, error) {
	g := &grpcSide{cluster: cluster}
	var err error
	g.grpcTarget, err = newGRPCTarget(bootstrapOf(management, target, keepDeleted), target, insecure.NewCredentials(), grpc.WithContextDialer(
		func(ctx context.Context, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err == nil {
				g.dialed.Store(call{c.LocalAddr().String(), address}, true)
			}
			return c, err
		}))
	return g, err
}

// prepare gets the contexts of calls with each hash. It waits for the first picker.
func (g *grpcSide) prepare(ctx context.Context) (err error) {
	for i := range hashes {
		if g.calls[i], err = g.callWith(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// callWith returns the context of a call with a hash, as the picker gets it.
func (g *grpcSide) callWith(ctx context.Context, hash int) (context.Context, error) {
	to := directed{}
	for range mostLooks {
		to = g.ask(ctx, &request{path: method, headers: []header{{hashHeader, hashText(hash)}}})
		if to.kind == picked {
			to.done()
		}
		if to.ctx != nil {
			return context.WithoutCancel(to.ctx), nil
		}
		time.Sleep(pause)
	}
	return nil, fmt.Errorf("grpc-go has no picker: %s", to.kind)
}

func (g *grpcSide) name() string { return "grpc-go" }

// called reports whether a connection was made by this side.
func (g *grpcSide) called(c call) bool {
	_, ok := g.dialed.Load(c)
	return ok
}

func (g *grpcSide) pick(n int) reply {
	t := g.get(g.cluster)
	t.mu.Lock()
	picker, number := t.state.Picker, t.states
	t.mu.Unlock()
	r := t.pick(picker, balancer.PickInfo{FullMethodName: method, Ctx: g.calls[n%hashes]})
	r.picker = number
	return r
}
