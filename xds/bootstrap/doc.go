// Package bootstrap reads gRPC's xDS bootstrap: a JSON file with the management servers, the
// credentials for them, and the node.
//
// [Parse] reads the fields that grpc-go v1.85 supports (gRFCs A27, A29, A47, A53, A65, A81,
// A97). An invalid bootstrap is an [*InvalidError] that lists every problem with its line and
// path; other findings, such as unknown keys, are in [Config.Warnings].
//
// Certificates are read from their files for new connections, so that rotated ones need no
// restart. A missing or invalid file does not make a bootstrap invalid, as in gRPC: it may be
// fixed later, and until then lbd uses its last known good configuration. It causes a
// warning, and an error of each connection.
package bootstrap
