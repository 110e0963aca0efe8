// Package registration has the deadlines of registered endpoints: those of pushed assignments that have a
// ttl, and are removed unless they are renewed.
//
// A [Table] is a state machine without I/O and without a clock: its owner tells it what is pushed, which
// endpoints were renewed, and the time, and removes what it returns. It prefers to keep an endpoint
// that is gone over the removal of one that lives:
//
//   - After a pause of the process, during which no renewal could be received, every endpoint gets a full
//     ttl.
//   - While none of many endpoints is renewed, none is removed: renewals do not arrive.
//   - Of one cluster, only a part of the endpoints is removed within one ttl, and never the last
//     usable one.
//   - Daemons that share a store tell each other what was renewed ([Table.News]), and wait for two
//     ttls.
package registration
