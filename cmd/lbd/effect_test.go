package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/service/forecast"
	"github.com/lbd-dev/lbd/service/observe"
)

// shop generates pushes of a cluster whose endpoints are real, and counts its picks.
type shop struct {
	t     *testing.T
	draw  *rand.Rand
	url   string
	alive []string
	dead  []string // in priority 0 of each push, so that the daemon knows them

	ring bool // the policy is ring_hash
}

// generate returns a DiscoveryResponse with a random Cluster and its assignment.
func (s *shop) generate() string {
	ring := `"lb_policy": "RING_HASH", "ring_hash_lb_config": {"minimum_ring_size": ` + strconv.Itoa(64<<s.draw.IntN(6)) + `}`
	policies := []string{`"lb_policy": "ROUND_ROBIN"`, `"lb_policy": "LEAST_REQUEST"`, ring, ring}
	policy := policies[s.draw.IntN(len(policies))]
	s.ring = strings.Contains(policy, "RING_HASH")
	cluster := `{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "orders", "type": "EDS",
		"eds_cluster_config": {"eds_config": {"ads": {}}}, ` + policy + `}`
	alive := slices.Clone(s.alive)
	s.draw.Shuffle(len(alive), func(i, j int) { alive[i], alive[j] = alive[j], alive[i] })
	alive = alive[:2+s.draw.IntN(len(alive)-1)]
	var localities []string
	add := func(priority, zone int, addresses []string) {
		var endpoints []string
		for _, a := range addresses {
			host, port, _ := strings.Cut(a, ":")
			health := "HEALTHY"
			if s.draw.IntN(8) == 0 && len(addresses) > 1 && !slices.Contains(s.dead, a) { // else the daemon would not know it
				health = "DRAINING"
			}
			endpoints = append(endpoints, fmt.Sprintf(`{"health_status": %q, "load_balancing_weight": %d,
				"endpoint": {"address": {"socket_address": {"address": %q, "port_value": %s}}}}`, health, 1+s.draw.IntN(5), host, port))
		}
		localities = append(localities, fmt.Sprintf(`{"locality": {"zone": "%d-%d"}, "priority": %d, "load_balancing_weight": %d, "lb_endpoints": [%s]}`,
			priority, zone, priority, 1+s.draw.IntN(4), strings.Join(endpoints, ",")))
	}
	first := alive[:s.draw.IntN(len(alive))] // perhaps none: then priority 1 is used
	add(0, 0, slices.Concat(s.dead, first[:len(first)/2]))
	if len(first) > 0 {
		add(0, 1, first[len(first)/2:])
	}
	add(1, 0, alive[len(first):])
	drops := ""
	if s.draw.IntN(3) == 0 {
		drops = fmt.Sprintf(`, "policy": {"drop_overloads": [{"category": "load", "drop_percentage": {"numerator": %d, "denominator": "HUNDRED"}}]}`, 1+s.draw.IntN(60))
	}
	return `{"version_info": "1", "resources": [` + cluster + `, {"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
		"cluster_name": "orders", "endpoints": [` + strings.Join(localities, ",") + `]` + drops + `}]}`
}

// settle picks until the tree has tried all endpoints of the priority in use.
func (s *shop) settle() {
	s.t.Helper()
	eventually(s.t, "a settled cluster", func() bool {
		do(s.t, "GET", s.url+"/pick?n=100&cluster=orders", "")
		is := get[observe.ClusterState](s.t, s.url+"/v1/clusters/orders")
		if is.PriorityInUse < 0 {
			return false
		}
		for _, p := range is.Priorities[:is.PriorityInUse+1] {
			for _, l := range p.Localities {
				for _, e := range l.Endpoints {
					if e.State == "CONNECTING" || e.State == "IDLE" {
						return false
					}
				}
			}
		}
		return true
	})
}

