// Package custompolicy is an endpoint policy of your own, written as for any gRPC
// client: it knows nothing of lbd. To have it in your daemon, import the package
// for its side effect from a file beside cmd/lbd/main.go,
//
//	import _ "github.com/lbd-dev/lbd/examples/custompolicy"
//
// and name it in a Cluster's load_balancing_policy, as cluster.yaml beside this
// file does. A builder that has a ParseConfig as well is given the config that the
// Cluster names there, and a Cluster whose config it refuses is refused.
package custompolicy

import (
	"cmp"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
)

// Name is what clusters call the policy.
const Name = "example.first_ready"

func init() {
	balancer.Register(base.NewBalancerBuilder(Name, pickerBuilder{}, base.Config{}))
}

// pickerBuilder makes a picker of the endpoints that are READY: the first of them
// by its address takes every pick.
type pickerBuilder struct{}

// Build is called whenever the READY endpoints change.
func (pickerBuilder) Build(info base.PickerBuildInfo) balancer.Picker {
	if len(info.ReadySCs) == 0 {
		return base.NewErrPicker(balancer.ErrNoSubConnAvailable)
	}
	type ready struct {
		subConn balancer.SubConn
		address string
	}
	var all []ready
	for sc, i := range info.ReadySCs {
		all = append(all, ready{sc, i.Address.Addr})
	}
	first := slices.MinFunc(all, func(a, b ready) int { return cmp.Compare(a.address, b.address) })
	return picker{first.subConn}
}

type picker struct{ first balancer.SubConn }

// Pick picks the one.
func (p picker) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{SubConn: p.first}, nil
}
