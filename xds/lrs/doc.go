// Package lrs reports load to management servers (envoy.service.load_stats.v3, LRS), as
// gRPC's clients do.
//
// The caller of a [Reporter] sets which clusters are reported to which server: those whose
// Cluster has lrs_server self, to the server that sent it. For each server with clusters
// there is one stream. The server chooses the interval and the clusters. Each report has
// the load since the last one that was sent; load that could not be sent is in the next
// report, also to another server.
//
// Two things differ from grpc-go: each response on a stream counts, not only the first, as
// the protocol requires; and an interval that is not positive ends the stream, not the
// process.
package lrs