// count returns the part of the picks that each endpoint has, and the part that is dropped.
func (s *shop) count() (shares map[string]float64, dropped float64) {
	s.t.Helper()
	const requests, each = 225, 100 // 2 points are 6 standard deviations
	counts := make(map[string]int)
	total := 0
	for range requests {
		a := do(s.t, "GET", s.url+"/pick?n="+strconv.Itoa(each)+"&cluster=orders", "")
		if a.status != http.StatusOK && a.status != http.StatusServiceUnavailable {
			s.t.Fatalf("picks: %+v", a)
		}
		for _, address := range slices.Concat(s.alive, s.dead) {
			n := bytes.Count([]byte(a.body), []byte(`"address":"`+address+`"`))
			counts[address] += n
			total += n
		}
	}
	shares = make(map[string]float64)
	for address, n := range counts {
		shares[address] = float64(n) / float64(total)
	}
	return shares, 1 - float64(total)/(requests*each)
}

// owners returns the endpoint of some hash keys.
func (s *shop) owners() []string {
	s.t.Helper()
	out := make([]string, 300)
	for i := range out {
		for out[i] == "" || out[i] == "dropped" {
			out[i] = picked(s.t, s.url, "cluster=orders&hash=key-"+strconv.Itoa(i))
		}
	}
	return out
}

// TestEffectAgainstReality pushes generated configs of a cluster with real endpoints. The requests of
// each endpoint are as dry_run has predicted them, within 2 points, and so are the hash keys that move
// and the connections.
func TestEffectAgainstReality(t *testing.T) {
	if testing.Short() {
		t.Skip("long: counts thousands of picks after each of 12 pushes")
	}
	t.Parallel()
	pushes, seed := 12, uint64(3)
	if os.Getenv("LBD_TEST_LONG") != "" {
		pushes, seed = 200, rand.Uint64()
	}
	t.Logf("%d pushes, seed %d", pushes, seed)
	s := &shop{t: t, draw: rand.New(rand.NewPCG(seed, 1)), dead: []string{lastingAddress(t), lastingAddress(t)}}
	for range 9 {
		address, _ := upstream(t)
		s.alive = append(s.alive, address)
	}
	s.url = startProcess(t, "--data="+t.TempDir(), "--connect=tcp_hold").url
	expect(t, http.StatusOK, "PUT", s.url+"/v1/snapshot", s.generate())
	s.settle()
	var worst, worstMoved float64
	moved := 0
	for i := range pushes {
		ringBefore := s.ring
		var before []string
		if ringBefore {
			before = s.owners()
		}
		next := s.generate()
		var is struct{ Effect *forecast.Effect }
		a := do(t, "PUT", s.url+"/v1/snapshot?dry_run=true", next)
		noError(t, json.Unmarshal([]byte(a.body), &is))
		if is.Effect == nil || len(is.Effect.Clusters) != 1 {
			t.Fatalf("push %d: no effect: %s", i, a.body)
		}
		c := &is.Effect.Clusters[0]
		expect(t, http.StatusOK, "PUT", s.url+"/v1/snapshot", next)
		s.settle()
		shares, dropped := s.count()
		check := func(what string, predicted, observed float64) {
			worst = max(worst, math.Abs(predicted-observed))
			if math.Abs(predicted-observed) > 0.02 {
				t.Errorf("push %d: %s: %.4f predicted, %.4f observed\n%s\n%s", i, what, predicted, observed, next, a.body)
			}
		}
		check("drops", c.After.Dropped, dropped)
		for _, e := range c.Endpoints {
			if e.After == nil {
				t.Fatalf("push %d: no share of %s", i, e.Address)
			}
			check(e.Address, *e.After, shares[e.Address])
			delete(shares, e.Address)
		}
		for address, share := range shares {
			check(address, 0, share)
		}
		if ringBefore && s.ring {
			if c.MovedHashKeys == nil {
				t.Fatalf("push %d: no moved hash keys", i)
			}
			other := 0
			after := s.owners()
			for key := range after {
				if before[key] != after[key] {
					other++
				}
			}
			moved++
			observed := float64(other) / float64(len(after))
			worstMoved = max(worstMoved, math.Abs(observed-*c.MovedHashKeys))
			if deviation := math.Sqrt(0.25 / float64(len(after))); math.Abs(observed-*c.MovedHashKeys) > 6*deviation {
				t.Errorf("push %d: %.4f of the hash keys move, %.4f predicted", i, observed, *c.MovedHashKeys)
			}
		}
	}
	t.Logf("largest difference: %.2f points of the picks, %.1f points of 300 hash keys in %d pushes", 100*worst, 100*worstMoved, moved)
}
