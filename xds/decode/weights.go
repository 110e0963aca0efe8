package decode

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/xds/resource"
)

const ignoresWeights = "endpoints differ in load_balancing_weight: %s ignores it"

// JudgeWeights corrects the warnings that a policy ignores the weights of endpoints: an assignment is decoded
// without its clusters, as if they had the default policy. clusters returns those that have an assignment; nil
// if none is known. policies may be nil.
func JudgeWeights(warnings []Problem, policies Policies, clusters func(assignment string) []*resource.Cluster) []Problem {
	byDefault := fmt.Sprintf(ignoresWeights, resource.PolicyRoundRobin)
	if !slices.ContainsFunc(warnings, func(w Problem) bool { return w.Reason == byDefault }) {
		return warnings
	}
	out := slices.Clone(warnings)
	for i := range out {
		_, name, _ := strings.Cut(out[i].Resource, "/")
		if out[i].Reason != byDefault {
			continue
		}
		used := clusters(name)
		for _, c := range used {
			out[i].Reason = ""
			policy := c.Policy.Endpoint()
			ignores := policy == resource.PolicyRoundRobin
			if policies != nil && !ignores {
				traits := policies(string(policy))
				ignores = traits != nil && traits.IgnoresWeights
			}
			if ignores {
				out[i].Reason = fmt.Sprintf(ignoresWeights, policy)
				break
			}
		}
	}
	return slices.DeleteFunc(out, func(w Problem) bool { return w.Reason == "" })
}
