// Package encode writes resource values as protobuf: the inverse of package decode, for what has no
// bytes of its own, such as the assignment that overlays make. Decoding the result gives an equal value.
//
// A value has only what lbd applies: other fields of the resource that it was decoded from are lost.
package encode
