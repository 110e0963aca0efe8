package resource

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// channelIDKey is the filter state that a hash policy may name: the channel's
// own id (gRFC A42).
const channelIDKey = "io.grpc.channel_id"

// action judges what a route does. It reports whether the route is to be kept.
func (r *routing) action(at spot, m *routev3.Route, to *Route) bool {
	if a, ok := m.GetAction().(*routev3.Route_Route); ok {
		return r.forward(at, a.Route, to)
	}
	to.Unsupported = oneof(m, "action")
	if to.Unsupported == "" {
		to.Unsupported = "none"
		if r.byHand {
			r.refuse(at.in(""), "does nothing: write route: {cluster: …}")
		}
		return true
	}
	r.warnUnapplied(m, protoreflect.Name(to.Unsupported), at.in(to.Unsupported), "is not supported: picks that the route takes are refused")
	return true
}

// forward judges the action that sends requests to clusters.
func (r *routing) forward(at spot, m *routev3.RouteAction, to *Route) bool {
	to.Hash = r.hashPolicies(at, m.GetHashPolicy())
	switch c := m.GetClusterSpecifier().(type) {
	case *routev3.RouteAction_Cluster:
		r.clusterName(at, "route.cluster", c.Cluster)
		to.Clusters, to.TotalWeight = []WeightedCluster{{Name: c.Cluster, Weight: 1}}, 1
	case *routev3.RouteAction_WeightedClusters:
		r.weighted(at, c.WeightedClusters, to)
	case *routev3.RouteAction_ClusterSpecifierPlugin:
		supported, known := r.plugins[c.ClusterSpecifierPlugin]
		switch {
		case !known:
			r.refuse(at.in("route.cluster_specifier_plugin"), "is %q, which is none of cluster_specifier_plugins", c.ClusterSpecifierPlugin)
		case !supported:
			return false
		}
		to.Unsupported = "cluster_specifier_plugin"
	default:
		if !r.byHand {
			return false
		}
		if name := oneof(m, "cluster_specifier"); name != "" {
			r.refuse(at.in("route."+name), "is not supported: write cluster or weighted_clusters")
		} else {
			r.refuse(at.in("route"), "has no cluster: write cluster or weighted_clusters")
		}
	}
	r.retryPolicy(at, "route.retry_policy", m.GetRetryPolicy())
	return true
}

// clusterName judges the name of a cluster that a route names.
func (r *routing) clusterName(at spot, field, name string) {
	if !r.byHand {
		return
	}
	if name == "" {
		r.refuse(at.in(field), "is empty")
	} else if reason := badName(name); reason != "" {
		r.refuse(at.in(field), "%s", reason)
	}
}

// weighted judges the clusters of a route that are drawn by weight.
func (r *routing) weighted(at spot, m *routev3.WeightedCluster, to *Route) {
	const field = "route.weighted_clusters"
	list := m.GetClusters()
	if r.byHand && len(list) > MaxWeightedClusters {
		r.refuse(at.in(field+".clusters"), "holds %d clusters, of at most %d", len(list), MaxWeightedClusters)
		return
	}
	to.Clusters = make([]WeightedCluster, 0, len(list))
	for i, c := range list {
		here := field + ".clusters[" + strconv.Itoa(i) + "]"
		if c.GetWeight().GetValue() == 0 {
			r.warnByHand(at.in(here+".weight"), "is %s: the cluster is left out", zeroOrAbsent(c.GetWeight() != nil))
			continue
		}
		if r.byHand && c.GetClusterHeader() != "" {
			r.refuse(at.in(here+".cluster_header"), "is not supported: write name")
		} else {
			r.clusterName(at, here+".name", c.GetName())
		}
		r.overrides(at, c, here)
		before := to.TotalWeight
		to.TotalWeight += uint64(c.GetWeight().GetValue())
		if before <= math.MaxUint32 && to.TotalWeight > math.MaxUint32 {
			r.refuse(at.in(here+".weight"), "makes the sum of the weights exceed %d", uint32(math.MaxUint32))
		}
		to.Clusters = append(to.Clusters, WeightedCluster{Name: c.GetName(), Weight: c.GetWeight().GetValue()})
	}
	if to.TotalWeight == 0 {
		r.refuse(at.in(field+".clusters"), "holds no cluster with a weight above 0")
	}
}

// hashPolicies judges what requests are hashed by. gRPC passes over what it does
// not know.
func (r *routing) hashPolicies(at spot, list []*routev3.RouteAction_HashPolicy) []HashPolicy {
	if r.byHand && len(list) > MaxHashPolicies {
		r.refuse(at.in("route.hash_policy"), "holds %d policies, of at most %d", len(list), MaxHashPolicies)
		return nil
	}
	var policies []HashPolicy
	for i, m := range list {
		field := "route.hash_policy[" + strconv.Itoa(i) + "]"
		switch p := m.GetPolicySpecifier().(type) {
		case *routev3.RouteAction_HashPolicy_Header_:
			header := r.hashHeader(at, field+".header", p.Header)
			if header.Header == "" {
				continue // no request has it
			}
			header.Terminal = m.GetTerminal()
			policies = append(policies, header)
		case *routev3.RouteAction_HashPolicy_FilterState_:
			if key := p.FilterState.GetKey(); key != channelIDKey {
				r.warnUnapplied(m, "filter_state", at.in(field+".filter_state.key"), "is %q, and not applied: known is %s", key, channelIDKey)
				continue
			}
			policies = append(policies, HashPolicy{Terminal: m.GetTerminal()})
		default:
			r.warnUnapplied(m, protoreflect.Name(oneof(m, "policy_specifier")), at.in(field), "is not applied: supported are header and filter_state")
		}
	}
	return policies
}

// hashHeader judges a policy that hashes a header.
func (r *routing) hashHeader(at spot, field string, m *routev3.RouteAction_HashPolicy_Header) HashPolicy {
	p := HashPolicy{Header: strings.ToLower(m.GetHeaderName())}
	if r.byHand {
		r.headerName(at, field+".header_name", p.Header)
	}
	rewrite := m.GetRegexRewrite()
	if rewrite == nil {
		return p
	}
	p.Regex = r.regex(at.in(field+".regex_rewrite.pattern.regex"), rewrite.GetPattern().GetRegex())
	p.Substitution = rewrite.GetSubstitution()
	if backslash.MatchString(p.Substitution) {
		r.warnByHand(at.in(field+".regex_rewrite.substitution"), `is taken as gRPC-Go takes it: write ${1} for the first group, where Envoy has \1`)
	}
	return p
}

// backslash finds what stands for a group in Envoy's substitutions.
var backslash = regexp.MustCompile(`\\[0-9]`)

// retryPolicy judges a retry policy (gRFC A44), which is not applied: callers of the
// pick API retry.
func (r *routing) retryPolicy(at spot, field string, m *routev3.RetryPolicy) {
	if m == nil {
		return
	}
	if n := m.GetNumRetries(); n != nil && n.GetValue() == 0 {
		r.refuse(at.in(field+".num_retries"), "is 0: it must be at least 1")
	}
	if b := m.GetRetryBackOff(); b != nil {
		if b.GetBaseInterval().AsDuration() <= 0 {
			r.refuse(at.in(field+".retry_back_off.base_interval"), "is not above 0s")
		}
		if b.GetMaxInterval() != nil && b.GetMaxInterval().AsDuration() <= 0 {
			r.refuse(at.in(field+".retry_back_off.max_interval"), "is not above 0s")
		}
	}
}
