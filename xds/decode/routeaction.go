package decode

import (
	"math"
	"regexp"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lbd-dev/lbd/xds/resource"
)

// channelIDKey is the filter state with the channel's own id, for hash policies (gRFC A42).
const channelIDKey = "io.grpc.channel_id"

// action validates the action of a route. It returns false for a route that is left out.
func (v *routeValidator) action(at spot, m *routev3.Route, to *resource.Route) bool {
	if a, ok := m.GetAction().(*routev3.Route_Route); ok {
		return v.forward(at, a.Route, to)
	}
	if to.Unsupported = oneof(m, "action"); to.Unsupported != "" {
		v.warnUnapplied(m, protoreflect.Name(to.Unsupported), at.in(to.Unsupported), "is not supported: picks that match the route fail")
		return true
	}
	to.Unsupported = "none"
	if v.byHand {
		v.reject(at.in(""), "does nothing: write route: {cluster: …}")
	}
	return true
}

// forward validates the action that sends requests to clusters.
func (v *routeValidator) forward(at spot, m *routev3.RouteAction, to *resource.Route) bool {
	to.Hash = v.hashPolicies(at, m.GetHashPolicy())
	switch c := m.GetClusterSpecifier().(type) {
	case *routev3.RouteAction_Cluster:
		v.clusterName(at, "route.cluster", c.Cluster)
		to.Clusters, to.TotalWeight = []resource.WeightedCluster{{Name: c.Cluster, Weight: 1}}, 1
	case *routev3.RouteAction_WeightedClusters:
		v.weighted(at, c.WeightedClusters, to)
	case *routev3.RouteAction_ClusterSpecifierPlugin:
		supported, known := v.plugins[c.ClusterSpecifierPlugin]
		switch {
		case !known:
			v.reject(at.in("route.cluster_specifier_plugin"), "is %q, which is none of cluster_specifier_plugins", c.ClusterSpecifierPlugin)
		case !supported:
			return false
		}
		to.Unsupported = "cluster_specifier_plugin"
	default:
		if !v.byHand {
			return false
		}
		if name := oneof(m, "cluster_specifier"); name != "" {
			v.reject(at.in("route."+name), "is not supported: write cluster or weighted_clusters")
		} else {
			v.reject(at.in("route"), "has no cluster: write cluster or weighted_clusters")
		}
	}
	v.retryPolicy(at, "route.retry_policy", m.GetRetryPolicy())
	return true
}

func (v *routeValidator) clusterName(at spot, field, name string) {
	if reason := badReference(name); v.byHand && reason != "" {
		v.reject(at.in(field), "%s", reason)
	}
}

func (v *routeValidator) weighted(at spot, m *routev3.WeightedCluster, to *resource.Route) {
	const field = "route.weighted_clusters"
	list := m.GetClusters()
	if len(list) > MaxWeightedClusters && v.tooMany(at.in(field+".clusters"), len(list), MaxWeightedClusters, "clusters") {
		return
	}
	to.Clusters = make([]resource.WeightedCluster, 0, len(list))
	for i, c := range list {
		here := field + element(".clusters", i)
		if c.GetWeight().GetValue() == 0 {
			v.warnByHand(at.in(here+".weight"), "is %s: the cluster is left out", zeroOrAbsent(c.GetWeight() != nil))
			continue
		}
		if v.byHand && c.GetClusterHeader() != "" {
			v.reject(at.in(here+".cluster_header"), "is not supported: write name")
		} else {
			v.clusterName(at, here+".name", c.GetName())
		}
		v.overrides(at, c, here)
		before := to.TotalWeight
		to.TotalWeight += uint64(c.GetWeight().GetValue())
		if before <= math.MaxUint32 && to.TotalWeight > math.MaxUint32 {
			v.reject(at.in(here+".weight"), "makes the sum of the weights exceed %d", uint32(math.MaxUint32))
		}
		to.Clusters = append(to.Clusters, resource.WeightedCluster{Name: c.GetName(), Weight: c.GetWeight().GetValue()})
	}
	if to.TotalWeight == 0 {
		v.reject(at.in(field+".clusters"), "holds no cluster with a weight above 0")
	}
}

// hashPolicies validates hash policies. As in gRPC, unknown ones are left out.
func (v *routeValidator) hashPolicies(at spot, list []*routev3.RouteAction_HashPolicy) []resource.HashPolicy {
	if len(list) > MaxHashPolicies && v.tooMany(at.in("route.hash_policy"), len(list), MaxHashPolicies, "policies") {
		return nil
	}
	var policies []resource.HashPolicy
	for i, m := range list {
		field := element("route.hash_policy", i)
		switch p := m.GetPolicySpecifier().(type) {
		case *routev3.RouteAction_HashPolicy_Header_:
			header := v.hashHeader(at, field+".header", p.Header)
			if header.Header == "" {
				continue // no request has it
			}
			header.Terminal = m.GetTerminal()
			policies = append(policies, header)
		case *routev3.RouteAction_HashPolicy_FilterState_:
			if key := p.FilterState.GetKey(); key != channelIDKey {
				v.warnUnapplied(m, "filter_state", at.in(field+".filter_state.key"), "is %q, and not applied: known is %s", key, channelIDKey)
				continue
			}
			policies = append(policies, resource.HashPolicy{Terminal: m.GetTerminal()})
		default:
			v.warnUnapplied(m, protoreflect.Name(oneof(m, "policy_specifier")), at.in(field), "is not applied: supported are header and filter_state")
		}
	}
	return policies
}

func (v *routeValidator) hashHeader(at spot, field string, m *routev3.RouteAction_HashPolicy_Header) resource.HashPolicy {
	p := resource.HashPolicy{Header: strings.ToLower(m.GetHeaderName())}
	if v.byHand {
		v.headerName(at, field+".header_name", p.Header)
	}
	rewrite := m.GetRegexRewrite()
	if rewrite == nil {
		return p
	}
	p.Regex = v.regex(at.in(field+".regex_rewrite.pattern.regex"), rewrite.GetPattern().GetRegex())
	p.Substitution = rewrite.GetSubstitution()
	if backslash.MatchString(p.Substitution) {
		v.warnByHand(at.in(field+".regex_rewrite.substitution"), `is taken as gRPC-Go takes it: write ${1} for the first group, where Envoy has \1`)
	}
	return p
}

var backslash = regexp.MustCompile(`\\[0-9]`)

// retryPolicy validates a retry policy (gRFC A44). It is not applied: callers retry.
func (v *routeValidator) retryPolicy(at spot, field string, m *routev3.RetryPolicy) {
	if m == nil {
		return
	}
	if n := m.GetNumRetries(); n != nil && n.GetValue() == 0 {
		v.reject(at.in(field+".num_retries"), "is 0: it must be at least 1")
	}
	if b := m.GetRetryBackOff(); b != nil {
		if b.GetBaseInterval().AsDuration() <= 0 {
			v.reject(at.in(field+".retry_back_off.base_interval"), "is not above 0s")
		}
		if b.GetMaxInterval() != nil && b.GetMaxInterval().AsDuration() <= 0 {
			v.reject(at.in(field+".retry_back_off.max_interval"), "is not above 0s")
		}
	}
}
