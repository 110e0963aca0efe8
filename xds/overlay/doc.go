// Package overlay applies overlays to what the sources of a cluster say.
//
// An [resource.Overlay] is an operator's change, on top of any source: it stays when the source
// changes. [Apply] makes a new Cluster and a new Assignment from those of the sources. The trees
// get only these, as if the source had them: a drained endpoint has the health DRAINING, and so on.
//
// Of overlays that contradict each other, the newer one is in effect: see [Superseded].
package overlay
