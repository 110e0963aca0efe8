//go:build !race

package client

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestSearchFallback runs every interleaving of events between a client with two targets
// and two servers in the order of fallback, from several initial states. A target that has
// all its resources must not change because of the other target. From each state that is
// reached, the servers return and the messages in flight arrive: then each target has the
// resources of the first server, from that server.
func TestSearchFallback(t *testing.T) {
	if testing.Short() {
		t.Skip("long: visits hundreds of thousands of states")
	}
	deeper := 0
	if os.Getenv("LBD_TEST_LONG") != "" {
		deeper = 2
	}
	served := []searchEvent{0, join(0, attempt), join(0, sendRequest), join(0, takeRequest), join(0, takeAnswer), join(0, sendRequest), join(0, takeRequest)}
	gone := append(slices.Clip(served), join(0, goDown), join(0, attempt))
	beginnings := []struct {
		what   string
		events []searchEvent
		depth  int
	}{
		{"nothing", nil, 7},
		{"a target that is served", served, 6},
		{"a target whose server is gone", gone, 7},
		{"another target that fell back", append(slices.Clip(gone), 2, join(1, attempt), join(1, sendRequest), join(1, takeRequest)), 6},
	}
	for _, scenario := range []struct {
		what    string
		kind    resource.Type
		first   names // what the servers have
		second  names
		outages uint8
	}{
		{what: "both have the same", kind: eds, first: 0b11, second: 0b11, outages: 2},
		{what: "the second has less", kind: cds, first: 0b11, second: 0b01, outages: 2},
		{what: "an unknown name", kind: eds, first: 0b01, second: 0b01, outages: 2},
		{what: "the second has more", kind: cds, first: 0b01, second: 0b11, outages: 1},
	} {
		for _, beginning := range beginnings {
			t.Run(scenario.what+", from "+beginning.what, func(t *testing.T) {
				t.Parallel()
				b := &behavior{sendsAll: scenario.kind == cds}
				pair := &serverPair{kind: scenario.kind, behavior: b, has: [2]names{scenario.first, scenario.second}, outages: scenario.outages}
				pair.prepare(t)
				start := pair.start()
				for _, e := range beginning.events {
					noError(t, start.do(e))
				}
				search(t, start, beginning.depth+deeper)
			})
		}
	}
}

// serverPair is constant in a search: two servers and their resources.
type serverPair struct {
	kind     resource.Type
	behavior *behavior
	has      [2]names
	outages  uint8
	config   *bootstrap.Config
	items    [2][2]resource.Item // by server and name
}

// The resources that the targets may want: the first a, the second a and b.
var wishes = [...]struct {
	target string
	name   int
}{{"one", 0}, {"two", 0}, {"two", 1}}

// The events of a fallbackModel: toggle a wish; then, for each server, those below.
const (
	serverEvents = searchEvent(len(wishes))

	goDown      = iota - 1 // the server, with its stream
	comeUp                 // the server
	attempt                // to open a stream
	sendRequest            // the client's, to the server
	takeRequest            // the server
	takeAnswer             // the client
	serverEventCount
)

