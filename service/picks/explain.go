package picks

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lbd-dev/lbd/lb/leastrequest"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/ringhash"
	"github.com/lbd-dev/lbd/lb/weightedroundrobin"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/overlays"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Step is one step of a pick's decision. Step names the part that is set.
type Step struct {
	Step string `json:"step" enums:"route,cluster,overlays,leaf,priority,drop,circuit_breaker,locality,endpoint,opaque,queued,failure"`
	// Says describes the step in a sentence.
	Says    string       `json:"says"`
	Route   *RouteStep   `json:"route,omitempty"`
	Cluster *ClusterStep `json:"cluster,omitempty"`
	// Overlays are the overlays of the cluster, the oldest first; for an AGGREGATE, those of all leaves.
	Overlays []overlays.Overlay `json:"overlays,omitempty"`
	Leaf     *LeafStep          `json:"leaf,omitempty"`
	Priority *PriorityStep      `json:"priority,omitempty"`
	Drop     *DropStep          `json:"drop,omitempty"`
	Breaker  *BreakerStep       `json:"circuit_breaker,omitempty"`
	Locality *LocalityStep      `json:"locality,omitempty"`
	Endpoint *EndpointStep      `json:"endpoint,omitempty"`
	Error    string             `json:"error,omitempty"`
}

// ExplainedError is the refusal of a pick with its cause.
type ExplainedError struct {
	Err     error
	Explain []Step          // nil unless the pick asked for it
	Holders []ledger.Holder // the owners with the most leases, if the circuit breaker is full
}

func (e *ExplainedError) Error() string { return e.Err.Error() }

func (e *ExplainedError) Unwrap() error { return e.Err }

// ClusterStep is the lookup of the cluster.
type ClusterStep struct {
	Name  string `json:"name"`
	Found bool   `json:"found"`
}

// LeafStep is the leaf of an AGGREGATE that is in use, and why each leaf before it is
// not. Drops and circuit breaker of the pick are this leaf's.
type LeafStep struct {
	Cluster    string           `json:"cluster"`
	State      string           `json:"state"`
	PassedOver []PassedOverLeaf `json:"passed_over"`
}

// PassedOverLeaf is a leaf that is not in use.
type PassedOverLeaf struct {
	Cluster string `json:"cluster"`
	State   string `json:"state"`
	Why     string `json:"why"`
}

// PriorityStep is the priority in use, and why each higher one is not. Those of an
// AGGREGATE are of the leaf in use, and numbered over all its leaves.
type PriorityStep struct {
	Priority int `json:"priority"`
	// Cluster is the leaf of an AGGREGATE that the priority belongs to.
	Cluster    string       `json:"cluster,omitempty"`
	State      string       `json:"state"`
	PassedOver []PassedOver `json:"passed_over"`
}

// PassedOver is a priority that is not in use.
type PassedOver struct {
	Priority int `json:"priority"`
	// Cluster is the leaf of an AGGREGATE that the priority belongs to.
	Cluster string `json:"cluster,omitempty"`
	State   string `json:"state"`
	Why     string `json:"why"`
}

// DropStep is one drop category's draw in [0, 1,000,000). Below per_million it drops.
type DropStep struct {
	Category   string `json:"category"`
	PerMillion uint64 `json:"per_million"`
	Draw       uint64 `json:"draw"`
	Dropped    bool   `json:"dropped"`
}

// BreakerStep is the circuit breaker as the pick found it.
type BreakerStep struct {
	InFlight    int64  `json:"in_flight"`
	MaxRequests uint32 `json:"max_requests"`
	// Share is the part of max_requests that this daemon may use, if that is one limit for all daemons
	// of the store; absent if it is of this daemon.
	Share   *uint32 `json:"share,omitempty"`
	Refused bool    `json:"refused"`
}

// LocalityStep is the weighted draw of a locality.
type LocalityStep struct {
	// Candidates lists 100 of the localities in the draw at most.
	Candidates []LocalityCandidate `json:"candidates"`
	// More is the number of candidates that are not listed.
	More int `json:"more,omitempty"`
	// Draw is uniform in [0, 1).
	Draw   float64          `json:"draw"`
	Chosen observe.Locality `json:"chosen"`
}

// LocalityCandidate is a locality in the draw.
type LocalityCandidate struct {
	Locality observe.Locality `json:"locality"`
	Weight   uint32           `json:"weight"`
	Share    float64          `json:"share"`
}

