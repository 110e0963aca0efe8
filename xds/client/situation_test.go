package client

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// TestSearchStateIsComplete fails if a struct got a field: the copies and the
// fingerprints of the search must then have it, too.
func TestSearchStateIsComplete(t *testing.T) {
	for _, c := range []struct {
		value  any
		fields string
	}{
		{server{}, "client config ctx stop after authorities subscriptions resources stream failed"},
		{stream{}, "requests answered taking sending greeted owes warned"},
		{sending{}, "request subscriptions fresh"},
		{subscriptions{}, "kind names sorted version nonce pending requests responded removed nackDetail nackedVersion nackedAt holdUntil"},
		{subscription{}, "name stage named late uncertain omissions lastNamed lastOmitted"},
		{removal{}, "lastNamed since"},
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

// limits is how often some events may happen in one interleaving.
type limits struct{ updates, disconnects uint8 }

// event is something that can happen.
type searchEvent uint8

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

func (e searchEvent) String() string {
	switch {
	case e < flush:
		return "toggle " + searchName(int(e-toggle))
	case e >= update:
		return "update " + searchName(int(e-update))
	}
	return [...]string{"flush", "request is sent", "server takes", "client takes", "disconnect", "connect"}[e-flush]
}

func searchName(i int) string { return string(rune('a' + i)) }

// situation is a client's server, the model server, and what is under way between them.
type situation struct {
	client   *server
	sent     *sending // the request that was handed to the sender, until it was sent
	model    modelServer
	requests []modelRequest
	response []modelResponse
	got      [maxNames]uint8 // versions that were delivered since the name was subscribed last
	left     limits
}

func (s *situation) subscriptions() *subscriptions { return s.client.subscriptions[eds] }

func (s *situation) subscribed(i int) *subscription { return s.subscriptions().names[searchName(i)] }

// copy returns a situation that shares nothing that changes.
func (s *situation) copy() *situation {
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
	c.client = &server{
		client: s.client.client, after: s.client.after, failed: s.client.failed,
		subscriptions: map[resource.Type]*subscriptions{eds: &subs},
	}
	if st := s.client.stream; st != nil {
		c.client.stream = &stream{requests: st.requests, sending: st.sending, greeted: st.greeted, owes: st.owes, warned: st.warned}
		c.client.stream.answered.Store(st.answered.Load())
	}
	if s.sent != nil {
		c.sent = &sending{subscriptions: &subs}
		for _, sub := range s.sent.fresh {
			if old.names[sub.name] == sub {
				c.sent.fresh = append(c.sent.fresh, subs.names[sub.name])
			}
		}
	}
	return &c
}

// can reports whether an event is possible.
func (s *situation) can(e searchEvent, count int) bool {
	st := s.client.stream
	switch {
	case e < flush:
		return int(e-toggle) < count
	case e >= update:
		return int(e-update) < count && s.left.updates > 0
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

// do lets an event happen.
func (s *situation) do(e searchEvent) {
	switch {
	case e < flush:
		s.toggle(int(e - toggle))
		return
	case e >= update:
		s.left.updates--
		s.under(s.model.update(int(e - update)))
		return
	}
	switch e {
	case flush:
		s.flush()
	case requestIsSent:
		s.client.sent(s.client.stream, *s.sent)
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
		s.client.opened(&stream{requests: make(chan sending, 1)})
	}
}

func (s *situation) under(r modelResponse, sent bool) {
	if sent {
		s.response = append(s.response, r)
	}
}

func (s *situation) toggle(i int) {
	k := resource.Key{Type: eds, Name: searchName(i)}
	if s.subscribed(i) == nil {
		s.client.subscribe(k)
		return
	}
	s.client.unsubscribe(k)
	s.got[i] = 0
}

func (s *situation) flush() {
	s.client.flush()
	next := <-s.client.stream.requests
	r := modelRequest{}
	if n := next.request.GetResponseNonce(); n != "" {
		r.nonce = n[0]
	}
	for _, name := range next.request.GetResourceNames() {
		r.names |= 1 << (name[0] - 'a')
	}
	s.requests = append(s.requests, r)
	s.sent = &next
}

func (s *situation) receive() {
	m := s.response[0]
	s.response = s.response[1:]
	r := &response{kind: eds, version: "v", nonce: string([]byte{m.nonce})}
	for i, version := range m.versions {
		if version == 0 {
			continue
		}
		r.resources = append(r.resources, received{item: resource.Item{Key: resource.Key{Type: eds, Name: searchName(i)}}})
		if s.subscribed(i) != nil {
			s.got[i] = version
		}
	}
	s.client.receive(s.client.stream, r, newReceipt())
}

// fingerprint returns a value that is equal for situations that cannot be told apart
// by anything that happens later.
func (s *situation) fingerprint(b []byte) []byte {
	is := func(list ...bool) {
		var bits byte
		for i, x := range list {
			if x {
				bits |= 1 << i
			}
		}
		b = append(b, bits)
	}
	t, st := s.subscriptions(), s.client.stream
	is(st != nil, t.pending, t.requests > 0, t.responded == t.requests, s.sent != nil)
	if st != nil {
		is(st.answered.Load(), st.sending, st.greeted, st.owes)
	}
	nonce := uint8(0)
	if t.nonce != "" {
		nonce = t.nonce[0]
	}
	b = append(b, s.model.nonce-nonce, s.left.updates, s.left.disconnects)
	for i := range maxNames {
		sub := s.subscribed(i)
		if sub == nil {
			r, removed := t.removed[searchName(i)]
			is(removed, r.lastNamed == t.requests, !r.since.IsZero())
			continue
		}
		is(true, sub.named, sub.late, sub.uncertain, sub.lastNamed > 0, sub.lastNamed == t.requests)
		is(sub.lastOmitted > t.responded, s.sent != nil && slices.Contains(s.sent.fresh, sub))
		b = append(b, byte(sub.stage), sub.omissions, s.model.versions[i]-s.got[i])
		is(s.got[i] > 0)
	}
	is(s.model.acked, s.model.nonce > 0)
	b = append(b, byte(s.model.listed), byte(len(s.requests)))
	for _, r := range s.requests {
		b = append(b, byte(r.names), s.model.nonce-r.nonce)
	}
	for i := range maxNames {
		b = append(b, s.model.versions[i]-s.model.sent[i])
		is(s.model.versions[i] > 0, s.model.sent[i] > 0)
	}
	for _, r := range s.response {
		b = append(b, s.model.nonce-r.nonce)
		for i := range maxNames {
			b = append(b, s.model.versions[i]-r.versions[i])
			is(r.versions[i] > 0)
		}
	}
	return b
}
