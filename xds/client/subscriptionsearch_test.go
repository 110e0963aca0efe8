//go:build !race

package client

import (
	"context"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestSearchSubscriptions runs every interleaving of events between one client and one
// server, for each kind of server. From each state that is reached, the messages in flight
// arrive. Then each subscribed resource that exists must have been delivered since it was
// subscribed last, the timeout must run for the others, and the server must have the
// client's list.
func TestSearchSubscriptions(t *testing.T) {
	if testing.Short() {
		t.Skip("long: visits hundreds of thousands of states")
	}
	deeper := 0
	if os.Getenv("LBD_TEST_LONG") != "" {
		deeper = 2
	}
	for _, scenario := range []struct {
		exist     string // one digit a name: 1 if it exists
		behaviors []behavior
		limits    limits
		depth     int
	}{
		{exist: "11", behaviors: behaviors, limits: limits{updates: 1, disconnects: 1}, depth: 11},
		{exist: "10", behaviors: behaviors, limits: limits{updates: 2}, depth: 10},
		{exist: "111", behaviors: behaviors[:3], limits: limits{updates: 1, disconnects: 1}, depth: 9},
	} {
		for i := range scenario.behaviors {
			b := &scenario.behaviors[i]
			t.Run(scenario.exist+" "+b.name, func(t *testing.T) {
				t.Parallel()
				depth := scenario.depth + deeper
				search(t, newSubscriptionModel(scenario.exist, b, scenario.limits), depth)
			})
		}
	}
}

// TestSearchStateIsComplete fails if a struct has a new field: the copies and the
// fingerprints of the searches must have it.
func TestSearchStateIsComplete(t *testing.T) {
	for _, c := range []struct {
		value  any
		fields string
	}{
		{xdsChannel{}, "channelEnv server connection ctx cancel users subscriptions resources stream failed"},
		{adsStream{}, "requests answered processing handling unread retrying sending nodeSent awaitsResources warned"},
		{request{}, "message subscriptions fresh"},
		{subscriptions{}, "kind names sorted version nonce pending requests responded removed unread nackDetail nackedVersion nackedAt holdUntil"},
		{subscription{}, "name stage named late uncertain omissions lastNamed lastOmitted"},
		{removal{}, "lastNamed since"},
		{resourceState{}, "server key watchers stream item hash version updated rejection reason err absent"},
		{authority{}, "key pool moves connected using watchers unknown channels"},
		{watcher{}, "key authority names state item index version updated err ambient errIndex final rejection"},
	} {
		kind := reflect.TypeOf(c.value)
		var got []string
		for field := range kind.Fields() {
			got = append(got, field.Name)
		}
		if strings.Join(got, " ") != c.fields {
			t.Errorf("%s has the fields %q", kind, got)
		}
	}
}

// limits are the numbers of some events in one interleaving.
type limits struct{ updates, disconnects uint8 }

const (
	toggle        searchEvent = iota // subscribe or unsubscribe; one for each name
	flush                     = toggle + maxNames
	requestIsSent             = flush + 1
	serverTakes               = flush + 2 // a request reaches the server
	clientTakes               = flush + 3 // a response reaches the client
	disconnect                = flush + 4
	connect                   = flush + 5
	update                    = flush + 6 // one for each name
	lastEvent                 = update + maxNames
)

func (s *subscriptionModel) describe(e searchEvent) string {
	switch {
	case e < flush:
		return "toggle " + searchName(int(e-toggle))
	case e >= update:
		return "update " + searchName(int(e-update))
	}
	return [...]string{"flush", "request is sent", "server takes", "client takes", "disconnect", "connect"}[e-flush]
}

func searchName(i int) string { return string(rune('a' + i)) }

// subscriptionModel is a channel, a model server, and the messages in flight between them.
type subscriptionModel struct {
	client   *xdsChannel
	sent     *request // the request of the sender, until it was sent
	model    modelServer
	requests []modelRequest
	response []modelResponse
	got      [maxNames]uint8 // versions that were delivered since the name was subscribed last
	left     limits
	names    int
}

// newSubscriptionModel returns a model with a new stream.
func newSubscriptionModel(exist string, b *behavior, l limits) *subscriptionModel {
	s := &subscriptionModel{
		client: &xdsChannel{
			channelEnv:    &channelEnv{events: func(Event) {}, after: func(time.Duration, func()) {}},
			server:        &bootstrap.Server{},
			connection:    &connection{},
			ctx:           context.Background(),
			subscriptions: map[resource.Type]*subscriptions{eds: newSubscriptions(eds)},
		},
		model: modelServer{behavior: b}, left: l, names: len(exist),
	}
	for i := range exist {
		s.model.versions[i] = exist[i] - '0'
	}
	s.client.streamOpened(newADSStream())
	return s
}

func (s *subscriptionModel) subscriptions() *subscriptions { return s.client.subscriptions[eds] }

func (s *subscriptionModel) subscribed(i int) *subscription {
	return s.subscriptions().names[searchName(i)]
}

// copy returns a deep copy.
func (s *subscriptionModel) copy() searchable {
	c := *s
	c.requests, c.response = slices.Clone(s.requests), slices.Clone(s.response)
	old := s.subscriptions()
	subs := *old
	subs.names = make(map[string]*subscription, len(old.names))
	for name, sub := range old.names {
		twin := *sub
		subs.names[name] = &twin
	}
	subs.removed = maps.Clone(old.removed)
	c.client = &xdsChannel{
		channelEnv: s.client.channelEnv, server: s.client.server, connection: s.client.connection, ctx: s.client.ctx, failed: s.client.failed,
		subscriptions: map[resource.Type]*subscriptions{eds: &subs},
	}
	if st := s.client.stream; st != nil {
		c.client.stream = &adsStream{requests: st.requests, sending: st.sending, nodeSent: st.nodeSent, awaitsResources: st.awaitsResources, warned: st.warned}
		c.client.stream.answered.Store(st.answered.Load())
	}
	if s.sent != nil {
		c.sent = &request{subscriptions: &subs}
		for _, sub := range s.sent.fresh {
			if old.names[sub.name] == sub {
				c.sent.fresh = append(c.sent.fresh, subs.names[sub.name])
			}
		}
	}
	return &c
}

func (s *subscriptionModel) events() []searchEvent {
	var list []searchEvent
	for e := range lastEvent {
		if s.can(e) {
			list = append(list, e)
		}
	}
	return list
}

func (s *subscriptionModel) settling() (searchEvent, bool) {
	for _, e := range [...]searchEvent{connect, requestIsSent, flush, serverTakes, clientTakes} {
		if s.can(e) {
			return e, true
		}
	}
	return 0, false
}

// can reports whether an event is possible.
func (s *subscriptionModel) can(e searchEvent) bool {
	st := s.client.stream
	switch {
	case e < flush:
		return int(e-toggle) < s.names
	case e >= update:
		return int(e-update) < s.names && s.left.updates > 0
	}
	switch e {
	case flush:
		return st != nil && !st.sending && s.subscriptions().requestDue(time.Time{})
	case requestIsSent:
		return st != nil && s.sent != nil
	case serverTakes:
		return len(s.requests) > 0
	case clientTakes:
		return len(s.response) > 0
	case disconnect:
		return st != nil && s.left.disconnects > 0
	default:
		return st == nil
	}
}

func (s *subscriptionModel) do(e searchEvent) error {
	switch {
	case e < flush:
		s.toggle(int(e - toggle))
		return nil
	case e >= update:
		s.left.updates--
		s.under(s.model.update(int(e - update)))
		return nil
	}
	switch e {
	case flush:
		s.flush()
	case requestIsSent:
		s.client.requestSent(s.client.stream, *s.sent)
		s.sent = nil
	case serverTakes:
		r := s.requests[0]
		s.requests = s.requests[1:]
		s.under(s.model.receive(r))
	case clientTakes:
		s.receive()
	case disconnect:
		s.left.disconnects--
		s.client.stream, s.sent, s.requests, s.response = nil, nil, nil, nil
		s.model.restart()
	case connect:
		s.client.streamOpened(newADSStream())
	}
	return nil
}

func (s *subscriptionModel) under(r modelResponse, sent bool) {
	if sent {
		s.response = append(s.response, r)
	}
}

func (s *subscriptionModel) toggle(i int) {
	k := resource.Key{Type: eds, Name: searchName(i)}
	if s.subscribed(i) == nil {
		s.client.subscribe(k)
		return
	}
	s.client.subscriptions[k.Type].unsubscribe(k.Name)
	s.got[i] = 0
}

func (s *subscriptionModel) flush() {
	s.client.sendRequest()
	next := <-s.client.stream.requests
	s.requests = append(s.requests, modelRequestOf(next.message))
	s.sent = &next
}

func modelRequestOf(request *discoveryv3.DiscoveryRequest) modelRequest {
	r := modelRequest{}
	if n := request.GetResponseNonce(); n != "" {
		r.nonce = n[0]
	}
	for _, name := range request.GetResourceNames() {
		r.names |= 1 << (name[0] - 'a')
	}
	return r
}

func (s *subscriptionModel) receive() {
	m := s.response[0]
	s.response = s.response[1:]
	r := &response{kind: eds, version: "v", nonce: string([]byte{m.nonce})}
	for i, version := range m.versions {
		if version == 0 {
			continue
		}
		r.resources = append(r.resources, receivedResource{item: resource.Item{Key: resource.Key{Type: eds, Name: searchName(i)}}})
		if s.subscribed(i) != nil {
			s.got[i] = version
		}
	}
	s.client.responseReceived(s.client.stream, r)
}

func (s *subscriptionModel) fingerprint(b []byte) []byte {
	t, st := s.subscriptions(), s.client.stream
	b = appendBits(b, st != nil, s.sent != nil)
	b = append(b, s.left.updates, s.left.disconnects)
	b = appendStream(b, st)
	b = appendSubscriptions(b, t, s.model.nonce)
	for i := range maxNames {
		sub := s.subscribed(i)
		b = appendSubscription(b, t, searchName(i))
		b = append(b, s.model.versions[i]-s.got[i])
		b = appendBits(b, s.got[i] > 0, sub != nil && s.sent != nil && slices.Contains(s.sent.fresh, sub))
	}
	return s.model.fingerprint(b, s.requests, s.response)
}

func appendBits(b []byte, list ...bool) []byte {
	var bits byte
	for i, x := range list {
		if x {
			bits |= 1 << i
		}
	}
	return append(b, bits)
}

func appendStream(b []byte, st *adsStream) []byte {
	if st == nil {
		return append(b, 0xff)
	}
	return appendBits(b, st.answered.Load(), st.sending, st.nodeSent, st.awaitsResources)
}

// appendSubscriptions appends the state that is not of a single name. Only differences of
// request numbers matter.
func appendSubscriptions(b []byte, t *subscriptions, serverNonce uint8) []byte {
	nonce := uint8(0)
	if t.nonce != "" {
		nonce = t.nonce[0]
	}
	b = appendBits(b, t.pending, t.requests > 0, t.responded == t.requests)
	return append(b, serverNonce-nonce)
}

func appendSubscription(b []byte, t *subscriptions, name string) []byte {
	sub := t.names[name]
	if sub == nil {
		r, removed := t.removed[name]
		return appendBits(b, false, removed, r.lastNamed == t.requests, !r.since.IsZero())
	}
	b = appendBits(b, true, sub.named, sub.late, sub.uncertain, sub.lastNamed > 0, sub.lastNamed == t.requests, sub.lastOmitted > t.responded)
	return append(b, byte(sub.stage), sub.omissions)
}

// fingerprint appends the state of the server and of the messages in flight.
func (m *modelServer) fingerprint(b []byte, requests []modelRequest, responses []modelResponse) []byte {
	b = appendBits(b, m.acked, m.nonce > 0)
	b = append(b, byte(m.listed), byte(len(requests)))
	for _, r := range requests {
		b = append(b, byte(r.names), m.nonce-r.nonce)
	}
	for i := range maxNames {
		b = append(b, m.versions[i]-m.sent[i])
		b = appendBits(b, m.versions[i] > 0, m.sent[i] > 0)
	}
	for _, r := range responses {
		b = append(b, m.nonce-r.nonce)
		for i := range maxNames {
			b = append(b, m.versions[i]-r.versions[i])
			b = appendBits(b, r.versions[i] > 0)
		}
	}
	return b
}

func (s *subscriptionModel) check() error {
	wanted := names(0)
	for i := range s.names {
		sub := s.subscribed(i)
		if sub == nil {
			continue
		}
		wanted |= 1 << i
		switch version := s.model.versions[i]; {
		case version == 0 && sub.stage != requested:
			return fmt.Errorf("%s does not exist and is in stage %d", sub.name, sub.stage)
		case version > 0 && (s.got[i] != version || sub.stage != received):
			return fmt.Errorf("%s has version %d and was delivered in version %d, in stage %d", sub.name, version, s.got[i], sub.stage)
		}
	}
	if wanted != s.model.listed && (wanted != 0 || s.model.nonce > 0) {
		return fmt.Errorf("the server's list is %b, the client's %b", s.model.listed, wanted)
	}
	return nil
}
