package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
)

// storm is a daemon with two management servers, in order of fallback, and random events.
type storm struct {
	t             *testing.T
	random        *rand.Rand
	url           string
	first, second *controlPlane
	has           [2]*snapshots
	guests        [2]map[int]bool // clusters that come and go, on each server
	up            [2]bool
	names         int // that were invented
	counts        map[string]int
}

const (
	stableClusters = 5
	stormGuests    = 20
)

// stable returns the resources that the first server always has.
func (s *storm) stable() []types.Resource {
	out := []types.Resource{
		listenerTo(s.t, "shop", "routes"), routesOf("routes", route("/one", "stable-1"), route("/", "stable-0")),
	}
	for i := range stableClusters {
		name := fmt.Sprint("stable-", i)
		out = append(out, edsCluster(name), assignmentOf(name, fmt.Sprintf("10.0.0.%d:80", i)))
	}
	return out
}

// otherwise returns the different resources of the second server.
func (s *storm) otherwise() []types.Resource {
	return []types.Resource{
		listenerTo(s.t, "shop", "routes"), routesOf("routes", route("/", "stable-3")),
		edsCluster("stable-0"), assignmentOf("stable-0", "10.9.9.9:80"),
		edsCluster("stable-3"), assignmentOf("stable-3", "10.9.9.9:80"),
	}
}

func (s *storm) publish(i int) {
	resources := s.stable()
	if i == 1 {
		resources = s.otherwise()
	}
	for guest := range s.guests[i] {
		name := fmt.Sprint("guest-", guest)
		resources = append(resources, edsCluster(name), assignmentOf(name, fmt.Sprintf("10.%d.0.1:80", i+1)))
	}
	s.has[i].set(resources...)
}

// step runs a random event, and counts it.
func (s *storm) step() {
	i := s.random.IntN(2)
	server := []*controlPlane{s.first, s.second}[i]
	switch n := s.random.IntN(1000); {
	case n < 3 && s.up[i]:
		server.kill()
		s.up[i] = false
		s.counts["outages"]++
	case n < 3:
		server.start()
		s.up[i] = true
		s.counts["returns"]++
	case n < 40: // let some time pass, in which lbd connects again
		s.names++
		s.pick(fmt.Sprintf("cluster=invented-%d&wait=%dms", s.names, s.random.IntN(200)))
		s.counts["pauses"]++
	case n < 240:
		guest := s.random.IntN(stormGuests)
		if s.guests[i][guest] = !s.guests[i][guest]; !s.guests[i][guest] {
			delete(s.guests[i], guest)
		}
		s.publish(i)
		s.counts["changes"]++
	case n < 440:
		for range s.random.IntN(20) {
			s.names++
			s.pick(fmt.Sprintf("cluster=invented-%d&wait=0", s.names))
			s.counts["invented names"]++
		}
	case n < 540:
		method := []string{"PUT", "DELETE"}[s.random.IntN(2)]
		do(s.t, method, s.url+fmt.Sprint("/v1/targets/unknown-", s.random.IntN(5)), "")
		s.counts["targets"]++
	default:
		s.pick(fmt.Sprintf("cluster=guest-%d&wait=0", s.random.IntN(stormGuests)))
		s.counts["picks of guests"]++
	}
}

func (s *storm) pick(query string) string {
	s.t.Helper()
	return picked(s.t, s.url, query)
}

// check checks that clusters and targets with all resources have not changed.
func (s *storm) check() {
	s.t.Helper()
	for i := range stableClusters {
		if got, want := s.pick(fmt.Sprint("cluster=stable-", i)), fmt.Sprintf("10.0.0.%d:80", i); got != want {
			s.t.Fatalf("stable-%d: picked %s, want %s, after %v", i, got, want, s.counts)
		}
	}
	for path, want := range map[string]string{"/": "10.0.0.0:80", "/one": "10.0.0.1:80"} {
		if got := s.pick("target=shop&path=" + path); got != want {
			s.t.Fatalf("%s of shop: picked %s, want %s, after %v", path, got, want, s.counts)
		}
	}
	s.counts["checks"]++
}

// unreachable stops the first server while callers pick unknown names.
func (s *storm) unreachable() {
	s.first.kill()
	eventually(s.t, "the second server", func() bool {
		s.names++
		s.pick(fmt.Sprintf("cluster=invented-%d&wait=0", s.names))
		s.check()
		for _, server := range xdsState(s.t, s.url, "").Servers {
			if server.Server == s.second.address && server.Connected {
				return true
			}
		}
		return false
	})
	for range 20 {
		s.check()
	}
	s.first.start()
}

// TestStorm: a target with all resources does not change because of another target, whatever happens
// to two management servers with different resources. LBD_STORM is the duration, such as 10m.
func TestStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("long: fails servers at random for seconds")
	}
	t.Parallel()
	lasts, seed := 4*time.Second, uint64(1)
	if long := os.Getenv("LBD_STORM"); long != "" {
		var err error
		if lasts, err = time.ParseDuration(long); err != nil {
			t.Fatal(err)
		}
		seed = uint64(time.Now().UnixNano())
	}
	s := &storm{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), counts: map[string]int{}, up: [2]bool{true, true},
		has: [2]*snapshots{newSnapshots(t), newSnapshots(t)}, guests: [2]map[int]bool{{}, {}},
	}
	s.publish(0)
	s.publish(1)
	s.first, s.second = newControlPlane(t, s.has[0]), newControlPlane(t, s.has[1])
	c := Config{
		Bootstrap: bootstrapOf(t, s.first, s.second), Data: t.TempDir(), Target: []string{"xds:///shop"},
		OnDemand: stableClusters + stormGuests, OnDemandUnknown: 50,
	}
	t.Run("before the restart", func(t *testing.T) {
		s.t, s.url = t, startFollowing(t, c)
		s.check()
		s.unreachable()
		for began := time.Now(); time.Since(began) < lasts; {
			s.step()
			s.check()
		}
		t.Logf("seed %d, in %v: %v", seed, lasts, s.counts)
		if s.up[0] {
			s.first.kill()
			s.up[0] = false
		}
		s.pick("cluster=typo&wait=0")
		eventually(t, "all on disk", func() bool { return kept(t, c.Data) >= 2*stableClusters+2 })
		s.check()
	})
	t.Run("after it, without the first server", func(t *testing.T) {
		if !s.up[1] {
			s.second.start()
		}
		s.t, s.url = t, startFollowing(t, c)
		// Resources of the second server replace those of the first (gRFC A71), which this
		// daemon has not reached; the others stay.
		for _, name := range []string{"stable-1", "stable-2", "stable-4"} {
			for range 20 {
				s.pick("cluster=typo&wait=0")
				expect(t, http.StatusOK, "GET", s.url+"/pick?cluster="+name, "")
			}
		}
		if n := kept(t, c.Data); n < 2*stableClusters+2 {
			t.Errorf("%d resources are on disk", n)
		}
	})
}
