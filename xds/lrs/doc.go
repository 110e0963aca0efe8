// Package lrs reports load to management servers (envoy.service.load_stats.v3,
// LRS), as gRPC's clients do.
//
// A [Reporter] is told which clusters' load goes to which server: those whose
// Cluster says lrs_server self, to the server that sent it. For each server it
// keeps one stream while there is a cluster to report to it. The server says how
// often, and of which clusters, it wants to hear; every report has what was counted
// since the last one that could be sent. What could not be sent is in the next
// report, to whatever server that goes.
//
// What a server asks for is heeded as grpc-go heeds it, but for two things: an
// answer that is not the stream's first counts too, as the protocol has it, and an
// interval that is not positive ends the stream instead of the process.
package lrs
