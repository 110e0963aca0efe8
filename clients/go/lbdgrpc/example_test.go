package lbdgrpc_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/lbdgrpc"
)

// Make one client for the process, and use it for all channels. It finds lbd by the environment variable LBD.
func Example() {
	client, err := lbdclient.New(lbdclient.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	channel, err := grpc.NewClient("lbd:///orders", lbdgrpc.WithClient(client),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = channel.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	answer, err := grpc_health_v1.NewHealthClient(channel).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	fmt.Println(answer.GetStatus(), err)
	// Output: SERVING <nil>
}

// A channel with two retries of RPCs that fail with UNAVAILABLE. RPCs that lbd drops are not retried.
func ExampleWithClient_serviceConfig() {
	client, err := lbdclient.New(lbdclient.Config{Mode: lbdclient.ModeLease})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	channel, err := grpc.NewClient("lbd:///orders", lbdgrpc.WithClient(client),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultServiceConfig(`{
			"loadBalancingConfig": [{"lbd": {}}],
			"methodConfig": [{"name": [{}], "retryPolicy": {
				"maxAttempts": 3, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
				"retryableStatusCodes": ["UNAVAILABLE"]
			}}]
		}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = channel.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err = grpc_health_v1.NewHealthClient(channel).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	fmt.Println(err)
	// Output: <nil>
}
