package client

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
)

// targetModel is a client with two servers, without goroutines, connections and timers.
// Each method returns when everything that follows has happened, timeouts included.
type targetModel struct {
	client *Client
	up     [2]bool
	has    [2]map[resource.Key]*anypb.Any
	nonces int

	begun  []*xdsChannel // to be connected
	timers []func()
	last   map[resource.Key]Update // of the target "t"
}

func newTargetModel(t testing.TB) *targetModel {
	t.Helper()
	b, err := bootstrap.Parse([]byte(`{"node":{"id":"test"},"xds_servers":[`+serversJSON("one", "two")+`]}`), bootstrap.Options{Version: "1"})
	noError(t, err)
	w := &targetModel{up: [2]bool{true, true}, last: map[resource.Key]Update{}}
	w.has = [2]map[resource.Key]*anypb.Any{{}, {}}
	if w.client, err = newClient(Options{Bootstrap: b, OnUpdate: func([]Update) {}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.client.cancel)
	w.client.pool.start = func(s *xdsChannel) { w.begun = append(w.begun, s) }
	w.client.pool.after = func(_ time.Duration, do func()) { w.timers = append(w.timers, do) }
	return w
}

func (w *targetModel) index(s *xdsChannel) int {
	return slices.IndexFunc(w.client.options.Bootstrap.Servers, func(o bootstrap.Server) bool { return o.Key() == s.server.Key() })
}

// settle runs the events that follow: connections, requests, responses, timeouts.
func (w *targetModel) settle() {
	for {
		w.take()
		switch {
		case len(w.begun) > 0:
			s := w.begun[0]
			w.begun = w.begun[1:]
			w.connect(s)
		case w.exchange():
		case len(w.timers) > 0:
			due := w.timers
			w.timers = nil
			time.Sleep(watchExpiry) // on the bubble's clock
			for _, do := range due {
				do()
			}
		default:
			return
		}
	}
}

// take stores the pending updates.
func (w *targetModel) take() {
	w.client.moves.publish()
	w.client.flushUpdates(nil)
	for _, c := range w.client.allConfigs {
		for _, d := range c.updates.batches.take() {
			for _, u := range d.updates {
				if u.Target == "t" {
					w.last[u.Key] = u
				}
			}
		}
	}
}

// connect opens a stream to a server that is up.
func (w *targetModel) connect(s *xdsChannel) {
	if w.client.pool.channels[s.server.Key()] != s {
		return // it was released
	}
	if !w.up[w.index(s)] {
		s.streamEnded(false, errors.New("refused"))
		return
	}
	s.streamOpened(newADSStream())
}

// exchange sends and answers the next requests. It reports whether there were any.
func (w *targetModel) exchange() bool {
	exchanged := false
	for _, s := range w.client.pool.channels {
		st := s.stream
		if st == nil {
			continue
		}
		s.sendRequest()
		select {
		case r := <-st.requests:
			exchanged = true
			s.requestSent(st, r)
			if len(r.fresh) > 0 || r.message.GetResponseNonce() == "" {
				w.respond(s, typeOfURL(r.message.GetTypeUrl()))
			}
		default:
		}
	}
	return exchanged
}

// respond sends the requested resources of a server.
func (w *targetModel) respond(s *xdsChannel, kind resource.Type) {
	w.nonces++
	m := &discoveryv3.DiscoveryResponse{TypeUrl: kind.URL(), VersionInfo: "v", Nonce: fmt.Sprint(w.nonces)}
	for name := range s.subscriptions[kind].names {
		if is := w.has[w.index(s)][resource.Key{Type: kind, Name: name}]; is != nil {
			m.Resources = append(m.Resources, is)
		}
	}
	r := decodeResponse(m, w.client.decoding, nil)
	if len(m.GetResources()) > 0 || r.complete() {
		s.responseReceived(s.stream, r)
	}
}

// turn stops or starts a server.
func (w *targetModel) turn(i int) {
	w.up[i] = !w.up[i]
	for _, s := range w.client.pool.channels {
		if w.index(s) != i {
			continue
		}
		if w.up[i] {
			w.connect(s)
			continue
		}
		s.streamEnded(true, errors.New("reset"))
		s.streamEnded(false, errors.New("refused"))
	}
	w.settle()
}

// change sets or deletes a resource of a server.
func (w *targetModel) change(i int, k resource.Key, is *anypb.Any) {
	if w.has[i][k] = is; is == nil {
		delete(w.has[i], k)
	}
	for _, s := range w.client.pool.channels {
		if w.index(s) == i && s.stream != nil && s.subscriptions[k.Type] != nil && len(s.subscriptions[k.Type].names) > 0 {
			w.respond(s, k.Type)
		}
	}
	w.settle()
}

func (w *targetModel) want(target string, add, drop []resource.Key) {
	w.client.want(target, add, drop)
	w.settle()
}

// state describes the resources and the server of the target "t".
func (w *targetModel) state() string {
	config := w.client.configs[""]
	a := w.client.authorities[authorityKey{"t", config}]
	words := []string{"no resource is wanted"}
	if a != nil {
		words[0] = fmt.Sprint("server ", a.active(), ", connected: ", a.connected.Load())
	}
	for _, k := range slices.SortedFunc(maps.Keys(w.last), func(x, y resource.Key) int { return strings.Compare(x.String(), y.String()) }) {
		u := w.last[k]
		value := a.watchers[k].item.Raw // what is in use, also with an ambient error
		word := fmt.Sprintf("%s %x", k, value)
		// Other errors depend on when the server was asked first. The value does not.
		if err, ok := errors.AsType[*ResourceError](u.Err); ok && !err.isDataError() {
			word += fmt.Sprintf(" %v ambient=%v", err.Kind, u.Ambient)
		}
		words = append(words, word)
	}
	return strings.Join(words, "\n")
}

// TestTargetsAreIndependent applies the same random events to two clients. In one of them,
// another target wants and drops resources. The first target must be equal in both.
func TestTargetsAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fellBack, seeds := 0, uint64(300)
		if os.Getenv("LBD_TEST_LONG") != "" {
			seeds = 10_000
		}
		for seed := range seeds {
			fellBack += asIfAlone(t, seed)
			if t.Failed() {
				return
			}
		}
		if fellBack < 500 {
			t.Errorf("the target used the fallback server after %d steps", fellBack)
		}
	})
}

