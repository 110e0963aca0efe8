// Package ccore compares lbd's aggregate clusters with gRPC's C-core, which has gRFC
// A74 and A75 where grpc-go has not.
//
// Each scenario runs an lbd daemon and a Python program with an xds: channel under one
// management server, over real gRPC servers on loopback. After each step both must
// come to pick what the scenario's model demands: the leaf, its endpoints, for
// RING_HASH the same endpoint for each key, or a failure.
//
// make test-ccore runs it. Without grpcio (LBD_TEST_CCORE) it is skipped.
package ccore
