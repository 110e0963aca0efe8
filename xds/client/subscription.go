package client

import (
	"maps"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/lbd-dev/lbd/xds/resource"
)

// subscriptions are the resources of one type that a server is asked for. They are
// the owner's.
type subscriptions struct {
	kind  resource.Type
	names map[string]*subscription
	list  []string // the names, sorted; nil where they changed since

	// version is the last that was accepted. It outlives a stream: it says what
	// the client has.
	version string

	// Of the stream that there is:
	nonce string
	asked bool // a request was made
	dirty bool // another one is to be made
	// detail is what is wrong with the response of nonce, until that was said.
	detail string
	// left are names of the last request that were unsubscribed since. Those of
	// them that were subscribed again are to be left out of one request: what a
	// server is asked for all the time it need not send again.
	left     map[string]doubts
	rejoined map[string]struct{}
	// doubted are names that were left out of requests with nonce. A server passes
	// over a request that crosses its next response, and may not know yet.
	doubted map[string]doubts
	// refused is the version that was refused last, refusedAt when that was last
	// said, and held until when nothing is said.
	refused         *string
	refusedAt, held time.Time
}

// doubts is for how many more responses it is believed that a server may not have
// seen a name left out: none for one that it never sent, which it would send anyhow.
type doubts uint8

const maxDoubts doubts = 3

// subscription is one resource that a server is asked for.
type subscription struct {
	name  string
	stage stage
	named bool // in the last request of the stream
	// late is true for one that the server was not asked for from the first request
	// of its type on, and has not sent: a response may be older than the request,
	// and says nothing by coming without it.
	late bool
}

// stage is how far a subscription is.
type stage uint8

const (
	unasked stage = iota // on the stream that there is
	asked                // the server's time runs
	unheard              // not sent in time by a server that has sent nothing at all
	arrived              // good or bad
	expired              // not sent in time
)

func newSubscriptions(t resource.Type) *subscriptions {
	return &subscriptions{
		kind: t, names: map[string]*subscription{},
		left: map[string]doubts{}, rejoined: map[string]struct{}{}, doubted: map[string]doubts{},
	}
}

func (t *subscriptions) add(name string) {
	if t.names[name] != nil {
		return
	}
	t.names[name] = &subscription{name: name}
	t.list, t.dirty = nil, true
	if _, ok := t.left[name]; ok {
		t.rejoined[name] = struct{}{}
	}
}

func (t *subscriptions) remove(name string) {
	s := t.names[name]
	if s == nil {
		return
	}
	delete(t.names, name)
	delete(t.rejoined, name)
	t.list, t.dirty = nil, true
	if !s.named {
		return
	}
	t.left[name] = max(t.left[name], t.doubted[name])
	if s.stage == arrived {
		t.left[name] = maxDoubts
	}
}

// restart makes them those of a new stream: the server's time begins again.
func (t *subscriptions) restart() {
	t.nonce, t.detail = "", ""
	t.asked, t.dirty = false, true
	clear(t.left)
	clear(t.rejoined)
	clear(t.doubted)
	t.refused, t.held = nil, time.Time{}
	for _, s := range t.names {
		s.named, s.late = false, false
		if s.stage == asked || s.stage == unheard {
			s.stage = unasked
		}
	}
}

// missing reports whether the server has still to send something.
func (t *subscriptions) missing() bool {
	for _, s := range t.names {
		if s.stage == unasked || s.stage == asked {
			return true
		}
	}
	return false
}

// hear gives what a server did not send while it was silent its time anew, and
// returns it.
func (t *subscriptions) hear() []*subscription {
	var again []*subscription
	for _, s := range t.names {
		if s.stage == unheard {
			s.stage = asked
			again = append(again, s)
		}
	}
	return again
}

// answer takes notice of a response.
func (t *subscriptions) answer(r *response) {
	t.nonce, t.detail, t.dirty = r.nonce, r.refusal, true
	switch {
	case r.refusal == "":
		t.version, t.refused, t.held = r.version, nil, time.Time{}
	case t.refused != nil && *t.refused == r.version:
		t.held = t.refusedAt.Add(refusalPace)
	default:
		t.refused, t.held = &r.version, time.Time{}
	}
	for i := range r.resources {
		if s := t.names[r.resources[i].item.Key.Name]; s != nil {
			s.stage, s.late = arrived, false
		}
	}
	t.doubt()
}

// doubt lets the next request leave out again what a response came without.
func (t *subscriptions) doubt() {
	for name, n := range t.doubted {
		s := t.names[name]
		switch {
		case s == nil && n > 1: // it is without it, also if that is subscribed before
			t.left[name] = n - 1
		case s != nil && s.stage < arrived:
			t.left[name], t.rejoined[name] = n, struct{}{}
		}
	}
	clear(t.doubted)
}

// due reports whether a request is to be made now.
func (t *subscriptions) due(now time.Time) bool {
	if !t.asked && len(t.names) == 0 {
		// Who never asked for anything of a type would ask for everything.
		t.dirty = false
	}
	return t.dirty && !now.Before(t.held)
}

// request makes the next request. What it asks for the first time is returned, too:
// its time runs when it was sent.
func (t *subscriptions) request(node *corev3.Node, now time.Time) (*discoveryv3.DiscoveryRequest, []*subscription) {
	if t.list == nil {
		t.list = slices.AppendSeq(make([]string, 0, len(t.names)), maps.Keys(t.names))
		slices.Sort(t.list)
	}
	names := t.list
	if len(t.rejoined) > 0 {
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { _, again := t.rejoined[n]; return again })
	}
	r := &discoveryv3.DiscoveryRequest{
		VersionInfo:   t.version,
		Node:          node,
		ResourceNames: names,
		TypeUrl:       t.kind.URL(),
		ResponseNonce: t.nonce,
	}
	if t.detail != "" {
		r.ErrorDetail = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: t.detail}
		t.refusedAt = now
	}
	var fresh []*subscription
	for _, n := range names {
		s := t.names[n]
		s.late = s.late || t.asked && !s.named && s.stage == unasked
		s.named = true
		if s.stage == unasked {
			fresh = append(fresh, s)
		}
	}
	t.asked, t.detail, t.dirty = true, "", len(t.rejoined) > 0
	for name, n := range t.left {
		if n > 0 {
			t.doubted[name] = n
		}
	}
	clear(t.left)
	clear(t.rejoined)
	return r, fresh
}
