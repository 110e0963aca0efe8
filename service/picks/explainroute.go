package picks

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/resource"
)

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
	var says strings.Builder
	says.WriteString(t.Label + ": ")
	switch {
	case s.Route == nil:
		says.WriteString(fmt.Sprintf("none of the %d routes of virtual host %q takes the request", len(s.Routes), s.VirtualHost))
	case s.Cluster == "":
		says.WriteString(fmt.Sprintf("%s matches, but its action is not supported: %s", routeWords(s), s.Route.Unsupported))
	default:
		says.WriteString(fmt.Sprintf("%s takes the request; it leads to cluster %q", routeWords(s), s.Cluster))
		if len(s.Route.Clusters) > 1 {
			draw := float64(s.Draw>>11) / (1 << 53)
			r.Draw, r.Clusters = &draw, observe.RouteStateOf(s.Route).Clusters
			says.WriteString(fmt.Sprintf(", drawn of %d with weight %d of %d", len(s.Route.Clusters), weightOf(s.Route, s.Cluster), s.Route.TotalWeight))
		}
	}
	return Step{Step: "route", Says: says.String(), Route: r}
}

// routeWords names the route that took the request.
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
