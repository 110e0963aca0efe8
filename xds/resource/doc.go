// Package resource holds the xDS resources that lbd knows, as immutable values.
//
// Nothing here reads or writes a format, and nothing depends on protobuf or on
// Envoy's packages: package decode makes the values, and checks them. The
// methods answer what a value means: which route takes a request, which
// endpoints are usable, what two versions share.
package resource