// EndpointStep is the choice of the endpoint.
type EndpointStep struct {
	Policy string `json:"policy"`
	// Rotation is the number of endpoints that take turns; index is the chosen one's.
	Rotation int `json:"rotation"`
	Index    int `json:"index"`
	// Excluded is how many of them the pick excludes; for ring_hash, how many it passed on its way.
	Excluded int    `json:"excluded"`
	Address  string `json:"address"`
	// InsteadOf is the excluded endpoint whose turn it was, if the chosen one was drawn in its place.
	InsteadOf string `json:"instead_of,omitempty"`
	// Compared are the endpoints that least_request drew, in turn.
	Compared leastrequest.Compared `json:"compared,omitempty"`
	// Ring is ring_hash's way along its ring.
	Ring *ringhash.RingWalk `json:"ring,omitempty"`
	// Turn is the weight by which weighted_round_robin came to the endpoint.
	Turn *weightedroundrobin.WeightedTurn `json:"turn,omitempty"`
	// Detail is what any other policy says of its choice.
	Detail policy.Detail `json:"detail,omitempty" swaggertype:"object"`
}

// explain returns the steps of call's decision: the priority before the drops, although
// its picker comes after them.
func explain(t *ledger.Target, call *policy.Call) []Step {
	var steps, priority []Step
	at := 0
	for _, s := range call.Trace.Steps {
		step := explainStep(t, call.Cluster, s)
		if step.Leaf != nil || step.Priority != nil {
			priority = append(priority, step)
			continue
		}
		steps = append(steps, step)
		if step.Cluster == nil {
			continue
		}
		if list := overlaysOf(t.Cluster(step.Cluster.Name)); len(list) > 0 {
			steps = append(steps, explainOverlays(list))
		}
		at = len(steps)
	}
	return slices.Insert(steps, at, priority...)
}

func explainStep(t *ledger.Target, cluster string, s policy.Step) Step {
	switch s := s.(type) {
	case policy.RouteStep:
		return explainRoute(t, s)
	case policy.ClusterStep:
		known := "known"
		if !s.Found {
			known = "not known"
		}
		return Step{
			Step: "cluster", Says: fmt.Sprintf("cluster %q is %s", s.Cluster, known),
			Cluster: &ClusterStep{Name: s.Cluster, Found: s.Found},
		}
	case policy.LeafStep:
		return explainLeaf(s)
	case policy.PriorityStep:
		return explainPriority(t.Cluster(cluster).LeafNames(), s)
	case policy.DropStep:
		sign, result := "≥", "not dropped"
		if s.Dropped {
			sign, result = "<", "dropped"
		}
		return Step{
			Step: "drop",
			Says: fmt.Sprintf("category %q: random %d %s %d: %s", s.Category, s.Draw, sign, s.PerMillion, result),
			Drop: new(DropStep(s)),
		}
	case policy.BreakerStep:
		verb := "passes"
		if s.Refused {
			verb = "refuses"
		}
		says := fmt.Sprintf("the circuit breaker %s the pick: %d in flight of at most %d", verb, s.InFlight, s.Limit)
		b := &BreakerStep{InFlight: s.InFlight, MaxRequests: s.Max, Refused: s.Refused}
		if s.Shared {
			says += fmt.Sprintf(", the share of this replica of %d", s.Max)
			if s.Refused && s.Spare > 0 {
				says += fmt.Sprintf("; other replicas do not need %d of theirs", s.Spare)
			}
			b.Share = &s.Limit
		}
		return Step{Step: "circuit_breaker", Says: says, Breaker: b}
	case policy.LocalityStep:
		return explainLocality(s)
	case policy.EndpointStep:
		return explainEndpoint(s)
	case policy.OpaqueStep:
		return Step{Step: "opaque", Says: fmt.Sprintf("policy %s decided, and does not explain itself", s.Policy)}
	case policy.QueueStep:
		return Step{Step: "queued", Says: "no endpoint is READY yet: the pick waits for the next picker"}
	case policy.FailureStep:
		return Step{Step: "failure", Says: "no endpoint can be picked: " + s.Err.Error(), Error: s.Err.Error()}
	default:
		return Step{Step: "opaque", Says: fmt.Sprintf("a step of type %T", s)}
	}
}

// overlaysOf returns the overlays of a cluster and of its leaves.
func overlaysOf(c *ledger.Cluster) (list []overlays.Overlay) {
	for _, leaf := range c.Config.Leaves(c.Name) {
		list = append(list, overlays.Describe(leaf.Overlays(), leaf)...)
	}
	return list
}

// maxListedOverlays is the maximum number of overlays in the sentence of an explanation.
const maxListedOverlays = 5