func asIfAlone(t *testing.T, seed uint64) (fellBack int) {
	random := rand.New(rand.NewPCG(seed, 0))
	alone, shared := newTargetModel(t), newTargetModel(t)
	both := func(do func(*targetModel)) { do(alone); do(shared) }
	var own, others []resource.Key // own are t's from the start, which others may want, too
	for i := range 4 {
		name := string(rune('a' + i))
		own = append(own, resource.Key{Type: cds, Name: name}, resource.Key{Type: eds, Name: name})
		name = "other-" + name
		others = append(others, resource.Key{Type: cds, Name: name}, resource.Key{Type: eds, Name: name})
	}
	later := []resource.Key{{Type: cds, Name: "later"}, {Type: eds, Name: "later"}} // t's alone
	var happened []string
	change := func(i int, k resource.Key) {
		var is *anypb.Any
		switch version := random.IntN(5); {
		case version == 0:
		case version == 1 && k.Type == cds:
			is = badCluster(k.Name)
		case k.Type == cds:
			is = cluster(k.Name, fmt.Sprint("s", version))
		default:
			is = assignment(k.Name, uint32(version))
		}
		happened = append(happened, fmt.Sprintf("server %d changes %s (%v)", i, k, is != nil))
		both(func(w *targetModel) { w.change(i, k, is) })
	}
	everything := slices.Concat(own, others, later)
	for i := range 2 {
		for _, k := range everything {
			change(i, k)
		}
	}
	both(func(w *targetModel) { w.want("t", own, nil) })
	for range 40 {
		k := everything[random.IntN(len(everything))]
		foreign := slices.Concat(own, others)[random.IntN(len(own)+len(others))]
		switch random.IntN(8) {
		case 0, 1:
			i := random.IntN(2)
			happened = append(happened, fmt.Sprint("server ", i, " turns to ", !alone.up[i]))
			both(func(w *targetModel) { w.turn(i) })
		case 2, 3:
			change(random.IntN(2), k)
		case 4, 5:
			happened = append(happened, fmt.Sprint("another target wants ", foreign))
			shared.want("u", []resource.Key{foreign}, nil)
		case 6:
			happened = append(happened, fmt.Sprint("another target drops ", foreign))
			shared.want("u", nil, []resource.Key{foreign})
		case 7:
			k := later[random.IntN(2)]
			drop := random.IntN(2) == 0
			happened = append(happened, fmt.Sprint("t wants or drops ", k, drop))
			both(func(w *targetModel) {
				if drop {
					w.want("t", nil, []resource.Key{k})
					delete(w.last, k)
					return
				}
				w.want("t", []resource.Key{k}, nil)
			})
		}
		if got, want := shared.state(), alone.state(); got != want {
			t.Errorf("seed %d: after\n%s\nit is\n%s\nalone it is\n%s", seed, strings.Join(happened, "\n"), got, want)
			return fellBack
		}
		if strings.HasPrefix(alone.state(), "server 1") {
			fellBack++
		}
	}
	return fellBack
}

