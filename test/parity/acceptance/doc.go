// Package acceptance compares lbd's reading of Listeners, routes and Clusters with
// grpc-go's. A management server sends grpc-go resources, good ones in which
// something was changed by chance: what it answers, ACK or NACK, must be what the
// decoder makes of them. And it sends routes made by chance: where they lead a
// call must be where they lead a pick.
package acceptance