func explainOverlays(list []overlays.Overlay) Step {
	words := make([]string, 0, maxListedOverlays+1)
	for _, o := range list[:min(len(list), maxListedOverlays)] {
		text := fmt.Sprintf("overlay %s %s", o.ID, o.Says)
		if o.SupersededBy != "" {
			text += fmt.Sprintf(", without effect because of overlay %s", o.SupersededBy)
		}
		words = append(words, text)
	}
	if more := len(list) - maxListedOverlays; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return Step{Step: "overlays", Says: strings.Join(words, "; "), Overlays: list}
}

func explainLeaf(s policy.LeafStep) Step {
	l := &LeafStep{Cluster: s.Leaf, State: s.State.String(), PassedOver: []PassedOverLeaf{}}
	var says strings.Builder
	fmt.Fprintf(&says, "leaf %s is in use (%s)", l.Cluster, l.State)
	for _, o := range s.PassedOver {
		l.PassedOver = append(l.PassedOver, PassedOverLeaf{Cluster: o.Name, State: o.State.String(), Why: o.Why})
		fmt.Fprintf(&says, "; leaf %s was skipped: %s", o.Name, strings.TrimPrefix(o.Why, "skipped: "))
	}
	return Step{Step: "leaf", Says: says.String(), Leaf: l}
}

// explainPriority takes the leaves that priorities belong to, of an AGGREGATE. A
// pick that was made by an older config may have had more priorities.
func explainPriority(leaves []string, s policy.PriorityStep) Step {
	words := func(priority int) (leaf, words string) {
		if priority < len(leaves) {
			leaf, words = leaves[priority], " of "+leaves[priority]
		}
		return leaf, fmt.Sprintf("priority %d%s", priority, words)
	}
	leaf, which := words(s.Priority)
	p := &PriorityStep{Priority: s.Priority, Cluster: leaf, State: s.State.String(), PassedOver: []PassedOver{}}
	var says strings.Builder
	fmt.Fprintf(&says, "%s is in use (%s)", which, p.State)
	for _, o := range s.PassedOver {
		leaf, which := words(o.Priority)
		p.PassedOver = append(p.PassedOver, PassedOver{Priority: o.Priority, Cluster: leaf, State: o.State.String(), Why: o.Why})
		fmt.Fprintf(&says, "; %s was skipped: %s", which, o.Why)
	}
	return Step{Step: "priority", Says: says.String(), Priority: p}
}

// maxListedLocalities is the maximum number of candidates in an explanation.
const maxListedLocalities = 100

func explainLocality(s policy.LocalityStep) Step {
	var sum uint64
	for _, c := range s.Candidates {
		sum += uint64(c.Weight)
	}
	listed := s.Candidates[:min(len(s.Candidates), maxListedLocalities)]
	l := &LocalityStep{
		Candidates: make([]LocalityCandidate, len(listed)),
		More:       len(s.Candidates) - len(listed),
		Draw:       float64(s.Draw>>11) / (1 << 53),
		Chosen:     observe.Locality(s.Candidates[s.Chosen].Locality),
	}
	for i, c := range listed {
		l.Candidates[i] = LocalityCandidate{
			Locality: observe.Locality(c.Locality), Weight: c.Weight, Share: float64(c.Weight) / float64(sum),
		}
	}
	candidates := "candidates"
	if len(s.Candidates) == 1 {
		candidates = "candidate"
	}
	return Step{
		Step: "locality",
		Says: fmt.Sprintf("chose %s (weight %d of %d, %d %s)",
			localityWords(s.Candidates[s.Chosen].Locality), s.Candidates[s.Chosen].Weight, sum, len(s.Candidates), candidates),
		Locality: l,
	}
}

func localityWords(l resource.Locality) string {
	if l == (resource.Locality{}) {
		return "the empty locality"
	}
	return "locality " + strings.TrimRight(l.String(), "/")
}

func explainEndpoint(s policy.EndpointStep) Step {
	e := &EndpointStep{Policy: s.Policy, Rotation: s.Rotation, Index: s.Index, Excluded: s.Excluded}
	if s.Endpoint != nil {
		e.Address = s.Endpoint.Addresses[0]
	}
	if s.InsteadOf != nil {
		e.InsteadOf = s.InsteadOf.Addresses[0]
	}
	switch d := s.Detail.(type) {
	case leastrequest.Compared:
		e.Compared = d
	case *ringhash.RingWalk:
		e.Ring = d
	case *weightedroundrobin.WeightedTurn:
		e.Turn = d
	default:
		e.Detail = d
	}
	return Step{Step: "endpoint", Endpoint: e, Says: s.Says()}
}

