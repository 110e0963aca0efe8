package lrs_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/lrs"
)

// seconds is a back-off of 1 s, 2 s, 3 s …
func seconds(o *lrs.Options) {
	o.Backoff = func(retries int) time.Duration { return time.Duration(retries+1) * time.Second }
}

// A stream that fails is opened again with back-off; the status has the error.
func TestStreamErrors(t *testing.T) {
	interval := func(d *durationpb.Duration) func(*serverStream) {
		return func(s *serverStream) { _ = s.stream.Send(&lrsv3.LoadStatsResponse{LoadReportingInterval: d}) }
	}
	tests := []struct {
		name string
		do   func(*serverStream)
		want string
	}{
		{"no interval", interval(nil), "load_reporting_interval: proto:\u00a0invalid nil Duration"},
		{"interval 0", interval(durationpb.New(0)), "load_reporting_interval is 0s: it must be above 0"},
		{"interval below 0", interval(durationpb.New(-time.Second)), "load_reporting_interval is -1s: it must be above 0"},
		{"no interval at all", interval(&durationpb.Duration{Seconds: 1, Nanos: -1}), "load_reporting_interval: proto:\u00a0duration"},
		{"an error", func(s *serverStream) { s.end <- status.Error(codes.Unimplemented, "no LRS here") }, "stream: rpc error: code = Unimplemented desc = no LRS here"},
		{"an end", func(s *serverStream) { s.end <- nil }, "the server ended the stream"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			runTest(t, func(k *kit) {
				k.Report(k.at("one"), keys("a")...)
				k.counts.add("a", 1, 1, 0)
				for _, wait := range []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second} {
					if wait > 0 {
						pass(wait - 1)
						if k.stream("one") != nil {
							k.Fatalf("a new stream before %v have passed", wait)
						}
						pass(1)
					}
					s := k.stream("one")
					if s == nil {
						k.Fatalf("no new stream after %v", wait)
					}
					tt.do(s)
					synctest.Wait()
					got := k.status()
					if got.Connected || got.Err == nil || got.ErrAt != time.Now() ||
						!strings.HasPrefix(strings.ReplaceAll(got.Err.Error(), "proto: ", "proto:\u00a0"), tt.want) {
						k.Fatalf("status %+v, want error %q", got, tt.want)
					}
				}
				if n := strings.Count(k.log.String(), "cannot report load"); n != 1 {
					k.Errorf("the same error was logged %d times", n)
				}

				pass(4 * time.Second)
				s := k.answered("one", 10*time.Second)
				pass(10 * time.Second)
				s.expect("a/a-eds 20s rzs 1/1/0/0")
				if got := k.status(); !got.Connected || got.Err == nil {
					k.Errorf("status %+v", got)
				}

				// A response resets the back-off.
				s.end <- status.Error(codes.Unavailable, "restart")
				s = k.stream("one")
				if s == nil {
					k.Fatal("no new stream at once")
				}
				tt.do(s)
				pass(time.Second)
				if k.stream("one") == nil {
					k.Error("no new stream after a second")
				}
			}, seconds)
		})
	}
}

// There is at most one stream per second.
func TestServerEndsStreams(t *testing.T) {
	runTest(t, func(k *kit) {
		k.Report(k.at("one"), keys("a")...)
		for range 5 {
			s := k.answered("one", time.Minute)
			pass(400 * time.Millisecond)
			s.end <- nil
			pass(600*time.Millisecond - 1)
			if k.stream("one") != nil {
				k.Fatal("a new stream within a second of the last")
			}
			pass(1)
		}
		if k.stream("one") == nil {
			k.Error("no new stream")
		}
	}, seconds)
}

// An invalid response ends the stream.
func TestInvalidResponse(t *testing.T) {
	runTest(t, func(k *kit) {
		k.Report(k.at("one"), keys("a")...)
		s := k.answered("one", 10*time.Second)
		k.counts.add("a", 1, 1, 0)
		pass(5 * time.Second)
		s.send(&lrsv3.LoadStatsResponse{LoadReportingInterval: durationpb.New(0)})
		s.expect("end")
		s = k.answered("one", 10*time.Second)
		pass(10 * time.Second)
		s.expect("a/a-eds 15s rzs 1/1/0/0")
	})
}

// Load is kept while the server is unreachable.
func TestOutage(t *testing.T) {
	runTest(t, func(k *kit) {
		k.Report(k.at("one"), keys("a", "b")...)
		s := k.answered("one", 10*time.Second)
		k.counts.add("a", 3, 1, 1)
		pass(10 * time.Second)
		s.expect("a/a-eds 10s rzs 3/1/1/1")
		k.counts.add("a", 1, 1, 0)
		k.stop("one")
		pass(time.Minute)
		if got := k.status(); got.Connected || status.Code(errors.Unwrap(got.Err)) != codes.Unavailable {
			k.Errorf("status %+v", got)
		}
		k.counts.drop("b", 4)
		k.Stop(keys("b")...) // its last load is kept
		k.start("one")
		pass(30 * time.Second)
		s = k.answered("one", 10*time.Second)
		s.expect()
		k.counts.add("a", 0, 1, 0)
		pass(10 * time.Second)
		s.expect("a/a-eds 1m40s rzs 1/2/0/0; b/b-eds 1m40s dropped=4 x=4")
		pass(10 * time.Second)
		s.expect("")
	}, func(o *lrs.Options) { o.Backoff = func(int) time.Duration { return time.Second } })
}

