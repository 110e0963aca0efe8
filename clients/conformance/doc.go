// Package conformance plays the scenarios of scenarios.json to the clients beside it: a
// real lbd, real upstreams on loopback, and the runner of each client, which README.md
// describes. It knows lbd by its binary and its API only, as a client does.
//
// TestConformance compares the outcomes with RESULTS.md; with -update it writes them
// there. TestBreaker lets all clients share one circuit breaker, while their processes
// are killed. make test-clients runs both, for CLIENTS (all that are built).
package conformance