// BenchmarkTargets is a response with one change among 10,000 clusters, each of a target of
// its own, without decoding; and the memory of a target that waits for two resources.
func BenchmarkTargets(b *testing.B) {
	const targets = 10_000
	w := newTargetModel(b)
	name := func(i int) resource.Key { return resource.Key{Type: cds, Name: fmt.Sprint("c", i)} }
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range targets {
		w.client.want(fmt.Sprint("cluster:c", i), []resource.Key{name(i), {Type: eds, Name: name(i).Name}}, nil)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	for len(w.begun) > 0 {
		w.connect(w.begun[0])
		w.begun = w.begun[1:]
	}
	s := w.client.authorities[authorityKey{"cluster:c0", w.client.configs[""]}].current()
	m := &discoveryv3.DiscoveryResponse{TypeUrl: cds.URL(), VersionInfo: "v"}
	for i := range targets {
		m.Resources = append(m.Resources, cluster(name(i).Name))
	}
	r := decodeResponse(m, w.client.decoding, nil)
	m.Resources[0] = cluster("c0", "other")
	changed := [...]*response{r, decodeResponse(m, w.client.decoding, nil)}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.responseReceived(s.stream, changed[i%2])
		w.client.flushUpdates(nil)
		for _, c := range w.client.allConfigs {
			c.updates.batches.take()
		}
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/targets, "B/target")
}

// BenchmarkStatus is a scrape with 10,000 resources.
func BenchmarkStatus(b *testing.B) {
	w := newTargetModel(b)
	for i := range 10_000 {
		w.client.want("t", []resource.Key{{Type: cds, Name: fmt.Sprint("c", i)}}, nil)
	}
	b.ReportAllocs()
	for b.Loop() {
		w.client.status()
	}
}

// A stream that opens after the release of its channel must not count: no event ends it.
func TestStreamOpensAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTargetModel(t)
		a := resource.Key{Type: cds, Name: "a"}
		w.client.want("t", []resource.Key{a}, nil)
		s := w.begun[0]
		w.begun = nil
		w.client.want("t", nil, []resource.Key{a})
		s.streamOpened(newADSStream())
		w.settle()
		if w.client.Connected(*s.server) {
			t.Error("a server that no target uses is connected")
		}
	})
}

// A target that replaces its only resource keeps the stream.
func TestReplacedResourceKeepsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTargetModel(t)
		a, b := resource.Key{Type: cds, Name: "a"}, resource.Key{Type: cds, Name: "b"}
		w.want("t", []resource.Key{a}, nil)
		s := w.client.authorities[authorityKey{"t", w.client.configs[""]}].current()
		st := s.stream
		w.want("t", []resource.Key{b}, []resource.Key{a})
		if s.ctx.Err() != nil || s.stream != st {
			t.Error("the stream has ended")
		}
		w.want("t", nil, []resource.Key{b})
		if s.ctx.Err() == nil || len(w.client.authorities)+len(w.client.pool.channels) > 0 {
			t.Error("a server that no target uses is not released")
		}
	})
}
