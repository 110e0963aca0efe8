package cds

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

// priorities makes the children of a cluster's priority policy, and keeps what the
// next update reuses.
type priorities struct {
	// localities are those of the assignment, with what the children get of them.
	localities few.Map[*resource.LocalityEndpoints, *policy.Locality]
	names      names
	config     config
}

// update returns the priorities of the assignment, the highest first, and their usable
// endpoints.
func (p *priorities) update(conn *policy.Conn, cc *resource.ClusterConfig) ([]policy.PriorityChild, [][]*policy.Locality, error) {
	byPriority := group(cc.Assignment.Localities)
	var localities few.Map[*resource.LocalityEndpoints, *policy.Locality]
	children, used := make([]policy.PriorityChild, len(byPriority)), make([][]*policy.Locality, len(byPriority))
	p.names = p.names.next(byPriority)
	for i, ls := range byPriority {
		used[i] = make([]*policy.Locality, len(ls))
		size := 0
		var weights uint64
		for _, le := range ls {
			weights += uint64(le.Weight)
		}
		for j, le := range ls {
			own := p.localities.Get(le)
			if own == nil {
				own = policy.NewLocality(le)
			}
			own = own.Among(weights)
			localities.Set(le, own)
			used[i][j] = own
			size += len(own.Endpoints)
		}
		child, err := p.pick(conn, cc.Cluster.Policy, used[i])
		if err != nil {
			return nil, nil, err
		}
		children[i] = policy.PriorityChild{Name: p.names.ordered[i], Child: child, Size: size}
	}
	p.localities = localities
	return children, used, nil
}

// pick makes the child that applies a cluster's policy to the localities of a priority.
// gRPC's wrr_locality, which gives them to weighted_target, is here (gRFC A52).
func (p *priorities) pick(conn *policy.Conn, of resource.Policy, localities []*policy.Locality) (policy.Child, error) {
	if of.Name == resource.PolicyWRRLocality && of.Child != nil {
		child, err := p.pick(conn, *of.Child, nil)
		targets := make([]policy.Target, len(localities))
		for i, l := range localities {
			child.Endpoints, child.Localities = l.Endpoints, localities[i:i+1]
			targets[i] = policy.Target{Locality: l, Child: child}
		}
		return policy.Child{Policy: policy.WeightedTarget, Config: &policy.WeightedTargetConfig{Targets: targets}}, err
	}
	child := policy.Child{Policy: string(of.Name), Localities: localities}
	for _, l := range localities {
		child.Endpoints = append(child.Endpoints, l.Endpoints...)
	}
	var err error
	child.Config, err = p.config.parse(conn, of)
	return child, err
}

// config caches the config of the endpoint policy, so that the children of equal
// configs share one value.
type config struct {
	of     resource.Policy
	parsed serviceconfig.LoadBalancingConfig
}

func (c *config) parse(conn *policy.Conn, p resource.Policy) (serviceconfig.LoadBalancingConfig, error) {
	if c.of == p {
		return c.parsed, nil
	}
	builder := conn.Builder(string(p.Name))
	if b, own := builder.(policy.Builder); own && b.Traits() == nil || p.Name == resource.PolicyWRRLocality {
		return nil, fmt.Errorf("load balancing policy %q cannot pick endpoints", p.Name)
	}
	parser, ok := builder.(balancer.ConfigParser)
	if !ok { // it takes no config, or it does not exist: the Switch reports that
		return nil, nil
	}
	parsed, err := parser.ParseConfig(json.RawMessage(cmp.Or(p.Config, "{}")))
	if err != nil {
		return nil, err
	}
	c.of, c.parsed = p, parsed
	return parsed, nil
}

// group groups the localities by priority.
func group(ls []*resource.LocalityEndpoints) [][]*resource.LocalityEndpoints {
	var out [][]*resource.LocalityEndpoints
	for _, l := range ls {
		for uint32(len(out)) <= l.Priority {
			out = append(out, nil)
		}
		out[l.Priority] = append(out[l.Priority], l)
	}
	return slices.Clip(out)
}

// names gives priority's children names that stay with their localities: a locality
// keeps its connections when it moves to another priority. Names are not reused for
// other localities.
type names struct {
	ordered    []string
	priorities [][]*resource.LocalityEndpoints // that they name
	given      int
}

// holders returns the names of the priorities that contain a locality, the highest first.
func (n names) holders() map[resource.Locality][]string {
	out := make(map[resource.Locality][]string)
	for i, ls := range n.priorities {
		for _, l := range ls {
			out[l.ID] = append(out[l.ID], n.ordered[i])
		}
	}
	return out
}

// priorityName returns the name that was given after so many others.
func priorityName(given int) string {
	if given == 0 {
		return "priority-0" // nearly all trees have it
	}
	return "priority-" + strconv.Itoa(given)
}

// next names the priorities of an update. A priority keeps the name of its place if it
// still has a locality of it; else it takes the first free name of its localities;
// else a new one.
func (n names) next(priorities [][]*resource.LocalityEndpoints) names {
	out := names{ordered: make([]string, len(priorities)), priorities: priorities, given: n.given}
	holders := n.holders()
	taken := make(map[string]bool)
	take := func(i int, name string) {
		if out.ordered[i] == "" && !taken[name] {
			out.ordered[i], taken[name] = name, true
		}
	}
	for i, ls := range priorities[:min(len(priorities), len(n.ordered))] {
		for _, l := range ls {
			if slices.Contains(holders[l.ID], n.ordered[i]) {
				take(i, n.ordered[i])
			}
		}
	}
	for i, ls := range priorities {
		for _, l := range ls {
			for _, name := range holders[l.ID] {
				take(i, name)
			}
		}
		if out.ordered[i] == "" {
			take(i, priorityName(out.given))
			out.given++
		}
	}
	return out
}