// RouteStep is the choice of the cluster by a target's routes.
type RouteStep struct {
	Target      string `json:"target"`
	VirtualHost string `json:"virtual_host"`
	// Tried lists at most the last 100 routes that were compared with the request, in
	// order: the last one matched, unless it has mismatch.
	Tried []TriedRoute `json:"tried"`
	// Earlier is how many routes were tried before those.
	Earlier int `json:"earlier,omitempty"`
	// Cluster is the one drawn; absent where no route matched, or where the one
	// that did cannot be followed.
	Cluster string `json:"cluster,omitempty"`
	// Draw is uniform in [0, 1), of a route to several clusters.
	Draw *float64 `json:"draw,omitempty"`
	// Clusters are those in the draw.
	Clusters []observe.RouteCluster `json:"clusters,omitempty"`
	// The hash of the request, 16 hexadecimal digits.
	Hash string `json:"hash,omitempty"`
	// The source of the hash: it comes from the caller, from the hash policies of the
	// route, or is random if neither is set.
	HashFrom string `json:"hash_from,omitempty" enums:"caller,route,random"`
	// Hashed are the hash policies of the route that were applied.
	Hashed []HashedPolicy `json:"hashed,omitempty"`
}

// TriedRoute is a route that was compared with the request.
type TriedRoute struct {
	Name  string `json:"name,omitempty"`
	Match string `json:"match"`
	// Mismatch is why it does not take the request.
	Mismatch string `json:"mismatch,omitempty"`
	// Draw, of a route that takes a part of the requests, is in [0, 1,000,000).
	Draw *uint32 `json:"draw,omitempty"`
}

// HashedPolicy is a hash policy that was applied to the request.
type HashedPolicy struct {
	Policy string `json:"policy"`
	// Resulting hash, 16 hexadecimal digits; absent if the request lacks the header.
	Hash string `json:"hash,omitempty"`
}

// maxListedRoutes is how many routes an explanation lists.
const maxListedRoutes = 100

func explainRoute(t *ledger.Target, s policy.RouteStep) Step {
	listed := s.Routes[max(len(s.Routes)-maxListedRoutes, 0):]
	r := &RouteStep{
		Target: t.Label, VirtualHost: s.VirtualHost, Cluster: s.Cluster,
		Tried: make([]TriedRoute, len(listed)), Earlier: len(s.Routes) - len(listed),
	}
	for i, look := range listed {
		r.Tried[i] = TriedRoute{Name: look.Route.Name, Match: look.Route.Match.Words(), Mismatch: look.Mismatch}
		if look.HasDraw {
			r.Tried[i].Draw = &look.Draw
		}
	}
	for _, h := range s.RouteTrace.Hash {
		hashed := HashedPolicy{Policy: observe.HashWords(h.Policy)}
		if h.Made {
			hashed.Hash = hashHex(h.Hash)
		}
		r.Hashed = append(r.Hashed, hashed)
	}
	if s.Cluster != "" {
		r.Hash, r.HashFrom = hashHex(s.Hash), string(s.HashFrom)
	}
	says := t.Label + ": "
	switch {
	case s.Route == nil:
		says += fmt.Sprintf("none of the %d routes of virtual host %q takes the request", len(s.Routes), s.VirtualHost)
	case s.Cluster == "":
		says += fmt.Sprintf("%s matches, but its action is not supported: %s", routeWords(s), s.Route.Unsupported)
	default:
		says += fmt.Sprintf("%s takes the request; it leads to cluster %q", routeWords(s), s.Cluster)
		if len(s.Route.Clusters) > 1 {
			r.Draw, r.Clusters = new(float64(s.Draw>>11)/(1<<53)), observe.RouteStateOf(s.Route).Clusters
			says += fmt.Sprintf(", drawn of %d with weight %d of %d", len(s.Route.Clusters), weightOf(s.Route, s.Cluster), s.Route.TotalWeight)
		}
	}
	return Step{Step: "route", Says: says, Route: r}
}

func routeWords(s policy.RouteStep) string {
	name := ""
	if s.Route.Name != "" {
		name = strconv.Quote(s.Route.Name) + " "
	}
	return fmt.Sprintf("route %s(%s), number %d of virtual host %q,", name, s.Route.Match.Words(), len(s.Routes), s.VirtualHost)
}

func weightOf(r *resource.Route, cluster string) uint32 {
	for _, c := range r.Clusters {
		if c.Name == cluster {
			return c.Weight
		}
	}
	return 0
}

func hashHex(h uint64) string { return fmt.Sprintf("%016x", h) }
