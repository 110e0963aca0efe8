// Package parity compares lbd's pipeline with grpc-go's own xDS client, on the
// same resources and the same endpoints.
//
// A scenario is drawn from a seed: a Cluster and a ClusterLoadAssignment over
// endpoints on loopback addresses, and some steps that change the resources or
// stop and start endpoints. A go-control-plane management server sends the
// resources to a grpc-go channel for an xds:/// target, whose top-level picker
// is captured; lbd decodes the same bytes and hands them to an lb.Channel,
// which connects with connect mode tcp_hold. After each step, once both are
// quiet, both are asked for many picks, and what they answer is compared, each
// with what the resources demand and with the other.
//
// It is a module of its own, so that google.golang.org/grpc/xds never enters
// lbd. It needs Linux, where all of 127.0.0.0/8 is the loopback's.
package parity
