// Package decode reads xDS resources and checks them: bytes in, values of
// package resource out. It is the only decoder.
//
// Resources that are pushed over HTTP, read from a file or sent by a management server
// go through the same functions and the same rules, those of gRPC's client. An
// [InvalidError] lists every broken rule by resource, field and reason; a warning is about
// something that is accepted and probably does not do what its author expects. [Origin]
// selects the few differences: resources that are written by hand may leave out what can
// be inferred, and have extra rules; resources of a management server have exactly gRPC's.
//
// A body goes through these steps:
//
//	bytes ─ read: JSON, YAML (package text) or protobuf, in or without an envelope
//	└ proto message ─ validate: one validator per resource, which fills in a report
//	  ├ value of package resource
//	  ├ problems, warnings, notes ─ Place adds line and column
//	  └ encode: the message as deterministic protobuf, which is stored
//
// fieldTable lists, for each field of each message, whether lbd applies it. A field that
// is set and not applied causes a warning.
package decode
