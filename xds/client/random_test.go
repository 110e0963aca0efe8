package client

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// content has the resources of management servers.
type content struct {
	mu        sync.Mutex
	version   int
	resources map[resource.Key]*anypb.Any
	changed   map[chan struct{}]struct{} // one for each stream, notified of each change
}

func (c *content) set(k resource.Key, a *anypb.Any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	if c.resources[k] = a; a == nil {
		delete(c.resources, k)
	}
	for notify := range c.changed {
		select {
		case notify <- struct{}{}:
		default:
		}
	}
}

// asking is the server's state of one type on one stream.
type asking struct {
	nonce string
	names []string
	sent  map[string]*anypb.Any
}

// serve follows the protocol exactly: it ignores requests whose nonce is not that of the last
// response, and sends resources that are newly requested or have changed; for Clusters, all
// requested ones.
func (c *content) serve(s adsServerStream) error {
	notify := make(chan struct{}, 1)
	c.mu.Lock()
	c.changed[notify] = struct{}{}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.changed, notify)
		c.mu.Unlock()
	}()
	requests := make(chan *discoveryv3.DiscoveryRequest)
	go func() {
		defer close(requests)
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- r:
			case <-s.Context().Done():
				return
			}
		}
	}()
	asked := map[resource.Type]*asking{}
	for n := 0; ; {
		select {
		case r, ok := <-requests:
			if !ok {
				return nil
			}
			kind := typeOfURL(r.GetTypeUrl())
			a := asked[kind]
			if a == nil {
				a = &asking{sent: map[string]*anypb.Any{}}
				asked[kind] = a
			}
			if r.GetResponseNonce() != a.nonce {
				continue
			}
			a.names = r.GetResourceNames()
			maps.DeleteFunc(a.sent, func(name string, _ *anypb.Any) bool { return !slices.Contains(a.names, name) })
		case <-notify:
		}
		for kind, a := range asked {
			if m := c.news(kind, a); m != nil {
				n++
				a.nonce = fmt.Sprint("n", n)
				m.Nonce = a.nonce
				if err := s.Send(m); err != nil {
					return err
				}
			}
		}
	}
}

// news returns the next response of one type; nil if nothing changed.
func (c *content) news(kind resource.Type, a *asking) *discoveryv3.DiscoveryResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &discoveryv3.DiscoveryResponse{TypeUrl: kind.URL(), VersionInfo: fmt.Sprint(c.version)}
	news := a.nonce == "" && kind == resource.TypeCluster
	for _, name := range a.names {
		is := c.resources[resource.Key{Type: kind, Name: name}]
		differs := is != a.sent[name]
		news = news || differs && (is != nil || kind == resource.TypeCluster)
		if is != nil && (differs || kind == resource.TypeCluster) {
			m.Resources = append(m.Resources, is)
		}
		if a.sent[name] = is; is == nil {
			delete(a.sent, name)
		}
	}
	if !news {
		return nil
	}
	return m
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
		has := &content{resources: map[resource.Key]*anypb.Any{}, changed: map[chan struct{}]struct{}{}}
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
		wanted, down := map[resource.Key]bool{}, map[string]bool{}
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
		for _, k := range keys {
			if a := has.resources[k]; a != nil && k.Type == cds {
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
		if n := len(w.client.Status().Resources); n != len(wanted) {
			t.Errorf("%d resources, want %d", n, len(wanted))
		}
	}, func(_ *harness, o *Options) {
		take := o.OnUpdate
		o.OnUpdate = func(u []Update) { // slow, so that responses wait
			time.Sleep(200 * time.Millisecond)
			take(u)
		}
	})
}