// A server without clusters ends without a wait.
func TestStopDuringOutage(t *testing.T) {
	runTest(t, func(k *kit) {
		k.stop("one")
		k.Report(k.at("one"), keys("a")...)
		pass(time.Second / 2) // in the back-off
		k.Stop(keys("a")...)
		synctest.Wait()
		if all := k.Status(); len(all) != 0 || k.counts.open() != 0 {
			k.Errorf("status %+v", all)
		}
	})
}

// An error of Dial is in the status.
func TestDialFails(t *testing.T) {
	bad := errors.New("no such credentials")
	runTest(t, func(k *kit) {
		k.Report(k.at("one"), keys("a")...)
		pass(time.Hour)
		if got := k.status(); !errors.Is(got.Err, bad) || got.Connected {
			k.Errorf("status %+v", got)
		}
	}, func(o *lrs.Options) {
		o.Dial = func(bootstrap.Server) (*grpc.ClientConn, error) { return nil, bad }
	})
}

// After random events, the reports to all servers add up to the load.
func TestReportsAddUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// The bubble's failures are the check's.
		draws := rapid.SliceOfN(rapid.IntRange(0, 1<<20), 30, 60).Draw(rt, "draws")
		synctest.Test(t, func(t *testing.T) { story(t, draws) })
		if t.Failed() {
			rt.FailNow()
		}
	})
}

// story plays what draws say with two servers and three clusters.
func story(t *testing.T, draws []int) {
	k := newKit(t, seconds)
	names, servers := []string{"a", "b", "c"}, []string{"one", "two"}
	var reported [2]map[string][3]uint64 // by server
	var current [2]*serverStream
	added := map[string][3]uint64{}
	for i := range reported {
		reported[i] = map[string][3]uint64{}
		k.start(servers[i])
	}
	listen := func() {
		synctest.Wait()
		for i := range servers {
			if s := current[i]; s != nil {
				for r := range drain(s) {
					for _, c := range r.GetClusterStats() {
						sum := reported[i][c.GetClusterName()]
						sum[2] += c.GetTotalDroppedRequests()
						for _, l := range c.GetUpstreamLocalityStats() {
							sum[0] += l.GetTotalIssuedRequests()
							sum[1] += l.GetTotalSuccessfulRequests()
						}
						reported[i][c.GetClusterName()] = sum
					}
				}
			}
		}
	}
	answer := func(i int) {
		if k.servers[servers[i]] == nil {
			return
		}
		for s := k.stream(servers[i]); s != nil; s = k.stream(servers[i]) {
			current[i] = s
			_ = s.stream.Send(&lrsv3.LoadStatsResponse{LoadReportingInterval: durationpb.New(3 * time.Second)})
		}
	}
	for _, d := range draws {
		name, i := names[d/10%3], d/30%2
		switch d % 10 {
		case 0, 1, 2:
			if n := d / 60 % 5; k.counts.isOpen(name) {
				k.counts.add(name, n, n, 0)
				k.counts.drop(name, 1)
				sum := added[name]
				added[name] = [3]uint64{sum[0] + uint64(n), sum[1] + uint64(n), sum[2] + 1}
			}
		case 3, 4:
			k.Report(k.at(servers[i]), keys(name)...)
		case 5:
			k.Stop(keys(name)...)
		case 6:
			if k.servers[servers[i]] != nil {
				listen()
				k.stop(servers[i])
			} else {
				k.start(servers[i])
			}
		case 7:
			if current[i] != nil {
				listen()
				select {
				case current[i].end <- errors.New("an end"):
				default:
				}
			}
		case 8:
			pass(time.Duration(d/60%7000) * time.Millisecond)
		case 9:
			answer(i)
		}
		listen()
	}
	for i := range servers { // all comes right in the end
		if k.servers[servers[i]] == nil {
			k.start(servers[i])
		}
	}
	k.Stop(keys(names...)...)
	for range 30 {
		pass(time.Minute)
		answer(0)
		answer(1)
		listen()
	}
	for _, name := range names {
		sum := reported[0][name]
		for j, n := range reported[1][name] {
			sum[j] += n
		}
		if sum != added[name] {
			t.Errorf("cluster %s: reported %v, want %v (issued, succeeded, dropped)", name, sum, added[name])
		}
	}
	if len(k.Status()) != 0 {
		t.Errorf("status %+v", k.Status())
	}
}
