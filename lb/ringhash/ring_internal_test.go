package ringhash

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// golden is a ring that grpc-go v1.85.0 made of an assignment's priority: its
// entries in order, each as "hash key". Of large rings only the digest of those
// lines is kept.
type golden struct {
	Name       string
	MinSize    uint64 `json:"min_size"`
	MaxSize    uint64 `json:"max_size"`
	Localities []struct {
		Weight    uint32
		Endpoints []struct {
			Address   string
			Weight    uint32
			HashKey   string `json:"hash_key"`
			Unhealthy bool
		}
	}
	Weights []uint32 // as the ring takes them; absent where there are many
	Size    int
	SHA256  string
	Entries []string
}

// spots are what ring_hash places of the assignment.
func (g *golden) spots() []spot {
	var total uint64
	for _, l := range g.Localities {
		total += uint64(l.Weight)
	}
	var child policy.Child
	for i, l := range g.Localities {
		le := &resource.LocalityEndpoints{ID: resource.Locality{Zone: fmt.Sprint(i)}, Weight: l.Weight}
		for _, e := range l.Endpoints {
			health := resource.HealthUnknown
			if e.Unhealthy {
				health = resource.HealthUnhealthy
			}
			le.Endpoints = append(le.Endpoints, &resource.Endpoint{
				Addresses: []string{e.Address}, Weight: e.Weight, HashKey: e.HashKey, Health: health, Locality: le.ID,
			})
		}
		own := policy.NewLocality(le).Among(total)
		child.Localities = append(child.Localities, own)
		child.Endpoints = append(child.Endpoints, own.Endpoints...)
	}
	weights := policy.WeightsOf(child.State().ResolverState)
	var spots []spot
	for i, re := range child.Endpoints {
		e := policy.EndpointOf(re)
		spots = append(spots, spot{key: key(e), weight: weights.Of(e), seat: i})
	}
	return spots
}

// TestRingsAreGRPCs: every client of a cluster has to see the same ring, gRPC's
// own and lbd.
func TestRingsAreGRPCs(t *testing.T) {
	data, err := os.ReadFile("testdata/rings.json")
	if err != nil {
		t.Fatal(err)
	}
	var rings []golden
	if err := json.Unmarshal(data, &rings); err != nil {
		t.Fatal(err)
	}
	for _, g := range rings {
		t.Run(g.Name, func(t *testing.T) {
			spots := g.spots()
			for i, want := range g.Weights {
				if spots[i].weight != want {
					t.Errorf("%s weighs %d, want %d", spots[i].key, spots[i].weight, want)
				}
			}
			slices.Reverse(spots) // no order of theirs matters
			digest := sha256.New()
			var entries []string
			for _, e := range newRing(spots, g.MinSize, g.MaxSize) {
				i := slices.IndexFunc(spots, func(s spot) bool { return s.seat == int(e.seat) })
				line := fmt.Sprintf("%016x %s", e.hash, spots[i].key)
				entries = append(entries, line)
				_, _ = fmt.Fprintln(digest, line)
			}
			if len(entries) != g.Size {
				t.Errorf("%d entries, want %d", len(entries), g.Size)
			}
			if g.Entries != nil && !slices.Equal(entries, g.Entries) {
				t.Errorf("got  %v\nwant %v", entries, g.Entries)
			}
			if got := hex.EncodeToString(digest.Sum(nil)); got != g.SHA256 {
				t.Errorf("digest %s, want %s", got, g.SHA256)
			}
		})
	}
}

// TestRingIsAsDescribed holds random rings against what gRFC A42 says of them, by
// another way than the code's: each endpoint's entries counted and hashed from
// its name.
func TestRingIsAsDescribed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		minSize := 1 + r.Uint64N(512)
		maxSize := minSize + r.Uint64N(512)
		spots := make([]spot, 1+r.IntN(30))
		sum, lightest := 0.0, math.Inf(1)
		for i := range spots {
			spots[i] = spot{key: fmt.Sprintf("10.0.0.%d:80", i), weight: 1 + r.Uint32N(100), seat: i}
			sum += float64(spots[i].weight)
			lightest = min(lightest, float64(spots[i].weight))
		}
		// The lightest has a whole number of entries, unless that is too many.
		size := min(math.Ceil(lightest/sum*float64(minSize))*sum/lightest, float64(maxSize))
		ring := newRing(spots, minSize, maxSize)
		if math.Abs(float64(len(ring))-size) > 1 {
			t.Fatalf("%d entries, want %v: %v", len(ring), size, spots)
		}
		if !slices.IsSortedFunc(ring, func(a, b entry) int {
			if a.hash < b.hash {
				return -1
			}
			return 1
		}) {
			t.Fatalf("not sorted: %v", ring)
		}
		for _, s := range spots {
			hashes := make(map[uint64]bool)
			for _, e := range ring {
				if int(e.seat) == s.seat {
					hashes[e.hash] = true
				}
			}
			if want := size * float64(s.weight) / sum; math.Abs(float64(len(hashes))-want) > 1 {
				t.Errorf("%s has %d entries, want %v", s.key, len(hashes), want)
			}
			for i := range len(hashes) {
				if !hashes[xxhash.Sum64String(fmt.Sprintf("%s_%d", s.key, i))] {
					t.Errorf("%s lacks entry %d of %d", s.key, i, len(hashes))
				}
			}
		}
	}
}

func TestAt(t *testing.T) {
	r := ring{{hash: 10}, {hash: 20}, {hash: 20}, {hash: 30}}
	for h, want := range map[uint64]int{0: 0, 9: 0, 10: 0, 11: 1, 20: 1, 21: 3, 30: 3, 31: 0, math.MaxUint64: 0} {
		if got := r.at(h); got != want {
			t.Errorf("hash %d falls on %d, want %d", h, got, want)
		}
	}
}
