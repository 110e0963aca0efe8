// Package picks owns picks and leases: the target of a pick, its result, what a lease
// holds until it ends, and the explanation of a decision.
//
// A [Picker] asks the channel of the ledger's target and counts in the ledger's records.
// It takes no lock for a pick without a lease, and writes no log.
package picks
