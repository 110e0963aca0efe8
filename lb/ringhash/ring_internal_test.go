package ringhash

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

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
	weights := policy.WeightsOf(child.Localities)
	var spots []spot
	for i, e := range child.Endpoints {
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

func TestAt(t *testing.T) {
	r := ring{{hash: 10}, {hash: 20}, {hash: 20}, {hash: 30}}
	for h, want := range map[uint64]int{0: 0, 9: 0, 10: 0, 11: 1, 20: 1, 21: 3, 30: 3, 31: 0, math.MaxUint64: 0} {
		if got := r.at(h); got != want {
			t.Errorf("hash %d falls on %d, want %d", h, got, want)
		}
	}
}
