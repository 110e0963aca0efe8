package lb

import (
	"github.com/lbd-dev/lbd/lb/cds"
	"github.com/lbd-dev/lbd/lb/clusterimpl"
	"github.com/lbd-dev/lbd/lb/clustermanager"
	"github.com/lbd-dev/lbd/lb/foreign"
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
// clusters can then name as lbd's own.
func Foreign(name string) bool { return foreign.Lookup(name) != nil }
