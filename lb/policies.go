package lb

import (
	"encoding/json"

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
	"github.com/lbd-dev/lbd/lb/wrrlocality"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Policies returns the registry of lbd's own policies.
func Policies() policy.Registry {
	return policy.NewRegistry(
		clustermanager.Builder{}, cds.Builder{}, clusterimpl.Builder{}, priority.Builder{},
		wrrlocality.Builder{}, weightedtarget.Builder{}, roundrobin.Builder{},
		outlierdetection.Builder{},
		weightedroundrobin.Builder{}, leastrequest.Builder{}, ringhash.Builder{}, pickfirst.Builder{},
	)
}

// Foreign reports whether grpc's registry has a policy of that name, which
// clusters can then name as lbd's own, and returns what judges its config: its
// builder's ParseConfig, nil where it has none. It is a [resource.CustomPolicies].
func Foreign(name string) (judge resource.ConfigJudge, available bool) {
	builder := balancer.Get(name)
	if parser, ok := builder.(balancer.ConfigParser); ok {
		judge = func(config json.RawMessage) error {
			_, err := parser.ParseConfig(config)
			return err
		}
	}
	return judge, builder != nil
}
