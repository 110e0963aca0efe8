package leastrequest

import (
	"fmt"
	"strings"

	"github.com/lbd-dev/lbd/lb/policy"
)

// Compared are the endpoints that were drawn for a pick, in turn.
type Compared []InFlight

// InFlight is the number of leases that an endpoint had before the pick.
type InFlight struct {
	Address  string `json:"address"`
	InFlight int64  `json:"in_flight"`
}

// Says describes the step in a sentence.
func (c Compared) Says(s policy.EndpointStep) string {
	drawn := make([]string, len(c))
	for i, e := range c {
		drawn[i] = fmt.Sprintf("%s with %d in flight", e.Address, e.InFlight)
	}
	return fmt.Sprintf("%s drew %s of %d READY (%d excluded), and took %s",
		s.Policy, strings.Join(drawn, ", "), s.Rotation, s.Excluded, s.Endpoint.Addresses[0])
}
