package observe

import (
	"testing"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestEjectedOrNot: an endpoint is shown as ejected while it fails because of
// that, and not once it is given back and connects, whose last error it still is.
func TestEjectedOrNot(t *testing.T) {
	until := time.Unix(1e9, 0)
	why := &policy.EjectedError{Reason: "it was bad", Until: until}
	for state, want := range map[connectivity.State]string{connectivity.TransientFailure: "EJECTED", connectivity.Connecting: "CONNECTING"} {
		l := LocalityState{Endpoints: []EndpointState{{Address: "a:80", Share: new(0.0)}}}
		fillEndpoints(&l, policy.Node{Endpoints: []policy.EndpointNode{{
			Endpoint: &resource.Endpoint{Addresses: []string{"a:80"}}, State: state, LastErr: why,
		}}}, 1)
		e := l.Endpoints[0]
		if e.State != want || e.LastError != why.Error() || (e.EjectedUntil != nil) != (want == "EJECTED") {
			t.Errorf("%v: %+v, want %s", state, e, want)
		}
		if e.EjectedUntil != nil && !e.EjectedUntil.Equal(until) {
			t.Errorf("until %v, want %v", e.EjectedUntil, until)
		}
	}
}
