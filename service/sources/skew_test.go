package sources_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// TestWriteSkew: of two changes that are permitted each alone, and that leave a cluster without a usable endpoint
// together, never both are made, also not at the same moment, beside 12 pushers, in one commit with them.
func TestWriteSkew(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	only := func(names ...string) []byte {
		var list []servicetest.Object
		for _, name := range names {
			list = append(list, servicetest.Endpoint(name))
		}
		return servicetest.Assignment(nil, servicetest.Place("a", 0, 1, list))
	}
	pushes := func(kind sources.Kind, body []byte) func() error {
		return func() error {
			_, err := s.Sources.Push(t.Context(), &sources.PushRequest{Kind: kind, Cluster: "orders", Body: body})
			return err
		}
	}
	drains := func(name string) func() error {
		return func() error {
			_, err := s.Sources.PutOverlay(t.Context(), &sources.OverlayRequest{Overlay: drain(name + ":80"), Cluster: "orders", ID: name})
			return err
		}
	}
	removes := func() error {
		_, err := s.Sources.RemoveEndpoint(t.Context(), &sources.EndpointRequest{Cluster: "orders", Address: "b:80"})
		return err
	}
	leads := func(to string) []byte {
		return servicetest.Encode(servicetest.Object{"type": "EDS", "eds_cluster_config": servicetest.Object{"service_name": to}})
	}
	pairs := [][2]func() error{
		{drains("a"), pushes(sources.Endpoints, only("a"))},
		{drains("a"), drains("b")},
		{drains("a"), removes},
		{drains("x"), pushes(sources.Config, leads("other"))},
	}
	servicetest.Push(t, s, sources.Endpoints, "other", only("x"))

	var group sync.WaitGroup
	var ended atomic.Bool
	for i := range 12 {
		group.Go(func() {
			for n := 0; !ended.Load(); n++ {
				body := only(fmt.Sprint("p", n%3))
				if _, err := s.Sources.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: fmt.Sprint("c", i), Body: body}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	accepted := make([]int, len(pairs))
	for n := range 1000 {
		servicetest.Must(t, pushes(sources.Endpoints, only("a", "b"))())
		var errs [2]error
		var both sync.WaitGroup
		for i, change := range pairs[n%len(pairs)] {
			both.Go(func() { errs[i] = change() })
		}
		both.Wait()
		for _, err := range errs {
			if err == nil {
				accepted[n%len(pairs)]++
			} else if servicetest.Code(err) != fault.Blocked {
				t.Fatal(err)
			}
		}
		if cc := s.Sources.Config("orders"); cc == nil || cc.Assignment.Usable() == 0 {
			t.Fatalf("pair %d: %v, %v: the cluster has no usable endpoints", n%len(pairs), errs[0], errs[1])
		}
		for _, id := range []string{"a", "b", "x"} {
			if _, err := s.Sources.DeleteOverlay(t.Context(), "orders", id, sources.ChangeOptions{}); err != nil && servicetest.Code(err) != fault.UnknownOverlay {
				t.Fatal(err)
			}
		}
		if _, err := s.Sources.Delete(t.Context(), sources.Config, "orders", sources.ChangeOptions{}); err != nil && servicetest.Code(err) != fault.UnknownCluster {
			t.Fatal(err)
		}
	}
	ended.Store(true)
	group.Wait()
	for i, n := range accepted {
		if n != 1000/len(pairs) {
			t.Errorf("pair %d: %d of %d changes were made, want one of each two", i, n, 2*1000/len(pairs))
		}
	}
}

// TestWriteSkewOfFiles: nor are a drain and a change of a file both made, beside pushers whose commits take their time.
func TestWriteSkewOfFiles(t *testing.T) {
	d := startFiled(t, &archive{})
	var group sync.WaitGroup
	var ended atomic.Bool
	for i := range 4 {
		group.Go(func() {
			for n := 0; !ended.Load(); n++ {
				body := servicetest.Usable(fmt.Sprint("p", n%3), 1)
				if _, err := d.Sources.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: fmt.Sprint("c", i), Body: body}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	drained, held := 0, 0
	for range 200 {
		d.scan(map[string]int{"a": 2})
		var err error
		var pair sync.WaitGroup
		pair.Go(func() {
			_, err = d.Sources.PutOverlay(t.Context(), &sources.OverlayRequest{Overlay: drain("a-0:80"), Cluster: "a", ID: "a"})
		})
		pair.Go(func() { d.scan(map[string]int{"a": 1}) })
		pair.Wait()
		if code := servicetest.Code(err); code != "" && code != fault.Blocked {
			t.Fatal(err)
		}
		if cc := d.Sources.Config("a"); cc == nil || cc.Assignment.Usable() == 0 {
			t.Fatalf("%v, %+v: the cluster has no usable endpoints", err, d.Sources.Files().Held)
		}
		if err == nil {
			drained++
			if _, err := d.Sources.DeleteOverlay(t.Context(), "a", "a", sources.ChangeOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		held += len(d.Sources.Files().Held)
	}
	ended.Store(true)
	group.Wait()
	if drained != held {
		t.Errorf("%d drains, %d changes of files were held", drained, held)
	}
}
