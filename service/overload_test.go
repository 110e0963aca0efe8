package service_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestTimeoutNamesShortage: a pick that times out names a shortage that may keep
// endpoints from connecting, and no other.
func TestTimeoutNamesShortage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := overload.NewMonitor(func() error { return nil })
		defer m.Close()
		connector := make(stuckConnector)
		s, stop := start(t, "", func(o *service.Options) {
			o.Overload, o.Connectors = m, map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: connector}
		})
		defer stop()
		defer close(connector)
		go func() {
			push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("stuck", 1)}))
		}()
		synctest.Wait()
		m.Report(overload.APIConnections, syscall.EMFILE)
		for _, tt := range []struct{ lacking, want overload.Resource }{{"", ""}, {overload.Descriptors, overload.Descriptors}} {
			if tt.lacking != "" {
				m.Report(tt.lacking, syscall.EMFILE)
			}
			_, err := pick(s, picks.Request{Cluster: "orders", Wait: time.Second})
			if code(err) != fault.PickTimeout || strings.Contains(err.Error(), overload.APIConnections.Text()) {
				t.Errorf("%v", err)
			}
			if tt.want != "" && !strings.HasSuffix(err.Error(), tt.want.Text()) {
				t.Errorf("%v, want %s", err, tt.want.Text())
			}
		}
	})
}

// TestShortageIsReported: what lbd itself lacks is an event when it begins and when it
// ends, and meanwhile a condition, a metric and a warning of a daemon that is ready.
func TestShortageIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := overload.NewMonitor(func() error { return nil })
		defer m.Close()
		s, stop := start(t, "", func(o *service.Options) { o.Overload = m })
		defer stop()
		metric := func(descriptors, localPorts int) {
			t.Helper()
			want := fmt.Sprintf(`
# HELP lbd_overload 1 if lbd itself lacks the resource: descriptors, memory, local ports, or room in a budget. Endpoints keep their states meanwhile.
# TYPE lbd_overload gauge
lbd_overload{resource="api_connections"} 0
lbd_overload{resource="buffers"} 0
lbd_overload{resource="descriptors"} %d
lbd_overload{resource="held_connections"} 0
lbd_overload{resource="local_ports"} %d
lbd_overload{resource="memory"} 0
lbd_overload{resource="system_descriptors"} 0
`, descriptors, localPorts)
			if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(want), "lbd_overload"); err != nil {
				t.Error(err)
			}
		}
		metric(0, 0)
		m.Report(overload.Descriptors, syscall.EMFILE)
		time.Sleep(time.Second)
		m.Report(overload.LocalPorts, syscall.EADDRNOTAVAIL)
		m.Report(overload.Descriptors, syscall.EMFILE)
		metric(1, 1)
		var conditions []string
		for _, c := range s.Conditions() {
			conditions = append(conditions, fmt.Sprint(c.Kind, " ", c.Subject, " ", time.Since(c.Since), " ", c.NotReady, ": ", c.Text))
			if c.Remedy == "" {
				t.Errorf("no remedy for %s", c.Subject)
			}
		}
		want := []string{
			"shortage descriptors 1s false: lbd has no file descriptor left (EMFILE): too many open files; endpoints keep their states, and lbd retries what failed",
			"shortage local_ports 0s false: no local port is left for connections to an endpoint (EADDRNOTAVAIL): cannot assign requested address; endpoints keep their states, and lbd retries what failed",
		}
		if !slices.Equal(conditions, want) {
			t.Errorf("conditions %q, want %q", conditions, want)
		}
		for _, c := range s.Health() {
			if !c.OK {
				t.Errorf("not ready: %+v", c)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		metric(0, 0)
		var events []string
		for _, e := range s.Events(observe.EventFilter{Limit: 10, Types: []observe.EventType{observe.EventShortageBegan, observe.EventShortageEnded}}) {
			events = append(events, fmt.Sprint(e.Type, " ", e.Reason, ": ", e.Says))
		}
		slices.Reverse(events)
		slices.Sort(events[2:]) // both end at the same check
		want = []string{
			"shortage_began descriptors: lbd has no file descriptor left (EMFILE): endpoints keep their states until it is over",
			"shortage_began local_ports: no local port is left for connections to an endpoint (EADDRNOTAVAIL): endpoints keep their states until it is over",
			"shortage_ended descriptors: over: lbd has no file descriptor left (EMFILE)",
			"shortage_ended local_ports: over: no local port is left for connections to an endpoint (EADDRNOTAVAIL)",
		}
		if !slices.Equal(events, want) || len(s.Conditions()) != 0 {
			t.Errorf("events %q, want %q; conditions %v", events, want, s.Conditions())
		}
	})
}

// TestEveryShortageHasARemedy: the operator learns what to do about each.
func TestEveryShortageHasARemedy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := overload.NewMonitor(func() error { return nil })
		defer m.Close()
		s, stop := start(t, "", func(o *service.Options) { o.Overload = m })
		defer stop()
		for _, r := range overload.Resources {
			m.Report(r, syscall.EMFILE)
		}
		for _, c := range s.Conditions() {
			if c.Remedy == "" {
				t.Errorf("no remedy for %s", c.Subject)
			}
		}
	})
}
