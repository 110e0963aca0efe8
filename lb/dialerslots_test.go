package lb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestTurns: what waits is taken in turn by cluster of a channel, in turn by
// batch, an endpoint's next address first, else in order.
func TestTurns(t *testing.T) {
	channels := map[string]*Channel{"one": new(Channel), "two": new(Channel)}
	tests := []struct {
		name    string
		entries string // NAME:CHANNEL/CLUSTER/BATCH; "+" follows if the endpoint was dialed before
		over    string // those that are canceled
		want    string
	}{
		{"one batch: in order", "a:one/x/1 b:one/x/1 c:one/x/1", "", "a b c"},
		{"two channels", "a1:one/x/1 a2:one/x/1 a3:one/x/1 b1:two/x/1 b2:two/x/1", "", "a1 b1 a2 b2 a3"},
		{"two clusters of a channel", "a1:one/x/1 a2:one/x/1 b1:one/y/1", "", "a1 b1 a2"},
		{
			"two priorities of a cluster have as many turns as one of another's",
			"a1:one/x/1 a2:one/x/1 b1:one/x/2 b2:one/x/2 c1:two/x/1 c2:two/x/1", "", "a1 c1 b1 c2 a2 b2",
		},
		{
			"an endpoint's next address goes before what its batch has not begun, and before nothing else",
			"a1:one/x/1 a2:one/x/1 b1:one/x/2 a0:one/x/1+", "", "a0 b1 a1 a2",
		},
		{"canceled dials take no turn", "a1:one/x/1 a2:one/x/1 b1:one/x/2 c1:two/x/1 c2:two/x/1", "a1 b1 c1", "a2 c2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := &newSlots(MaxDials).attempts
			var got []string
			for e := range strings.FieldsSeq(tt.entries) {
				name, at, _ := strings.Cut(e, ":")
				at, begun := strings.CutSuffix(at, "+")
				part := strings.Split(at, "/")
				q.add(dialGroup{channels[part[0]], part[1], uint64(part[2][0])}, dial{
					run:  func(time.Duration) bool { got = append(got, name); return false },
					over: func() bool { return slices.Contains(strings.Fields(tt.over), name) },
				}, begun)
			}
			for {
				d, ok := q.take()
				if !ok {
					break
				}
				d.run(0)
				q.release(d.queue)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("took %v, want %s", got, tt.want)
			}
			if len(q.clusters) != 0 || len(q.ring) != 0 || q.busy != 0 {
				t.Errorf("left behind: %+v", q)
			}
		})
	}
}

// network is a net in which an address that begins with "hole" does not answer,
// and any other, for as long as it is not down, at once.
type network struct {
	mu     sync.Mutex
	down   map[string]bool
	silent string // prefix of addresses that turned into holes
	dialed map[string]int
}

func newNetwork() *network {
	return &network{down: map[string]bool{}, silent: "hole", dialed: map[string]int{}}
}

func (n *network) connect(ctx context.Context, address string) error {
	n.mu.Lock()
	n.dialed[address]++
	down, silent := n.down[address], n.silent
	n.mu.Unlock()
	if strings.HasPrefix(address, "hole") || strings.HasPrefix(address, silent) {
		<-ctx.Done()
		return ctx.Err()
	}
	if down {
		return errors.New("refused")
	}
	return nil
}

func (n *network) count(address string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dialed[address]
}

func (n *network) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// dialed is a channel on a Dialer.
func dialed(t *testing.T, d *Dialer, mode resource.ConnectMode) *Channel {
	c := NewChannel(Options{
		Registry: Policies(), Counters: policy.NewCounters(), Draw: rand.Uint64,
		Connectors: d.Connectors(mode),
	})
	t.Cleanup(c.Close)
	return c
}

func dialerOn(t *testing.T, n *network) *Dialer {
	d := NewDialer(nil, overload.Budget{}, nil, nil)
	d.connect = pipe(n.connect)
	t.Cleanup(d.Close)
	return d
}

