package lbdgrpc

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/resolver"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
)

const (
	// Scheme is that of targets: lbd:///CLUSTER.
	Scheme = "lbd"
	// Policy is the name of the balancer in a service config.
	Policy = "lbd"

	serviceConfig = `{"loadBalancingConfig":[{"` + Policy + `":{}}]}`
)

// WithClient returns the option of a channel with a target lbd:///CLUSTER. Close the channels before the client.
func WithClient(client *lbdclient.Client) grpc.DialOption {
	return grpc.WithResolvers(builder{client})
}

// source is where the balancer of a channel gets its picks.
type source struct {
	client  *lbdclient.Client
	cluster string
}

// sourceKey is the key of the source in the attributes of the resolver's state.
type sourceKey struct{}

type builder struct {
	client *lbdclient.Client
}

func (builder) Scheme() string { return Scheme }

func (b builder) Build(target resolver.Target, channel resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	cluster := target.Endpoint()
	if cluster == "" {
		return nil, errors.New("target: " + target.String() + " has no cluster, as lbd:///CLUSTER has")
	}
	ctx, cancel := context.WithCancel(context.Background())
	base := resolver.State{
		ServiceConfig: channel.ParseServiceConfig(serviceConfig),
		Attributes:    attributes.New(sourceKey{}, source{b.client, cluster}),
	}
	go b.client.FollowEndpoints(ctx, cluster, func(addresses []string, err error) {
		if err != nil {
			channel.ReportError(err)
			return
		}
		state := base
		for _, address := range addresses {
			state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: address}}})
		}
		// The balancer accepts every state with a source.
		_ = channel.UpdateState(state)
	})
	return follower{cancel}, nil
}

// follower is the goroutine that follows the endpoints of a cluster.
type follower struct {
	cancel context.CancelFunc
}

// ResolveNow does nothing: changes come by themselves.
func (follower) ResolveNow(resolver.ResolveNowOptions) {}

// Close ends the goroutine.
func (f follower) Close() { f.cancel() }
