package lb_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestTrace: what a pick writes down of its way. Localities a and b are of
// priority 0, c is of priority 1; each has two endpoints. Draws are all in the
// middle.
func TestTrace(t *testing.T) {
	ls := []*resource.LocalityEndpoints{locality("a", 0, 1, 2), locality("b", 0, 3, 2), locality("c", 1, 1, 2)}
	allUp := func(b *switchboard) { b.set(true, "a-0:80", "a-1:80", "b-0:80", "b-1:80", "c-0:80", "c-1:80") }
	failedOver := func(b *switchboard) {
		b.set(false, "a-0:80", "a-1:80", "b-0:80", "b-1:80")
		b.set(true, "c-0:80", "c-1:80")
	}
	quarter := []resource.Drop{{Category: "throttle", PerMillion: 250_000}}
	tests := []struct {
		name    string
		drops   []resource.Drop
		max     uint32
		board   func(*switchboard)
		cluster string
		exclude []string
		hold    bool
		want    []string
	}{
		{
			name: "ok", max: 5, board: allUp,
			want: []string{
				"cluster orders", "breaker 0 of 5", "priority 0 READY", "locality of a:1 b:3 b", "round_robin 1 of 2 b-1:80",
			},
		},
		{
			name: "ok, with drops that do not", drops: quarter, max: 5, board: allUp,
			want: []string{
				"cluster orders", "drop throttle 250000 drew 500000", "breaker 0 of 5", "priority 0 READY",
				"locality of a:1 b:3 b", "round_robin 1 of 2 b-1:80",
			},
		},
		{
			name: "dropped", drops: append(quarter, resource.Drop{Category: "shed", PerMillion: 500_001}, resource.Drop{Category: "never"}), max: 5, board: allUp,
			want: []string{"cluster orders", "drop throttle 250000 drew 500000", "drop shed 500001 drew 500000: dropped"},
		},
		{name: "broken", board: allUp, want: []string{"cluster orders", "breaker 0 of 0: refused"}},
		{name: "broken for one that holds", board: allUp, hold: true, want: []string{"cluster orders", "breaker 0 of 0: refused"}},
		{
			name: "failed over", max: 5, board: failedOver,
			want: []string{
				"cluster orders", "breaker 0 of 5",
				"priority 1 READY, not 0 TRANSIENT_FAILURE: connect to a-0:80: connection refused",
				"locality of c:1 c", "round_robin 1 of 2 c-1:80",
			},
		},
		{
			name: "excluded: another endpoint's turn", max: 5, board: allUp, exclude: []string{"b-1:80"},
			want: []string{
				"cluster orders", "breaker 0 of 5", "priority 0 READY", "locality of a:1 b:3 b", "round_robin 0 of 2 without 1 b-0:80",
			},
		},
		{
			name: "excluded: another locality's turn", max: 5, board: allUp, exclude: []string{"b-0:80", "b-1:80"},
			want: []string{
				"cluster orders", "breaker 0 of 5", "priority 0 READY", "locality of a:1 b:3 b", "round_robin -1 of 2 without 2",
				"locality of a:1 a", "round_robin 1 of 2 a-1:80",
			},
		},
		{
			name: "excluded: nothing is left of the priority", max: 5, board: allUp,
			exclude: []string{"a-0:80", "a-1:80", "b-0:80", "b-1:80"},
			want: []string{
				"cluster orders", "breaker 0 of 5", "priority 0 READY", "locality of a:1 b:3 b", "round_robin -1 of 2 without 2",
				"locality of a:1 a", "round_robin -1 of 2 without 2",
			},
		},
		{name: "queued", max: 5, board: func(*switchboard) {}, want: []string{"cluster orders", "breaker 0 of 5", "priority 0 CONNECTING", "queue"}},
		{
			name: "all failed", max: 5, board: func(b *switchboard) { failedOver(b); b.set(false, "c-0:80", "c-1:80") },
			want: []string{
				"cluster orders", "breaker 0 of 5",
				"priority 1 TRANSIENT_FAILURE, not 0 TRANSIENT_FAILURE: connect to a-0:80: connection refused",
				"locality of c:1 c", "failure connect to c-0:80: connection refused",
			},
		},
		{name: "unknown cluster", max: 5, board: allUp, cluster: "x", want: []string{"cluster x unknown"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				board := newSwitchboard()
				c := newChannel(t, board, func(o *lb.Options) { o.Draw = half })
				offer(t, c, config(tt.drops, tt.max, ls...))
				synctest.Wait()
				tt.board(board)
				synctest.Wait()
				call := newCall()
				call.Trace, call.Exclude, call.Hold = new(policy.Trace), tt.exclude, tt.hold
				if tt.cluster != "" {
					call.Cluster = tt.cluster
				}
				_ = c.Pick(call, 0) // the result is in the steps
				if got, want := strings.Join(steps(call.Trace), "\n"), strings.Join(tt.want, "\n"); got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
				call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
				call.Again()
				if len(call.Trace.Steps) != 0 {
					t.Error("a second pick does not begin again")
				}
			})
		})
	}
}

// steps returns each step in words.
func steps(trace *policy.Trace) []string {
	var out []string
	for _, step := range trace.Steps {
		var w string
		switch s := step.(type) {
		case policy.ClusterStep:
			w = "cluster " + s.Cluster
			if !s.Found {
				w += " unknown"
			}
		case policy.DropStep:
			w = fmt.Sprintf("drop %s %d drew %d", s.Category, s.PerMillion, s.Draw)
			if s.Dropped {
				w += ": dropped"
			}
		case policy.BreakerStep:
			w = fmt.Sprintf("breaker %d of %d", s.InFlight, s.Max)
			if s.Refused {
				w += ": refused"
			}
		case policy.PriorityStep:
			w = fmt.Sprintf("priority %d %v", s.Priority, s.State)
			for _, p := range s.PassedOver {
				w += fmt.Sprintf(", not %d %s", p.Priority, p.Why)
			}
		case policy.LeafStep:
			w = fmt.Sprintf("leaf %s %v", s.Leaf, s.State)
			for _, p := range s.PassedOver {
				w += fmt.Sprintf(", not %s %s", p.Name, p.Why)
			}
		case policy.LocalityStep:
			w = "locality of"
			for _, c := range s.Candidates {
				w += fmt.Sprintf(" %s:%d", c.Locality.Zone, c.Weight)
			}
			w += " " + s.Candidates[s.Chosen].Locality.Zone
		case policy.EndpointStep:
			w = fmt.Sprintf("%s %d of %d", s.Policy, s.Index, s.Rotation)
			if s.Excluded > 0 {
				w += fmt.Sprintf(" without %d", s.Excluded)
			}
			if s.Endpoint != nil {
				w += " " + s.Endpoint.Addresses[0]
			}
		case policy.FailureStep:
			w = "failure " + s.Err.Error()
		case policy.QueueStep:
			w = "queue"
		default:
			w = fmt.Sprintf("%#v", s)
		}
		out = append(out, w)
	}
	return out
}