// numbered names n endpoints, each with more addresses besides.
func numbered(n int, name string, more ...string) []*resource.Endpoint {
	es := make([]*resource.Endpoint, n)
	for i := range es {
		es[i] = &resource.Endpoint{Addresses: []string{fmt.Sprintf("%s%d:1", name, i)}, Weight: 1}
		for _, m := range more {
			es[i].Addresses = append(es[i].Addresses, fmt.Sprintf("%s%d:1", m, i))
		}
	}
	return es
}

// clusters is a config of clusters, each with its priorities.
func clusters(of map[string][][]*resource.Endpoint) *resource.Config {
	c := &resource.Config{Target: "xds:///t", Clusters: few.Of(map[string]*resource.ClusterConfig{})}
	for name, priorities := range of {
		a := &resource.Assignment{Name: name}
		for i, es := range priorities {
			a.Localities = append(a.Localities, &resource.LocalityEndpoints{Priority: uint32(i), Weight: 1, Endpoints: es})
		}
		c.Roots = append(c.Roots, name)
		c.Clusters.Set(name, &resource.ClusterConfig{Cluster: resource.DefaultCluster(name), Assignment: a})
	}
	return c
}

func cluster(name string, priorities ...[]*resource.Endpoint) *resource.Config {
	return clusters(map[string][][]*resource.Endpoint{name: priorities})
}

func send(t *testing.T, c *Channel, config *resource.Config) {
	t.Helper()
	noError(t, c.Offer(config).Wait(t.Context()))
}

// answers is how long it takes from now on until a pick of a cluster is answered
// with want.
func answers(t *testing.T, c *Channel, cluster, want string) time.Duration {
	t.Helper()
	start := time.Now()
	call := &policy.Call{Context: t.Context(), Cluster: cluster, WaitForReady: true}
	if err := c.Pick(call, time.Hour); err != nil || call.Address != want {
		t.Errorf("picked %q, %v; want %s", call.Address, err, want)
	}
	return time.Since(start)
}

// TestFailoverFromBlackHoles: however many endpoints of priority 0 do not answer,
// those of the next that do are used when the init timer ends.
func TestFailoverFromBlackHoles(t *testing.T) {
	const initTimer = 10 * time.Second
	for _, holes := range []int{1, 50, 200, 600, 10_000} {
		for _, tt := range []struct {
			name       string
			priorities [][]*resource.Endpoint
			want       string
			within     time.Duration
		}{
			{"priority 1", [][]*resource.Endpoint{numbered(holes, "hole"), numbered(1, "good")}, "good0:1", initTimer + BusyTimeout},
			{
				"priority 1 at its third address",
				[][]*resource.Endpoint{numbered(holes, "hole"), numbered(1, "hole-a", "hole-b", "good")},
				"good0:1", initTimer + 3*BusyTimeout,
			},
			{
				"priority 1 after endpoints of three addresses",
				[][]*resource.Endpoint{numbered(holes, "hole-a", "hole-b", "hole-c"), numbered(1, "good")},
				"good0:1", initTimer + BusyTimeout,
			},
			{
				"priority 2",
				[][]*resource.Endpoint{numbered(holes, "hole"), numbered(holes, "hole-b"), numbered(1, "good")},
				"good0:1", 2*initTimer + BusyTimeout,
			},
		} {
			t.Run(fmt.Sprint(tt.name, " after ", holes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := dialed(t, dialerOn(t, newNetwork()), resource.ConnectTCP)
					send(t, c, cluster("c", tt.priorities...))
					if took := answers(t, c, "c", tt.want); took > tt.within {
						t.Errorf("answered after %v, want within %v", took, tt.within)
					}
				})
			})
		}
	}
}

