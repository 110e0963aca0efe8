package policy

import (
	"math/bits"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Seats are the READY endpoints that a picker chooses from. A picker embeds them as a
// [Rotation] with equal weights.
type Seats[T any] []Seat[T]

// Seat is one endpoint of a picker.
type Seat[T any] struct {
	SubConn  balancer.SubConn
	Endpoint *resource.Endpoint
	// Own is what the policy keeps for the endpoint.
	Own *T
}

// Seats returns the READY endpoints, in the config's order.
func (s *EndpointSet[T]) Seats() Seats[T] {
	seats := make(Seats[T], 0, s.Census.Ready)
	for _, m := range s.Order {
		if m.State == connectivity.Ready {
			seats = append(seats, Seat[T]{m.SubConn, m.Value, &m.Own})
		}
	}
	return seats
}

// Len returns the number of endpoints.
func (s Seats[T]) Len() int { return len(s) }

// Endpoint returns the endpoint at an index.
func (s Seats[T]) Endpoint(i int) *resource.Endpoint { return s[i].Endpoint }

// Weight returns 1.
func (s Seats[T]) Weight(int) float64 { return 1 }

// At returns the index that 64 random bits choose.
func (s Seats[T]) At(draw uint64) int {
	i, _ := bits.Mul64(draw, uint64(len(s)))
	return int(i)
}
