// Package observe reports what the daemon does: events, state as JSON, metrics and
// history.
//
//   - [Events] remembers the last events of each kind. [Events.Tree] takes what a
//     target's tree reports: it counts in the ledger's records, remembers and logs.
//   - [State] reads the ledger and the trees: clusters, targets, the daemon and its
//     conditions.
//   - [Watches] sends events and changed states to watchers. However many they are,
//     one goroutine looks at each thing that is watched, and only while it is.
//   - [Metrics] has the series of the daemon, of clusters, and of endpoints.
//   - [History] keeps what happened to clusters lately.
//
// The package imports the ledger, and none of those who pick or bring resources: they
// add events, conditions and their own collectors.
package observe