// TestBlackHolesOfOthers: a cluster's endpoints are dialed at once whatever another
// cluster, of another tree, has waiting; with two such or more in BusyTimeout. However
// many addresses their endpoints have, each dial has its own turn.
func TestBlackHolesOfOthers(t *testing.T) {
	for _, tt := range []struct {
		bad       int
		addresses int
		within    time.Duration
	}{{1, 1, 0}, {2, 1, BusyTimeout}, {10, 1, BusyTimeout}, {1, 4, 0}, {2, 4, BusyTimeout}, {10, 4, BusyTimeout}} {
		t.Run(fmt.Sprint(tt.bad, " of ", tt.addresses), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := dialerOn(t, newNetwork())
				for i := range tt.bad {
					name := fmt.Sprint("hole-", i, "-")
					more := []string{name + "b-", name + "c-", name + "d-"}[:tt.addresses-1]
					send(t, dialed(t, d, resource.ConnectTCP), cluster("bad", numbered(2000, name, more...)))
				}
				time.Sleep(time.Minute + time.Second)
				c := dialed(t, d, resource.ConnectTCP)
				send(t, c, cluster("good", numbered(1, "good")))
				if took := answers(t, c, "good", "good0:1"); took > tt.within {
					t.Errorf("answered after %v, want within %v", took, tt.within)
				}
			})
		})
	}
}

// TestBlackHolesWithFewSlots: that holds where the limit on descriptors allows few
// dials at a time, and so does NoticeTime.
func TestBlackHolesWithFewSlots(t *testing.T) {
	for _, dials := range []int{8, 32, 128} {
		for _, bad := range []int{1, 2, 10} {
			within := BusyTimeout * time.Duration(1+bad/dials) // each of the others may have a turn before
			if bad == 1 {
				within = 0
			}
			t.Run(fmt.Sprint(bad, " beside ", dials), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := newNetwork()
					d := NewDialer(nil, overload.Budget{Dials: dials}, nil, nil)
					t.Cleanup(d.Close)
					d.connect = pipe(n.connect)
					before := dialed(t, d, resource.ConnectTCP)
					send(t, before, cluster("c", numbered(1, "good"), numbered(1, "other")))
					answers(t, before, "c", "good0:1")
					for i := range bad {
						send(t, dialed(t, d, resource.ConnectTCP), cluster("bad", numbered(500, fmt.Sprint("hole-", i, "-"))))
					}
					time.Sleep(time.Minute + time.Second)
					c := dialed(t, d, resource.ConnectTCP)
					send(t, c, cluster("c", numbered(1, "good")))
					if took := answers(t, c, "c", "good0:1"); took > within {
						t.Errorf("answered after %v, want within %v", took, within)
					}
					n.set(func() { n.down["good0:1"] = true })
					time.Sleep(NoticeTime(resource.ConnectTCP))
					answers(t, before, "c", "other0:1")
				})
			})
		}
	}
}

// TestRechecksBesideBlackHoles: NoticeTime holds for a cluster while another has
// thousands of endpoints that do not answer attempts, or rechecks.
func TestRechecksBesideBlackHoles(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(*network)
	}{
		{"attempts", func(*network) {}},
		{"attempts and rechecks", func(n *network) { n.silent = "dark" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				d := dialerOn(t, n)
				c := dialed(t, d, resource.ConnectTCP)
				send(t, c, cluster("good", numbered(1, "good"), numbered(1, "other")))
				answers(t, c, "good", "good0:1")
				send(t, dialed(t, d, resource.ConnectTCP), cluster("bad", numbered(2000, "hole")))
				dark := dialed(t, d, resource.ConnectTCP)
				send(t, dark, cluster("dark", numbered(2000, "dark")))
				synctest.Wait()
				if ready := dark.Summary().Clusters.Get("dark").Priorities[0].Ready; ready != 2000 {
					t.Fatalf("%d are READY", ready)
				}
				n.set(func() { tt.set(n) })
				time.Sleep(time.Minute)
				n.set(func() { n.down["good0:1"] = true })
				time.Sleep(NoticeTime(resource.ConnectTCP))
				if took := answers(t, c, "good", "other0:1"); took != 0 {
					t.Errorf("noticed %v too late", took)
				}
			})
		})
	}
}

// TestAllBlackHolesHaveTheirTurn: none is left out.
func TestAllBlackHolesHaveTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		const holes = 2000
		c := dialed(t, dialerOn(t, n), resource.ConnectTCP)
		send(t, c, cluster("c", numbered(holes, "hole")))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		least, most := 1<<30, 0
		for i := range holes {
			times := n.count(fmt.Sprintf("hole%d:1", i))
			least, most = min(least, times), max(most, times)
		}
		if least < 2 {
			t.Errorf("one was dialed %d times in two minutes, another %d times", least, most)
		}
	})
}
