package weightedroundrobin

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/test/lbtest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestEvenly: turns are spread, not had in a row, and neighbours of one weight
// leave out different rounds.
func TestEvenly(t *testing.T) {
	tests := []struct {
		weights []float64
		want    []int // the first turns, from the second seat on
	}{
		{[]float64{1, 1, 1}, []int{1, 2, 0, 1, 2, 0}},
		{[]float64{2, 1}, []int{1, 0, 0, 1, 0, 0, 1, 0, 0}},
		{[]float64{4, 2, 2}, []int{1, 2, 0, 2, 0, 1, 0, 2, 0, 1, 0, 2}},
	}
	for _, tt := range tests {
		var sequence atomic.Uint32
		s := newScheduler(nil, tt.weights, WeightsFromEDS)
		var got []int
		for range tt.want {
			got = append(got, s.next(&sequence))
		}
		for i := range got {
			if got[i] != tt.want[i] {
				t.Errorf("weights %v: turns %v, want %v", tt.weights, got, tt.want)
				break
			}
		}
	}
}

// TestLightest: however light a seat is, it has a turn.
func TestLightest(t *testing.T) {
	var sequence atomic.Uint32
	s := newScheduler(nil, []float64{4e9, 1, 1}, WeightsFromEDS)
	var got [3]int
	const n = 4 * fullStride
	for range n {
		got[s.next(&sequence)]++
	}
	if got[1] != 4 || got[2] != 4 {
		t.Errorf("%d turns: %v, want 4 of each of the light ones", n, got)
	}
}

// TestTimer: weights are updated only while there is a load to make them of.
func TestTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := lbtest.NewTree(t, Builder())
		defer tree.Close()
		b := lbtest.As[*weightedRoundRobin](t, tree.Root())
		running := func(want bool) {
			t.Helper()
			tree.Batch(func() {
				if got := b.timer != nil; got != want {
					t.Errorf("after %v the timer runs: %t", tree.State(), got)
				}
			})
		}
		tree.Config(policy.Child{
			Config: Config{
				WeightUpdatePeriod: time.Second, WeightExpirationPeriod: time.Minute, BlackoutPeriod: 10 * time.Second,
			},
			Endpoints: []*resource.Endpoint{{Addresses: []string{"a"}}},
		})
		running(false)
		tree.Batch(func() { tree.SubConn("a").Says(connectivity.Ready, nil) })
		running(false)
		call := &policy.Call{Hold: true}
		if _, err := tree.Pick(call); err != nil {
			t.Fatal(err)
		}
		report := balancer.DoneInfo{ServerLoad: &orcav3.OrcaLoadReport{RpsFractional: 1, CpuUtilization: 1}}
		call.Held().Finish(policy.OutcomeSuccess, report)
		running(true)
		tree.Sleep(59 * time.Second)
		running(true)
		tree.Sleep(time.Second)
		running(false)
		call.Held().Finish(policy.OutcomeSuccess, report)
		running(true)
		tree.Batch(func() { tree.SubConn("a").Says(connectivity.Idle, nil) })
		running(false)
		tree.Close()
		call.Held().Finish(policy.OutcomeSuccess, report) // nothing is woken
		synctest.Wait()
		if b.timer != nil {
			t.Error("a closed policy's timer runs")
		}
	})
}

// TestReportsRace: loads are reported while weights are made of them, and the
// first report of many wakes once.
func TestReportsRace(t *testing.T) {
	var woken atomic.Int32
	l := load{wake: func() { woken.Add(1) }}
	info := balancer.DoneInfo{ServerLoad: &orcav3.OrcaLoadReport{RpsFractional: 3, CpuUtilization: 1}}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				l.Finish(policy.OutcomeSuccess, info)
			}
		})
	}
	for range 1000 {
		w := l.weight(time.Now(), Config{WeightExpirationPeriod: time.Hour})
		if w != 0 && w != 3 {
			t.Errorf("weight %g, want 3, or 0 before the first report", w)
		}
	}
	wg.Wait()
	if woken.Load() != 1 {
		t.Errorf("woken %d times, want once", woken.Load())
	}
}
