package lb

import (
	"encoding/json"
	"fmt"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/cds"
	"github.com/lbd-dev/lbd/lb/clusterimpl"
	"github.com/lbd-dev/lbd/lb/clustermanager"
	"github.com/lbd-dev/lbd/lb/leastrequest"
	"github.com/lbd-dev/lbd/lb/outlierdetection"
	"github.com/lbd-dev/lbd/lb/pickfirst"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/priority"
	"github.com/lbd-dev/lbd/lb/ringhash"
	"github.com/lbd-dev/lbd/lb/roundrobin"
	"github.com/lbd-dev/lbd/lb/weightedroundrobin"
	"github.com/lbd-dev/lbd/lb/weightedtarget"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Policies returns the registry of lbd's own policies.
func Policies() policy.Registry {
	return policy.NewRegistry(
		clustermanager.Builder(), cds.Builder(), clusterimpl.Builder(), priority.Builder(),
		weightedtarget.Builder(), roundrobin.Builder(),
		outlierdetection.Builder(),
		weightedroundrobin.Builder(), leastrequest.Builder(), ringhash.Builder(), pickfirst.Builder(),
	)
}

var own = Policies()

// PolicyTraits returns what is known of the policy of that name, of lbd or in grpc's
// registry; nil if clusters cannot choose it. It is a Policies of package decode.
func PolicyTraits(name string) *resource.PolicyTraits {
	if b, ok := own[name]; ok {
		return policy.TraitsOf(b)
	}
	builder := balancer.Get(name)
	if builder == nil {
		return nil
	}
	return &resource.PolicyTraits{Judge: func(config json.RawMessage) (string, []resource.ConfigFinding) {
		return string(config), judgeForeign(builder, config)
	}}
}

// judgeForeign validates the config of a policy in grpc's registry.
func judgeForeign(builder balancer.Builder, config json.RawMessage) []resource.ConfigFinding {
	parser, ok := builder.(balancer.ConfigParser)
	if !ok {
		if s := string(config); s == "{}" || s == "null" {
			return nil
		}
		return []resource.ConfigFinding{{Kind: resource.FindingWarning, Text: fmt.Sprintf("is ignored: %s takes no config", builder.Name())}}
	}
	if _, err := parser.ParseConfig(config); err != nil {
		return []resource.ConfigFinding{{Text: fmt.Sprintf("is rejected by %s: %v", builder.Name(), err)}}
	}
	return nil
}
