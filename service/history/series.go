package history

// Kind is what a series measures.
type Kind uint8

// The kinds of series. Counters are stored as their growth in each step, gauges
// as the largest value in each step.
const (
	// Picks counts the picks of one result, which is the series' Name.
	Picks Kind = iota
	// Drops counts the drops of one category of one leaf.
	Drops
	// Priority is the priority in use, or NoPriority: a gauge.
	Priority
	// InFlight is the number of requests in flight of one leaf: a gauge.
	InFlight
	// Limit is the largest number of requests in flight that is allowed: a gauge.
	Limit
)

// NoPriority is the value of a Priority series while no priority is in use. It is
// larger than any priority, so that a coarse sample that includes such a moment
// shows it.
const NoPriority = 1 << 16

func (k Kind) isGauge() bool { return k >= Priority }

// Series identifies one series of a cluster.
type Series struct {
	Kind Kind
	// Leaf is the leaf of an aggregate that Drops, InFlight and Limit belong to;
	// empty for the cluster itself.
	Leaf string
	// Name is the result of Picks and the category of Drops.
	Name string
}
