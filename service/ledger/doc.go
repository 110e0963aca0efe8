// Package ledger owns what is hosted and what is counted of it.
//
// A [Ledger] holds the hosted targets, each with its channel. [Ledger.Apply] takes the
// changes of the resolver; [Ledger.Hosted] is the current snapshot, which is read
// without a lock and never changed.
//
// Three kinds of records count, each with one owner:
//
//   - A [Record] counts the picks of one cluster in one target. The target owns it, for as
//     long as its config has the cluster.
//   - [policy.ClusterCounters] count for one {cluster, EDS service name}: circuit breaker,
//     drops and loads. Trees, held picks and [Leaf] values hold references to them.
//   - [Totals] count the leases and ejections of one cluster over all targets and EDS
//     service names. The ledger owns them, under a reference count of records and leaves.
//
// The ledger decides which records get series of their own: at most
// [MaxClustersWithSeries] records, and as many totals. The others count together.
//
// The ledger emits no events, exports no metrics and serves no HTTP: sources apply
// configs to it, picks count in it, and service/observe reads it.
package ledger
