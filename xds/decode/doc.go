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
// Most of what changes are ClusterLoadAssignments of thousands of endpoints, so these have a
// decoder of their own. There are two:
//
//   - The reflective decoder reads all types, in all formats, as above. It makes a proto
//     message, looks for unknown fields and for fields that are not applied, validates,
//     and encodes the message again.
//   - The one-pass decoder, [readAssignment], reads a ClusterLoadAssignment from its bytes
//     straight into the value, and keeps the bytes. It shares endpoints and localities with
//     the previous version where their bytes are equal. It accepts only bytes that the
//     reflective decoder would write again (apart from the order of maps and of the fields
//     of an endpoint, which it corrects), which contain nothing to report about an endpoint,
//     and which break no rule. It gives up on all others.
//
// What the one-pass decoder gives up on, the reflective decoder reads from the start. So only
// that one reports what is wrong with a resource, and both have the same results: FuzzOnePass,
// FuzzOnePassJSON and FuzzLists compare them.
//
// The one-pass decoder reads texts, too, which are written as protobuf first, without messages:
// JSON by [assignmentJSON], which gives up in the same way, and lists. YAML becomes JSON: in one
// pass if it is as most people write it (package text), else by a parser.
//
// fieldTable lists, for each field of each message, whether lbd applies it. A field that
// is set and not applied causes a warning. All these messages are Go structs. Messages of
// Envoy's other extensions, which an Any may carry, are dynamic: see extensions.go.
package decode
