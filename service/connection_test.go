package service_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/resource"
)

// slammingConnector connects, and loses the connection at once.
type slammingConnector struct{}

func (slammingConnector) Start(addresses []string, report func(lb.Connection)) (stop func()) {
	go func() {
		report(lb.Connection{Address: addresses[0]})
		report(lb.Connection{Err: errors.New("closed by the peer")})
	}()
	return func() {}
}

// TestConnectionLostAtOnce: it was an attempt that went well, and then a loss.
func TestConnectionLostAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := start(t, "", func(o *service.Options) {
			o.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: slammingConnector{}}
		})
		defer stop()
		push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
		synctest.Wait()
		var got []string
		for _, e := range s.Events(observe.EventFilter{Types: []observe.EventType{observe.EventConnectionChanged}, Limit: 100}) {
			got = append(got, fmt.Sprintf("%s: %s to %s", e.Says, e.From, e.To))
		}
		want := []string{"connection lost immediately: READY to TRANSIENT_FAILURE", "connected: CONNECTING to READY"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		const series = `
# HELP lbd_connect_attempts_total Connection attempts by result: ok, error.
# TYPE lbd_connect_attempts_total counter
lbd_connect_attempts_total{cluster="orders",result="ok",target=""} 1
# HELP lbd_disconnects_total Connections that were lost, by reason.
# TYPE lbd_disconnects_total counter
lbd_disconnects_total{cluster="orders",reason="lost",target=""} 1
`
		if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(series), "lbd_connect_attempts_total", "lbd_disconnects_total"); err != nil {
			t.Error(err)
		}
	})
}
