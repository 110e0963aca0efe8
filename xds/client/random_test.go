package client

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// content has the resources of management servers, which are those of go-control-plane.
type content struct {
	resources map[resource.Key]*anypb.Any
	caches    map[resource.Type]*cache.LinearCache
}

func newContent() *content {
	c := &content{resources: map[resource.Key]*anypb.Any{}, caches: map[resource.Type]*cache.LinearCache{}}
	for _, t := range []resource.Type{cds, eds} {
		c.caches[t] = cache.NewLinearCache(t.URL())
	}
	return c
}

func (c *content) set(k resource.Key, a *anypb.Any) {
	if a == nil {
		delete(c.resources, k)
		_ = c.caches[k.Type].DeleteResource(k.Name) // it never fails
		return
	}
	c.resources[k] = a
	m, err := a.UnmarshalNew()
	if err == nil {
		err = c.caches[k.Type].UpdateResource(k.Name, m)
	}
	if err != nil {
		panic(err) // the resources of tests are messages
	}
}

func (c *content) serve(s adsServerStream) error {
	mux := &cache.MuxCache{Classify: func(r *cache.Request) string { return r.GetTypeUrl() }, Caches: map[string]cache.Cache{}}
	for t, linear := range c.caches {
		mux.Caches[t.URL()] = linear
	}
	return serverv3.NewServer(s.Context(), mux, nil).StreamAggregatedResources(s)
}

// TestRandomEvents checks that, after random events, the updates have the server's state of
// all wanted resources.
func TestRandomEvents(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomEvents(t, rand.New(rand.NewPCG(seed, 1)), false) })
	}
}

// TestRandomEventsOfAuthorities has two authorities with the same servers in a different
// order, so that each falls back to a stream in use. No existing resource is reported as
// missing.
func TestRandomEventsOfAuthorities(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomEvents(t, rand.New(rand.NewPCG(seed, 1)), true) })
	}
}

func randomEvents(t *testing.T, random *rand.Rand, shared bool) {
	config := "one two"
	if shared {
		config = fmt.Sprintf(`{"node":{"id":"test"},"xds_servers":[%s],"authorities":{"other":{"xds_servers":[%s]}}}`,
			serversJSON("one", "two"), serversJSON("two", "one"))
	}
	runTest(t, config, func(t *testing.T, w *harness) {
		has := newContent()
		for _, s := range w.servers {
			s.handle = has.serve
		}
		keys := make([]resource.Key, 0, 12)
		for i := range 6 {
			name := string(rune('a' + i))
			if shared && i%2 == 0 {
				name = of("other") + name
			}
			keys = append(keys, resource.Key{Type: cds, Name: name}, resource.Key{Type: eds, Name: name})
		}
		change := func(k resource.Key) {
			version := uint32(random.IntN(100))
			switch {
			case !shared && random.IntN(4) == 0 && k.Type == cds:
				has.set(k, nil)
			case random.IntN(6) == 0 && k.Type == cds:
				has.set(k, badCluster(k.Name))
			case k.Type == cds:
				has.set(k, cluster(k.Name, fmt.Sprint("s", version)))
			default:
				has.set(k, assignment(k.Name, 1+version))
			}
		}
		// go-control-plane sends no response that has no resource: another Cluster always exists.
		always := resource.Key{Type: cds, Name: "always"}
		has.set(always, cluster(always.Name))
		w.want(cds, always.Name)
		wanted, down := map[resource.Key]bool{always: true}, map[string]bool{}
		for range 60 {
			k := keys[random.IntN(len(keys))]
			switch random.IntN(12) {
			case 0, 1, 2, 3:
				change(k)
			case 4, 5, 6:
				wanted[k] = true
				w.client.Want("t", []resource.Key{k}, nil)
			case 7:
				delete(wanted, k)
				w.client.Want("t", nil, []resource.Key{k})
			case 8:
				if wanted[k] {
					w.client.Want("t", []resource.Key{k}, []resource.Key{k})
				}
			case 9:
				name := []string{"one", "two"}[random.IntN(2)]
				w.servers[name].kill()
				down[name] = true
			case 10:
				name := []string{"one", "two"}[random.IntN(2)]
				w.servers[name].kill()
				w.servers[name].start()
				delete(down, name)
			case 11:
				time.Sleep(time.Duration(random.IntN(20_000)) * time.Millisecond)
			}
			if random.IntN(3) == 0 {
				synctest.Wait()
			}
		}
		for name := range down {
			w.servers[name].start()
		}
		for k := range maps.Clone(has.resources) {
			if k.Type == cds {
				has.set(k, cluster(k.Name, "last"))
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()

		last := map[resource.Key]Update{}
		for len(w.updates) > 0 {
			for _, u := range <-w.updates {
				last[u.Key] = u
				if shared && isKind(u.Err, ErrorDeleted) {
					t.Errorf("%s is reported as missing", u.Key)
				}
			}
		}
		for k := range wanted {
			u, is := last[k], has.resources[k]
			err, ok := errors.AsType[*ResourceError](u.Err)
			switch {
			case is == nil && !(ok && (err.NotFound() || err.Kind == ErrorRejected)): // a rejection stays after a deletion, as in gRPC
				t.Errorf("%s does not exist, and the last update is %+v", k, u)
			case is != nil && (u.Err != nil || !bytes.Equal(u.Raw, is.GetValue())):
				t.Errorf("%s exists, and the last update is %s", k, describe([]Update{u}))
			}
		}
		w.expectResources(len(wanted))
	}, func(_ *harness, o *Options) {
		take := o.OnUpdate
		o.OnUpdate = func(u []Update) { // slow, so that responses wait
			time.Sleep(200 * time.Millisecond)
			take(u)
		}
	})
}
