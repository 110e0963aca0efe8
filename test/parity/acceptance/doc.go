// Package acceptance holds lbd's decoder against grpc-go's: a management server
// sends grpc-go Listeners, RouteConfigurations and Clusters, good ones in which
// something was changed by chance, and what grpc-go answers, ACK or NACK, must be
// what the decoder makes of them.
package acceptance
