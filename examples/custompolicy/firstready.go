// Package custompolicy is an example of a custom endpoint policy. It is written as
// for a gRPC client, and does not depend on lbd. To add it to your daemon, import
// the package for its side effect in a file next to cmd/lbd/main.go,
//
//	import _ "github.com/lbd-dev/lbd/examples/custompolicy"
//
// and name it in load_balancing_policy of a Cluster, as in cluster.yaml next to this
// file. If the builder also has a ParseConfig, lbd passes it the config in the
// Cluster, and rejects the Cluster if ParseConfig returns an error.
package custompolicy

import (
	"cmp"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
)

// Name is the name of the policy in Clusters.
const Name = "example.first_ready"

func init() {
	balancer.Register(base.NewBalancerBuilder(Name, pickerBuilder{}, base.Config{}))
}

// pickerBuilder builds a picker that always picks the first READY endpoint, by
// address.
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

// Pick returns that endpoint.
func (p picker) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{SubConn: p.first}, nil
}
