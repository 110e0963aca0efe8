package lrs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lbd-dev/lbd/xds/resource"
)

func TestFirstRequest(t *testing.T) {
	runTest(t, func(k *kit) {
		k.Report(k.at("one"), keys("a")...)
		k.counts.add("a", 1, 1, 0)
		pass(time.Hour) // no report before the first response
		s := <-k.servers["one"].streams
		first := <-s.requests
		want := proto.CloneOf(node)
		want.ClientFeatures = []string{"a", "b", "envoy.lrs.supports_send_all_clusters"}
		if !proto.Equal(first.GetNode(), want) || len(first.GetClusterStats()) != 0 {
			k.Errorf("the first request is %v", first)
		}
		s.t = k
		s.expect()
		if got := k.status(); got.Connected || got.URI != "passthrough:///one" || got.Err != nil || got.Clusters != 1 {
			k.Errorf("status %+v", got)
		}
		if len(node.GetClientFeatures()) != 2 {
			k.Error("the node of the bootstrap was changed")
		}
	})
}

// Each server with clusters has one stream.
func TestStreams(t *testing.T) {
	runTest(t, func(k *kit) {
		k.start("two")
		k.Report(k.at("one")) // nothing
		if k.stream("one") != nil || len(k.Status()) != 0 {
			k.Error("a stream without clusters")
		}
		k.Report(k.at("one"), keys("a")...)
		k.Report(k.at("two"), keys("b")...)
		one, two := k.answered("one", 10*time.Second), k.answered("two", 20*time.Second)
		k.Report(k.at("one"), keys("a", "c")...) // more of them, and one again
		if k.stream("one") != nil {
			k.Error("a second stream to a server")
		}
		if all := k.Status(); len(all) != 2 || all[0].URI != "passthrough:///one" || all[0].Clusters != 2 || all[1].Interval != 20*time.Second {
			k.Errorf("status %+v", all)
		}
		for _, name := range []string{"a", "b", "c"} {
			k.counts.add(name, 1, 1, 0)
		}
		pass(20 * time.Second)
		one.expect("a/a-eds 10s rzs 1/1/0/0; c/c-eds 10s rzs 1/1/0/0", "")
		two.expect("b/b-eds 20s rzs 1/1/0/0")

		// Stopped clusters without load are removed; the stream ends with the last.
		k.Stop(keys("a", "a", "x")...)
		one.expect()
		k.Stop(keys("c")...)
		one.expect("end")
		if all := k.Status(); len(all) != 1 || all[0].URI != "passthrough:///two" || k.counts.open() != 1 {
			k.Errorf("status %+v, %d clusters are counted", all, k.counts.open())
		}

		// A new report starts from zero.
		k.counts.add("a", 7, 7, 0)
		k.Report(k.at("one"), keys("a")...)
		one = k.answered("one", 10*time.Second)
		k.counts.add("a", 1, 1, 0)
		pass(10 * time.Second)
		one.expect("a/a-eds 10s rzs 1/1/0/0")
	})
}

// The last load of a cluster is reported before its counters are closed.
func TestLastLoad(t *testing.T) {
	runTest(t, func(k *kit) {
		k.Report(k.at("one"), keys("a", "b", "c")...)
		s := k.answered("one", 10*time.Second)
		k.counts.add("a", 2, 1, 0)
		k.counts.add("b", 1, 1, 0)
		k.Stop(keys("a")...)
		s.expect() // with the next report
		pass(10 * time.Second)
		s.expect("a/a-eds 10s rzs 2/1/0/1; b/b-eds 10s rzs 1/1/0/0")
		if k.counts.open() != 3 {
			k.Error("the counters are closed while a request is in progress")
		}
		k.counts.add("a", 0, 1, 0)
		pass(10 * time.Second)
		s.expect("a/a-eds 10s rzs 0/1/0/0")
		if got := k.status(); got.Clusters != 2 || k.counts.open() != 2 {
			k.Errorf("%d clusters are reported, %d counted; want 2", got.Clusters, k.counts.open())
		}

		// A cluster that is reported again continues.
		k.counts.add("b", 1, 1, 0)
		k.Stop(keys("b")...)
		k.Report(k.at("one"), keys("b")...)
		k.Stop(keys("c")...)
		pass(10 * time.Second)
		s.expect("b/b-eds 10s rzs 1/1/0/0")
		pass(10 * time.Second)
		s.expect("")

		// The last load of the last cluster is reported at once. The stream ends when no request
		// is in progress.
		k.counts.add("b", 3, 2, 0)
		pass(time.Second)
		k.Stop(keys("b")...)
		s.expect("b/b-eds 1s rzs 3/2/0/1")
		k.counts.add("b", 0, 0, 1)
		pass(9 * time.Second)
		s.expect("b/b-eds 9s rzs 0/0/1/0", "end")
		if len(k.Status()) != 0 || k.counts.open() != 0 {
			k.Errorf("status %+v", k.Status())
		}
	})
}

// TestUnrequestedLastLoad is dropped after the first response.
func TestUnrequestedLastLoad(t *testing.T) {
	runTest(t, func(k *kit) {
		k.Report(k.at("one"), keys("a", "b")...)
		s := k.stream("one")
		k.counts.add("a", 1, 1, 0)
		k.Stop(keys("a")...)
		pass(time.Minute)
		if k.counts.open() != 2 {
			k.Error("load was dropped before the first response")
		}
		s.answer(10*time.Second, "b")
		pass(10 * time.Second)
		s.expect("")
		if k.counts.open() != 1 {
			k.Error("unrequested load is kept")
		}
	})
}

