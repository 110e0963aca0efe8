// Package resource holds the xDS resources that lbd knows, as immutable values,
// and the one decoder that makes them.
//
// Whatever brings a resource (a push over HTTP, a file, a management server)
// goes through the same decoder and the same rules, those of gRPC's client. A
// refusal is an [InvalidError] that lists every broken rule by resource, field
// and reason; what is accepted but worth a word is a warning. An [Origin] tells
// the few differences: what people write by hand meets some kindness and some
// extra checks, what a management server sends is judged by gRPC's rules to
// the letter.
package resource