func (p *serverPair) prepare(t *testing.T) {
	var err error
	config := fmt.Sprintf(`{"node":{"id":"test"},"xds_servers":[%s]}`, serversJSON("one", "two"))
	if p.config, err = bootstrap.Parse([]byte(config), bootstrap.Options{}); err != nil {
		t.Fatal(err)
	}
	for server := range p.items {
		for i := range p.items[server] {
			a := assignment(searchName(i), uint32(1+server))
			if p.kind == cds {
				a = cluster(searchName(i), fmt.Sprint("of", server))
			}
			if p.items[server][i], err = decode.Resource(p.kind, a, decode.Options{Origin: decode.FromServer}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// fallbackModel is a client without goroutines and timers, with two model servers.
type fallbackModel struct {
	*serverPair

	client  *Client
	links   [2]link
	outages uint8 // left
	wanted  [len(wishes)]bool
	history []searchEvent
}

// link is a server, and the messages in flight between it and the client.
type link struct {
	down      bool
	stream    *adsStream // nil while there is none
	model     modelServer
	requests  []modelRequest
	responses []modelResponse
}

func (p *serverPair) start() *fallbackModel {
	c, err := newClient(Options{Bootstrap: p.config, OnUpdate: func([]Update) {}})
	if err != nil {
		panic(err) // the options are complete
	}
	c.pool.start = func(*xdsChannel) {}
	c.pool.after = func(time.Duration, func()) {}
	w := &fallbackModel{serverPair: p, client: c, outages: p.outages}
	for i := range w.links {
		w.links[i].model.behavior = p.behavior
		for name := range 2 {
			if p.has[i].has(name) {
				w.links[i].model.versions[name] = 1
			}
		}
	}
	return w
}

// copy returns a new model after the same events.
func (w *fallbackModel) copy() searchable {
	c := w.start()
	for _, e := range w.history {
		c.happen(e)
	}
	c.history = slices.Clip(w.history)
	return c
}

func (w *fallbackModel) describe(e searchEvent) string {
	if e < serverEvents {
		return fmt.Sprintf("toggle %s of %s", searchName(wishes[e].name), wishes[e].target)
	}
	i, what := split(e)
	return [...]string{"down", "up", "attempt", "send request", "take request", "take answer"}[what-goDown] + [...]string{" 1", " 2"}[i]
}

// split returns the server of an event, and its kind.
func split(e searchEvent) (server int, what searchEvent) {
	const n = serverEventCount - goDown
	return int(e-serverEvents) / n, (e-serverEvents)%n + goDown
}

func join(server int, what searchEvent) searchEvent {
	const n = serverEventCount - goDown
	return serverEvents + searchEvent(server)*n + what - goDown
}

func (w *fallbackModel) events() []searchEvent {
	var list []searchEvent
	for e := range join(1, takeAnswer) + 1 {
		if w.can(e) {
			list = append(list, e)
		}
	}
	return list
}

func (w *fallbackModel) settling() (searchEvent, bool) {
	for i := range w.links {
		for _, what := range [...]searchEvent{comeUp, attempt, sendRequest, takeRequest, takeAnswer} {
			if e := join(i, what); w.can(e) {
				return e, true
			}
		}
	}
	return 0, false
}

// server returns the client's side of a server; nil if no target uses it.
func (w *fallbackModel) server(i int) *xdsChannel {
	return w.client.pool.channels[w.config.Servers[i].Key()]
}

func (w *fallbackModel) can(e searchEvent) bool {
	if e < serverEvents {
		return true
	}
	i, what := split(e)
	l, s := &w.links[i], w.server(i)
	switch what {
	case goDown:
		return !l.down && w.outages > 0
	case comeUp:
		return l.down
	case attempt: // a second failure changes nothing
		return s != nil && s.stream == nil && (!l.down || s.failed == nil)
	case sendRequest:
		return l.stream != nil && !l.stream.sending && s.subscriptions[w.kind].requestDue(time.Time{})
	case takeRequest:
		return len(l.requests) > 0
	default:
		return len(l.responses) > 0
	}
}

var errDown = errors.New("down")

// do applies an event, and compares each target before and after.
func (w *fallbackModel) do(e searchEvent) error {
	before := [2]targetView{w.view("one"), w.view("two")}
	updated := w.happen(e)
	w.history = append(slices.Clip(w.history), e)
	for i, target := range []string{"one", "two"} {
		if e < serverEvents && wishes[e].target == target {
			continue
		}
		if err := before[i].compare(w.view(target), e, updated[target]); err != nil {
			return fmt.Errorf("target %s: %w", target, err)
		}
	}
	return nil
}

// happen returns the targets that get an update.
func (w *fallbackModel) happen(e searchEvent) map[string]bool {
	if e < serverEvents {
		w.toggle(int(e))
	} else {
		i, what := split(e)
		w.happenAt(i, what)
	}
	w.client.moves.publish()
	w.client.flushUpdates(nil)
	for i := range w.links { // a released server has no stream
		if l, s := &w.links[i], w.server(i); l.stream != nil && (s == nil || s.stream != l.stream) {
			l.end()
		}
	}
	updated := map[string]bool{}
	for _, d := range w.client.configs[""].updates.batches.take() {
		for _, u := range d.updates {
			updated[u.Target] = true
		}
	}
	return updated
}

func (w *fallbackModel) toggle(i int) {
	k := []resource.Key{{Type: w.kind, Name: searchName(wishes[i].name)}}
	if w.wanted[i] = !w.wanted[i]; w.wanted[i] {
		w.client.want(wishes[i].target, k, nil)
	} else {
		w.client.want(wishes[i].target, nil, k)
	}
}

func (w *fallbackModel) happenAt(i int, what searchEvent) {
	l, s := &w.links[i], w.server(i)
	switch what {
	case goDown:
		w.outages--
		l.down = true
		if st := l.stream; st != nil {
			l.end()
			s.streamEnded(st.answered.Load(), errDown)
		}
	case comeUp:
		l.down = false
	case attempt:
		if l.down {
			s.streamEnded(false, errDown)
			return
		}
		l.stream = newADSStream()
		s.streamOpened(l.stream)
	case sendRequest:
		s.sendRequest()
		next := <-l.stream.requests
		l.requests = append(l.requests, modelRequestOf(next.message))
		s.requestSent(l.stream, next)
	case takeRequest:
		r := l.requests[0]
		l.requests = l.requests[1:]
		if m, ok := l.model.receive(r); ok {
			l.responses = append(l.responses, m)
		}
	case takeAnswer:
		m := l.responses[0]
		l.responses = l.responses[1:]
		s.responseReceived(l.stream, w.response(i, m))
	}
}

func (l *link) end() {
	l.stream, l.requests, l.responses = nil, nil, nil
	l.model.restart()
}

// response returns a decoded response.
func (w *fallbackModel) response(server int, m modelResponse) *response {
	r := &response{kind: w.kind, version: "v", nonce: string([]byte{m.nonce}), index: map[string]int{}}
	for i, version := range m.versions {
		if version > 0 {
			it := w.items[server][i]
			r.index[it.Key.Name] = len(r.resources)
			r.resources = append(r.resources, receivedResource{item: it})
		}
	}
	return r
}

// targetView is the state of a target.
type targetView struct {
	active    int
	complete  bool // it wants something, and has all of it
	resources map[string]*byte
}

func (w *fallbackModel) view(target string) targetView {
	v := targetView{active: noServer, resources: map[string]*byte{}}
	a := w.client.authorities[authorityKey{target, w.client.configs[""]}]
	if a == nil {
		return v
	}
	v.active, v.complete = a.active(), true
	for k, watch := range a.watchers {
		if !watch.hasValue() {
			v.complete = false
			continue
		}
		v.resources[k.Name] = &watch.item.Raw[0]
	}
	return v
}

// compare returns an invalid change of the target by an event of another.
func (v targetView) compare(after targetView, e searchEvent, updated bool) error {
	if e < serverEvents && updated {
		return errors.New("gets an update because another target wants something")
	}
	if !v.complete {
		return nil
	}
	server, what := split(e)
	fromServer := e >= serverEvents && what == takeAnswer && server <= v.active
	switch {
	case after.active > v.active:
		return errors.New("falls back although it has everything")
	case after.active != v.active && !fromServer:
		return errors.New("changes its server")
	}
	for name, raw := range v.resources {
		switch is := after.resources[name]; {
		case is == nil:
			return fmt.Errorf("loses %s", name)
		case is != raw && !fromServer:
			return fmt.Errorf("has another %s", name)
		}
	}
	return nil
}

func (w *fallbackModel) check() error {
	for i, wish := range wishes {
		if !w.wanted[i] {
			continue
		}
		a := w.client.authorities[authorityKey{wish.target, w.client.configs[""]}]
		watch := a.watchers[resource.Key{Type: w.kind, Name: searchName(wish.name)}]
		switch {
		case w.has[0].has(wish.name) && (!watch.hasValue() || a.active() != 0 || !bytes.Equal(watch.item.Raw, w.items[0][wish.name].Raw)):
			return fmt.Errorf("%s of %s is %s from server %d, but the first server has another value", searchName(wish.name), wish.target, watch.state, watch.index)
		case w.has[a.active()].has(wish.name) && !watch.hasValue():
			return fmt.Errorf("%s of %s is %s, and its server has it", searchName(wish.name), wish.target, watch.state)
		}
	}
	return nil
}

func (w *fallbackModel) fingerprint(b []byte) []byte {
	b = append(b, w.outages)
	for i := range w.links {
		l, s := &w.links[i], w.server(i)
		b = appendBits(b, l.down, l.stream != nil, s != nil)
		b = l.model.fingerprint(b, l.requests, l.responses)
		if s == nil {
			continue
		}
		b = appendBits(b, s.failed != nil, s.stream != nil)
		b = appendStream(b, s.stream)
		t := s.subscriptions[w.kind]
		if t == nil {
			continue
		}
		b = appendSubscriptions(b, t, l.model.nonce)
		for name := range 2 {
			b = appendSubscription(b, t, searchName(name))
			r := s.resources[w.kind][searchName(name)]
			b = appendResourceState(b, r != nil && s.confirmed(r), r)
		}
	}
	for i, wish := range wishes {
		if !w.wanted[i] {
			b = append(b, 0xff)
			continue
		}
		a := w.client.authorities[authorityKey{wish.target, w.client.configs[""]}]
		watch := a.watchers[resource.Key{Type: w.kind, Name: searchName(wish.name)}]
		b = append(b, byte(a.active()), byte(watch.index), byte(watch.errIndex))
		b = append(b, watch.state...)
		b = appendError(b, watch.err)
		b = appendBits(b, watch.ambient, watch.final, watch.hasValue(), watch.rejection != nil, a.connected.Load())
		if watch.hasValue() {
			b = append(b, byte(slices.IndexFunc(w.items[:], func(of [2]resource.Item) bool { return bytes.Equal(of[wish.name].Raw, watch.item.Raw) })))
		}
	}
	return b
}

func appendResourceState(b []byte, confirmed bool, r *resourceState) []byte {
	if r == nil {
		return append(b, 0xff)
	}
	b = appendBits(b, r.hasValue(), confirmed, r.stream != nil, r.rejection != nil, r.reason != nil, r.absent != nil)
	b = append(b, byte(len(r.watchers)))
	return appendError(b, r.err)
}

func appendError(b []byte, err *ResourceError) []byte {
	if err == nil {
		return append(b, 0xff)
	}
	return append(b, byte(err.Kind), byte(err.Code))
}
