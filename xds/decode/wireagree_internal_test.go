// One goroutine compares the decoders; FuzzOnePass does so with the race detector, too.

//go:build !race

package decode

import (
	"math/rand/v2"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
)

// TestDecodersAgree is a part of FuzzOnePass for each run of the tests.
func TestDecodersAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	seeds := ordinary(t)
	for range 2000 {
		body := seeds[random.IntN(len(seeds))].body
		if random.IntN(2) == 0 {
			body = randomAssignment(random)
		}
		compareSeries(t, body, random.Uint64())
		if m := (&endpointv3.ClusterLoadAssignment{}); proto.Unmarshal(body, m) == nil {
			compareTextSeries(t, asJSON(t, body, random.IntN(4)), random.Uint64())
		}
	}
}
