package parity_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

// rejections reports which resources of the step each side has rejected.
func (s *hostingScenario) rejections() (byGRPC, byLBD func(url, name string) bool) {
	v := strconv.Itoa(s.version)
	node := s.nodes()
	byGRPC = func(url, name string) bool {
		return strings.Contains(s.management.nacked(node[0], url, v), fmt.Sprintf("resource %q: ", name))
	}
	byLBD = func(url, name string) bool {
		return strings.Contains(s.management.nacked(node[1], url, v), "/"+name+": ")
	}
	return byGRPC, byLBD
}

// verdicts compares which of the resources in use each side has rejected.
func (s *hostingScenario) verdicts() (found []string) {
	byGRPC, byLBD := s.rejections()
	judge := func(url, name string) {
		if g, l := byGRPC(url, name), byLBD(url, name); g != l {
			v := strconv.Itoa(s.version)
			found = append(found, fmt.Sprintf("%s %s: rejected by grpc-go %t, by lbd %t:\n%s\n%s", url, name, g, l,
				s.management.nacked(s.name, url, v), s.management.nacked(lbdNode(s.name), url, v)))
		}
	}
	judge(resourcev3.ListenerType, s.draw.hosting.target)
	if name := s.good.listener.value.routesName; name != "" {
		judge(resourcev3.RouteType, name)
	}
	if s.good.failure != "" {
		return found
	}
	for name := range s.good.wants {
		judge(resourcev3.ClusterType, name)
		if leaf, ok := s.good.leaves[name]; ok {
			judge(resourcev3.EndpointType, assignmentOf(leaf.cluster))
		}
	}
	return found
}

// subscriptions compares the subscriptions of both sides. While the target has no
// routes, grpc-go keeps those to the clusters of its last routes.
func (s *hostingScenario) subscriptions() (found []string) {
	if s.good.failure != "" {
		return nil
	}
	for _, url := range resourceTypes {
		g, l := s.management.askedFor(s.name, url), s.management.askedFor(lbdNode(s.name), url)
		l = slices.DeleteFunc(l, func(name string) bool {
			if url == resourcev3.EndpointType {
				name = s.clusterOf(name)
			}
			return s.good.passedOver[name] && !s.good.wants[name]
		})
		if !slices.Equal(g, l) {
			found = append(found, fmt.Sprintf("%s: grpc-go asks for %q, lbd for %q", url, g, l))
		}
	}
	return found
}

// clusterOf returns the cluster of an assignment.
func (s *hostingScenario) clusterOf(assignment string) string {
	for _, w := range s.draw.leaves {
		if w.assignmentName() == assignment {
			return w.cluster
		}
	}
	return assignment
}
