// Package lbdgrpc sends the RPCs of gRPC channels to the endpoints that lbd picks.
//
// The target lbd:///CLUSTER names a cluster:
//
//	client, err := lbdclient.New(lbdclient.Config{})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	channel, err := grpc.NewClient("lbd:///orders", lbdgrpc.WithClient(client), grpc.WithTransportCredentials(credentials))
//
// A resolver follows the usable endpoints of the cluster, and the balancer keeps a connection to each. For each RPC, the
// balancer takes a pick of the client: an element of its batch, or in the modes pick and lease one that it asks lbd for
// while the RPC is queued. An endpoint that is not connected gets no RPC.
//
// As with gRPC's own xDS balancer, a dropped RPC and one that the circuit breaker refuses fail with the status
// UNAVAILABLE, also if they wait for ready, and are not retried by a retry policy. If lbd has no endpoint, RPCs fail with
// UNAVAILABLE, or wait for ready.
//
// An RPC counts as failed for lbd with one of the statuses UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL,
// UNAVAILABLE and DATA_LOSS, which are 5xx in HTTP. CANCELLED counts as cancelled, any other status as a success.
//
// The resolver sets the service config, which selects the balancer. To add your own, such as a retry policy, select the
// balancer lbd in it, and use [google.golang.org/grpc.WithDisableServiceConfig] and
// [google.golang.org/grpc.WithDefaultServiceConfig].
package lbdgrpc
