package parity_test

import (
	"fmt"
	"math/big"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// demand is what picks must be like, by the resources and by which addresses
// accept connections: reasoned from both, with no code of either side.
type demand struct {
	// priorities holds, from the highest on, the localities that count.
	priorities [][]*site
	// priority is the one in use; -1 without any.
	priority int
	// ready tells whether it has an endpoint that picks can reach.
	ready bool
	// shares are the parts of all picks that pass, by endpoint.
	shares map[string]*big.Rat
	// groups are the endpoints among which picks take turns.
	groups [][]string
	// drops are the chances that a pick is dropped by each category, of those
	// that the ones before it let pass.
	drops []chance
	limit uint32
}

// chance is a drop category's.
type chance struct {
	category string
	of       *big.Rat
}

// site is a locality at a priority. Endpoints are known by their first
// addresses.
type site struct {
	weight    uint32
	endpoints []spot
}

// spot is an endpoint that picks may reach.
type spot struct {
	key       string
	addresses []string
}

func demandOf(c *clusterv3.Cluster, a *endpointv3.ClusterLoadAssignment, up map[string]bool) *demand {
	d := &demand{priorities: sites(a), priority: -1, shares: make(map[string]*big.Rat), drops: dropsOf(a), limit: 1024}
	for _, t := range c.GetCircuitBreakers().GetThresholds() {
		if t.GetPriority() == corev3.RoutingPriority_DEFAULT {
			if t.GetMaxRequests() != nil {
				d.limit = t.GetMaxRequests().GetValue()
			}
			break
		}
	}
	for i, sites := range d.priorities {
		d.priority = i
		if d.use(sites, up, alone(c)); d.ready {
			break
		}
	}
	return d
}

// alone reports whether endpoints are chosen without regard to localities.
func alone(c *clusterv3.Cluster) bool {
	list := c.GetLoadBalancingPolicy().GetPolicies()
	return len(list) > 0 && list[0].GetTypedExtensionConfig().GetTypedConfig().MessageIs(&roundrobinv3.RoundRobin{})
}

// sites are the localities that have a weight, by priority. An assignment
// without any has one priority without endpoints.
func sites(a *endpointv3.ClusterLoadAssignment) [][]*site {
	var out [][]*site
	for _, g := range a.GetEndpoints() {
		if g.GetLoadBalancingWeight().GetValue() == 0 {
			continue
		}
		s := &site{weight: g.GetLoadBalancingWeight().GetValue()}
		for _, e := range g.GetLbEndpoints() {
			if h := e.GetHealthStatus(); h != corev3.HealthStatus_UNKNOWN && h != corev3.HealthStatus_HEALTHY {
				continue
			}
			sp := spot{addresses: []string{address(e.GetEndpoint().GetAddress())}}
			sp.key = sp.addresses[0]
			for _, more := range e.GetEndpoint().GetAdditionalAddresses() {
				sp.addresses = append(sp.addresses, address(more.GetAddress()))
			}
			s.endpoints = append(s.endpoints, sp)
		}
		for int(g.GetPriority()) >= len(out) {
			out = append(out, nil)
		}
		out[g.GetPriority()] = append(out[g.GetPriority()], s)
	}
	return out
}

func address(a *corev3.Address) string {
	return fmt.Sprintf("%s:%d", a.GetSocketAddress().GetAddress(), a.GetSocketAddress().GetPortValue())
}

// use takes one priority as the one in use.
func (d *demand) use(sites []*site, up map[string]bool, alone bool) {
	if alone {
		all := &site{weight: 1}
		for _, s := range sites {
			all.endpoints = append(all.endpoints, s.endpoints...)
		}
		sites = append([]*site(nil), all)
	}
	var total int64
	groups := make([][]string, len(sites))
	for i, s := range sites {
		for _, sp := range s.endpoints {
			if sp.live(up) {
				groups[i] = append(groups[i], sp.key)
			}
		}
		if len(groups[i]) > 0 {
			total += int64(s.weight)
		}
	}
	for i, s := range sites {
		if len(groups[i]) == 0 {
			continue
		}
		d.ready = true
		d.groups = append(d.groups, groups[i])
		for _, key := range groups[i] {
			d.shares[key] = big.NewRat(int64(s.weight), total*int64(len(groups[i])))
		}
	}
}

func (s spot) live(up map[string]bool) bool {
	for _, a := range s.addresses {
		if up[a] {
			return true
		}
	}
	return false
}

// partlyEmpty reports whether some locality of the priority in use, but not all,
// has no endpoint that picks may reach.
func (d *demand) partlyEmpty() bool {
	empty, all := 0, 0
	if d.priority >= 0 {
		for _, s := range d.priorities[d.priority] {
			all++
			if len(s.endpoints) == 0 {
				empty++
			}
		}
	}
	return empty > 0 && empty < all
}

// keys gives the first address of the endpoint that each address is of.
func (d *demand) keys() map[string]string {
	m := make(map[string]string)
	for _, sites := range d.priorities {
		for _, s := range sites {
			for _, sp := range s.endpoints {
				for _, a := range sp.addresses {
					m[a] = sp.key
				}
			}
		}
	}
	return m
}

// single holds the addresses of endpoints that have no other.
func (d *demand) single() map[string]bool {
	m := make(map[string]bool)
	for _, sites := range d.priorities {
		for _, s := range sites {
			for _, sp := range s.endpoints {
				m[sp.key] = len(sp.addresses) == 1
			}
		}
	}
	return m
}

func dropsOf(a *endpointv3.ClusterLoadAssignment) []chance {
	var out []chance
	for _, o := range a.GetPolicy().GetDropOverloads() {
		denominator := int64(100)
		switch o.GetDropPercentage().GetDenominator() {
		case typev3.FractionalPercent_TEN_THOUSAND:
			denominator = 10_000
		case typev3.FractionalPercent_MILLION:
			denominator = 1_000_000
		}
		out = append(out, chance{o.GetCategory(), big.NewRat(min(int64(o.GetDropPercentage().GetNumerator()), denominator), denominator)})
	}
	return out
}

// passes is the chance that a pick is not dropped.
func (d *demand) passes() *big.Rat {
	p := big.NewRat(1, 1)
	if !d.ready {
		return p
	}
	for _, c := range d.drops {
		p.Mul(p, new(big.Rat).Sub(big.NewRat(1, 1), c.of))
	}
	return p
}
