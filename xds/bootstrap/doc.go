// Package bootstrap reads the file that tells an xDS client where its management
// servers are, how to speak to them, and as whom: gRPC's bootstrap, in JSON.
//
// [Parse] takes the fields that grpc-go v1.85 knows (gRFCs A27, A29, A47, A53, A65,
// A81, A97) and makes immutable values of them. What breaks a rule is an
// [*InvalidError] that lists every such place, with its line and path; what is
// accepted and worth a word, an unknown key above all, is in [Config.Warnings].
//
// Certificates are read from their files when a connection is made, so that
// rotated ones are used without a restart. Files that are missing or bad do not
// make a bootstrap invalid, as in gRPC: they may come later, and until then the
// last known good configuration is to be served. A warning tells of them, and so
// does the error of each connection.
//
// The credentials of gRPC's transports are made here and nowhere else in xds.
package bootstrap
