package sources_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Changes of several endpoints at once are all kept.
func TestEndpointsAreChangedConcurrently(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	var all sync.WaitGroup
	const n = 40
	for i := range n {
		all.Go(func() {
			r := &sources.EndpointRequest{Cluster: "orders", Address: fmt.Sprintf("10.0.0.%d:80", i)}
			if _, err := s.Sources.SetEndpoint(t.Context(), r); err != nil {
				t.Error(err)
			}
			if i%2 == 1 {
				return
			}
			if _, err := s.Sources.RemoveEndpoint(t.Context(), r); err != nil && servicetest.Code(err) != fault.Blocked { // the only one
				t.Error(err)
			} else if err != nil {
				all.Go(func() {
					r.Options.AllowEmpty = true
					if _, err := s.Sources.RemoveEndpoint(t.Context(), r); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
	all.Wait()
	if got := pushedEndpoints(t, s); got != n/2 {
		t.Errorf("%d endpoints instead of %d", got, n/2)
	}
}

// An endpoint is found in whatever spelling it is stored: in a locality that is left out, which a decoder does not look at.
func TestEndpointsOfLocalitiesThatAreLeftOut(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	body := servicetest.Assignment(nil,
		servicetest.Place("a", 0, 1, []servicetest.Object{servicetest.Endpoint("10.0.0.1"), servicetest.Endpoint("10.0.0.2")}),
		servicetest.Place("b", 0, 0, []servicetest.Object{servicetest.Endpoint("Host-B")}))
	servicetest.Push(t, s, sources.Endpoints, "orders", body)
	r := &sources.EndpointRequest{Cluster: "orders", Address: "host-b:80", Edit: sources.EndpointEdit{Weight: new(uint32(2))}}
	res, err := s.Sources.SetEndpoint(t.Context(), r)
	if servicetest.Must(t, err); res.New {
		t.Error("there are two of it")
	}
	_, err = s.Sources.RemoveEndpoint(t.Context(), r)
	servicetest.Must(t, err)
	servicetest.Expect(t, "endpoints", pushedEndpoints(t, s), 2)
}

// Fields that protobuf keeps although it does not know them stop neither a change of an endpoint nor its expiry.
func TestEndpointsBesideUnknownFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := servicetest.Start(t, "", nil)
		defer stop()
		register(t, s, "10.0.0.1:80", 10*time.Second)
		register(t, s, "10.0.0.2:80", time.Hour)
		stored, err := s.Sources.Pushed(t.Context(), "", sources.Endpoints, "orders", sources.Protobuf)
		servicetest.Must(t, err)
		_, err = s.Sources.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", Format: sources.Protobuf, Body: append(stored.Body.Bytes(), 0x10, 1)})
		servicetest.Must(t, err)
		register(t, s, "10.0.0.3:80", time.Hour)
		time.Sleep(time.Minute)
		servicetest.Expect(t, "endpoints", pushedEndpoints(t, s), 2)
	})
}

// aggregate is a Cluster made of another one.
func aggregate(leaf string) []byte {
	return []byte(`{"cluster_type":{"name":"envoy.clusters.aggregate","typed_config":{"@type":"type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig","clusters":["` + leaf + `"]}}}`)
}

// Endpoints of other sources are not hidden by one that is pushed.
func TestEndpointsOfOtherSourcesAreNotChanged(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	one := servicetest.Usable("a", 1)
	s.Sources.FilesChanged(inFiles(t, map[resource.Key][]byte{{Type: sources.Endpoints, Name: "filed"}: one, {Type: sources.Config, Name: "configured"}: []byte(`{"type":"EDS"}`)}))
	servicetest.Push(t, s, sources.Endpoints, "leaf", one)
	servicetest.Push(t, s, sources.Config, "all", aggregate("leaf"))
	servicetest.Push(t, s, sources.Config, "renamed", []byte(`{"type":"EDS","eds_cluster_config":{"service_name":"leaf"}}`))
	for cluster, says := range map[string]string{
		"filed":   `the endpoints of "filed" come from a resource file, not from a push: change the file, or push all endpoints to /v1/clusters/NAME/endpoints, which then take precedence`,
		"all":     `the endpoints of "all" come from the clusters that it consists of, not from a push: change the endpoints of one of these`,
		"renamed": `the endpoints of "renamed" come from the assignment leaf, not from a push: change that one`,
	} {
		r := &sources.EndpointRequest{Cluster: cluster, Address: "10.0.0.1:80", Options: sources.ChangeOptions{AllowEmpty: true}}
		_, err := s.Sources.SetEndpoint(t.Context(), r)
		if servicetest.Code(err) != fault.Blocked || err.Error() != says {
			t.Errorf("%s: set: %v", cluster, err)
		}
		if _, err = s.Sources.RemoveEndpoint(t.Context(), r); servicetest.Code(err) != fault.Blocked || err.Error() != says {
			t.Errorf("%s: remove: %v", cluster, err)
		}
	}
	for _, cluster := range []string{"leaf", "configured", "new"} {
		if _, err := s.Sources.SetEndpoint(t.Context(), &sources.EndpointRequest{Cluster: cluster, Address: "10.0.0.1:80", Edit: sources.EndpointEdit{Weight: new(uint32(2))}}); err != nil {
			t.Errorf("%s: %v", cluster, err)
		}
	}
	// A push of all of them takes precedence, and its endpoints can be changed.
	servicetest.Push(t, s, sources.Endpoints, "filed", one)
	if _, err := s.Sources.SetEndpoint(t.Context(), &sources.EndpointRequest{Cluster: "filed", Address: "10.0.0.1:80"}); err != nil {
		t.Error(err)
	}
}

// The same is so for endpoints of a management server, under the name of their assignment.
func TestEndpointsOfAServerAreNotChanged(t *testing.T) {
	s, _, _, _ := follow(t, 1)
	item, _, err := decode.Item(resource.Item{Key: resource.Key{Type: sources.Endpoints, Name: "service"}, Raw: servicetest.Usable("a", 1)}, decode.Options{Name: "service"})
	servicetest.Must(t, err)
	u := sharedUpdate(0, "one", "c")
	u.Cluster.EDSServiceName = "service"
	s.Inbound.ServerUpdate([]resource.Update{u})
	s.Inbound.ServerUpdate([]resource.Update{{Target: targetOf(0), Item: item, Server: "passthrough:///one"}})
	const says = `the endpoints of "service" come from a management server, not from a push: change them there, or push`
	_, err = s.Sources.SetEndpoint(t.Context(), &sources.EndpointRequest{Cluster: "service", Address: "10.0.0.1:80"})
	if servicetest.Code(err) != fault.Blocked || !strings.HasPrefix(err.Error(), says) {
		t.Error(err)
	}
}