// At most 1000 stopped clusters with load are kept for an unreachable server.
func TestStoppedLimit(t *testing.T) {
	runTest(t, func(k *kit) {
		k.stop("one")
		for i := range 3000 {
			name := fmt.Sprintf("%04d", i)
			k.Report(k.at("one"), keys(name)...)
			if i%2 == 0 {
				k.counts.add(name, 1, 1, 0)
			}
			k.Stop(keys(name)...)
		}
		if n := k.counts.open(); n != 1000 {
			k.Errorf("%d clusters are kept", n)
		}
		k.start("one")
		pass(5 * time.Minute)
		s := k.answered("one", time.Second)
		pass(time.Second)
		stats := (<-s.requests).GetClusterStats()
		if len(stats) != 1000 || stats[0].GetClusterName() != "1000" || stats[999].GetClusterName() != "2998" {
			k.Errorf("%d reported, of %v to %v", len(stats), stats[0], stats[len(stats)-1])
		}
		s.expect("end")
	})
}

// Another server gets the load that was not sent.
func TestAnotherServer(t *testing.T) {
	runTest(t, func(k *kit) {
		k.start("two")
		k.Report(k.at("one"), keys("a", "b")...)
		one := k.answered("one", 10*time.Second)
		k.counts.add("a", 2, 1, 0)
		pass(10 * time.Second)
		one.expect("a/a-eds 10s rzs 2/1/0/1")
		k.counts.add("a", 1, 2, 0)
		k.counts.add("b", 1, 1, 0)
		k.Report(k.at("two"), keys("a")...)
		two := k.answered("two", 10*time.Second)
		pass(10 * time.Second)
		one.expect("b/b-eds 10s rzs 1/1/0/0")
		two.expect("a/a-eds 10s rzs 1/2/0/0")
		k.Report(k.at("two"), keys("b")...)
		one.expect("end")
		if got := k.status(); got.URI != "passthrough:///two" || got.Clusters != 2 {
			k.Errorf("status %+v", got)
		}
	})
}

// Another server takes over when the report in flight is sent or has failed.
func TestAnotherServerDuringReport(t *testing.T) {
	// One such report fills the buffers of a stream: the next one blocks.
	long := resource.ServiceKey{Cluster: "a", EDSServiceName: strings.Repeat("s", 3<<20)}
	for _, taken := range []bool{true, false} {
		t.Run(fmt.Sprintf("taken=%t", taken), func(t *testing.T) {
			runTest(t, func(k *kit) {
				k.start("two")
				k.Report(k.at("one"), long)
				one := k.answered("one", 10*time.Second)
				one.paused.Store(true)
				for i := range 3 {
					k.counts.addTo(long, 1<<i, 0, 0)
					pass(10 * time.Second)
				}
				k.Report(k.at("two"), long)
				two := k.answered("two", 10*time.Second)
				k.counts.addTo(long, 8, 0, 0)
				pass(10 * time.Second)
				two.expect("")
				if taken {
					close(one.resume)
				} else {
					one.end <- errors.New("no more")
				}
				pass(10 * time.Second)
				issued := func(s *serverStream) (out []uint64) {
					for r := range drain(s) {
						for _, c := range r.GetClusterStats() {
							out = append(out, c.GetUpstreamLocalityStats()[0].GetTotalIssuedRequests())
						}
					}
					return out
				}
				got := fmt.Sprint(issued(one), issued(two))
				if want := map[bool]string{true: "[1 2 4] [8]", false: "[1] [12]"}[taken]; got != want {
					k.Errorf("issued %v, want %v", got, want)
				}
			})
		})
	}
}

// Close sends the last reports, within a second.
func TestClose(t *testing.T) {
	tests := []struct {
		name string
		do   func(k *kit) *serverStream
		want []string
		took time.Duration
	}{
		{"responsive server", func(k *kit) *serverStream { return k.answered("one", time.Hour) }, []string{"a/a-eds 5s rzs 1/1/0/0", "end"}, 0},
		{"server that does not end the stream", func(k *kit) *serverStream {
			s := k.answered("one", time.Hour)
			s.staysOpen = true
			return s
		}, []string{"a/a-eds 5s rzs 1/1/0/0", "end"}, time.Second},
		{"server without a response", func(k *kit) *serverStream { return k.stream("one") }, []string{"end"}, time.Second},
		{"late response", func(k *kit) *serverStream {
			s := k.stream("one")
			time.AfterFunc(5*time.Second+300*time.Millisecond, func() {
				_ = s.stream.Send(&lrsv3.LoadStatsResponse{LoadReportingInterval: durationpb.New(time.Hour)})
			})
			return s
		}, []string{"a/a-eds 5.3s rzs 1/1/0/0", "end"}, 300 * time.Millisecond},
		{"unreachable server", func(k *kit) *serverStream {
			s := k.answered("one", time.Hour)
			k.stop("one")
			return s
		}, []string{"end"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			runTest(t, func(k *kit) {
				k.Report(k.at("one"), keys("a", "b")...)
				s := tt.do(k)
				k.counts.add("a", 1, 1, 0)
				pass(5 * time.Second)
				start := time.Now()
				k.Close()
				if took := time.Since(start); took != tt.took {
					k.Errorf("took %v, want %v", took, tt.took)
				}
				s.expect(tt.want...)
				k.Close() // again
				k.Report(k.at("one"), keys("c")...)
				k.Stop(keys("a")...)
				if len(k.Status()) != 0 {
					k.Errorf("status %+v", k.Status())
				}
			})
		})
	}
	t.Run("no load and no response", func(t *testing.T) {
		runTest(t, func(k *kit) {
			k.Report(k.at("one"), keys("a")...)
			s := k.stream("one")
			start := time.Now()
			k.Close()
			if time.Since(start) != 0 {
				k.Errorf("took %v", time.Since(start))
			}
			s.expect("end")
		})
	})
}
