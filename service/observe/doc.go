// Package observe reports what the daemon does: events, state as JSON, metrics and
// timelines.
//
// A target's tree has one owner. At the end of each batch the owner passes the
// batch's events to [Events.Report], which counts in the ledger's records, remembers the
// events and logs them. Then the owner notifies the target's Changed signal. The owner
// waits for no reader.
//
//   - [Events] remembers the last events of each kind.
//   - [State] reads the ledger and the trees: clusters, targets, the daemon and its
//     conditions.
//   - [Watches] sends events and changed states to watchers. All watchers of one thing
//     share a feed. A feed owns what it has read, and publishes it as an immutable view
//     that is encoded once. Each watcher takes the newest view when it is ready for it,
//     so a slow watcher delays no other. The feed of a cluster sleeps until Changed is
//     notified; once a second it reads the counters. Without watchers no feed runs.
//   - [Metrics] has the series of the daemon, of clusters, and of endpoints. They are
//     read from the records and the last reports.
//   - [Timeline] reads the same counters every second.
//
// The package imports the ledger, and no package that picks or provides resources: those
// add events, conditions and their own collectors.
package observe
