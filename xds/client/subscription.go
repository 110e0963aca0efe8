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

// subscriptions is the client's side of the state-of-the-world protocol for one
// resource type on one server. It is a pure state machine: it starts no timers and sends
// nothing. Owner only.
//
// It relies on these rules of the xDS protocol:
//
//   - A request carries the full list of names. The server has accepted at most one
//     list at a time; a newly accepted list replaces it.
//   - A server sends a resource when its name is in an accepted list and was not in
//     the one before, and when the resource changes. It need not send it again as
//     long as the name stays in the list, and it need not answer a request that
//     adds no name.
//   - A server ignores a request whose nonce is not that of the last response that
//     it sent. So a request that crosses a response on the way has no effect, and
//     the client cannot know: neither side confirms which list is in force.
//   - Versions outlive a stream. Nonces, and the server's list, do not.
//
// So the server may still have a name in its list that is unsubscribed and subscribed
// again, and not send the resource that the client has dropped. Such a subscription is
// uncertain until the resource arrives or times out. With each nonce, the client leaves
// an uncertain name out of one request and has it in the next one. If no response crosses
// them, the server accepts both and sends the resource. Otherwise the client repeats this
// with the new nonce, at most maxOmissions times, because some servers answer each request.
// A server that waits for an ACK before its next response accepts each ACK, so it is sure
// to send the resource by then.
type subscriptions struct {
	kind   resource.Type
	names  map[string]*subscription
	sorted []string // the names; nil after a change

	// version is the last accepted one. It describes the client's resources, so it
	// outlives the stream.
	version string

	// State of the current stream, see newStream.

	nonce   string // of the last response
	pending bool   // a request is needed
	// requests counts the requests made. It numbers them, from 1.
	requests uint64
	// responded is the number of requests that were made when the last response
	// arrived: those after it carry the current nonce.
	responded uint64
	// removed are the names of earlier requests that are not subscribed. The server
	// may still have them in its list.
	removed map[string]removal
	// unread is true if there was no memory for the last response.
	unread bool
	// nackDetail is the error detail for the next request; empty for an ACK.
	nackDetail string
	// nackedVersion is the version that was rejected last, nackedAt when that was
	// sent. Until holdUntil, no request is made.
	nackedVersion       *string
	nackedAt, holdUntil time.Time
}

// subscription is one resource that the client requests from a server.
type subscription struct {
	name  string
	stage stage
	named bool // a request on the current stream has the name
	// late is true for a name that was not in the first request of its type on the
	// stream, until the server sends it or the timeout expires: a response may be older
	// than the request, so that the resource may be absent from it although it exists.
	late bool

	// uncertain is true if the server may have the name in its list from an earlier
	// subscription on this stream.
	uncertain bool
	omissions uint8 // requests that left the name out while uncertain
	// lastNamed and lastOmitted are the numbers of the last requests with and
	// without the name. lastOmitted is maintained only while uncertain.
	lastNamed, lastOmitted uint64
}

// nackInterval is the minimum time between two NACKs of the same version: some servers
// answer each NACK with the same version at once.
const nackInterval = time.Second

// maxOmissions is how many requests leave an uncertain name out. They have no effect
// only if the server does not wait for ACKs and as many of its responses cross them.
const maxOmissions = 5

// stage is how far the request for a resource is on the current stream.
type stage uint8

const (
	notRequested   stage = iota // not in a request that was sent
	requested                   // sent; the timeout is running
	silentTimeout               // the timeout expired, and the server has sent nothing at all
	received                    // the resource, valid or not, or an error for it
	requestTimeout              // the timeout expired
)

// removal is a name that was unsubscribed.
type removal struct {
	lastNamed uint64
	since     time.Time // when the first request without the name was made; zero before
}

// removalMemory is how long a removed name is remembered after the first request
// without it. A response that crossed that request has arrived by then, and the
// requests that followed it have reached the server.
const removalMemory = time.Minute

func newSubscriptions(t resource.Type) *subscriptions {
	return &subscriptions{kind: t, names: map[string]*subscription{}, removed: map[string]removal{}}
}

// subscribe adds a name to the next request.
func (t *subscriptions) subscribe(name string) {
	s := &subscription{name: name}
	if r, ok := t.removed[name]; ok {
		delete(t.removed, name)
		s.uncertain, s.lastNamed = true, r.lastNamed
		if t.requests > r.lastNamed {
			s.lastOmitted = t.requests
		}
	}
	t.names[name] = s
	t.sorted, t.pending = nil, true
}

// unsubscribe removes a name from the next request.
func (t *subscriptions) unsubscribe(name string) {
	s := t.names[name]
	delete(t.names, name)
	t.sorted, t.pending = nil, true
	if s.lastNamed > 0 {
		t.removed[name] = removal{lastNamed: s.lastNamed}
	}
}

// newStream resets the state of the stream. Everything is requested again, with a new
// timeout.
func (t *subscriptions) newStream() {
	t.nonce, t.nackDetail, t.unread = "", "", false
	t.requests, t.responded = 0, 0
	t.pending = true
	t.nackedVersion, t.holdUntil = nil, time.Time{}
	clear(t.removed)
	for _, s := range t.names {
		*s = subscription{name: s.name, stage: s.stage}
		if s.stage == requested || s.stage == silentTimeout {
			s.stage = notRequested
		}
	}
}

// waiting reports whether a resource is neither received nor timed out.
func (t *subscriptions) waiting() bool {
	for _, s := range t.names {
		if s.stage == notRequested || s.stage == requested {
			return true
		}
	}
	return false
}

// restartSilent marks the subscriptions that timed out while the server was silent as
// requested, and returns them: their timeout starts again.
func (t *subscriptions) restartSilent() []*subscription {
	var again []*subscription
	for _, s := range t.names {
		if s.stage == silentTimeout {
			s.stage = requested
			again = append(again, s)
		}
	}
	return again
}

// handleResponse records a response. The next request acknowledges or rejects it.
func (t *subscriptions) handleResponse(r *response) {
	t.nonce, t.nackDetail, t.unread, t.pending = r.nonce, r.nackDetail, r.unread, true
	t.responded = t.requests
	switch {
	case r.nackDetail == "":
		t.version, t.nackedVersion, t.holdUntil = r.version, nil, time.Time{}
	case t.nackedVersion != nil && *t.nackedVersion == r.version:
		t.holdUntil = t.nackedAt.Add(nackInterval)
	default:
		t.nackedVersion, t.holdUntil = &r.version, time.Time{}
	}
	for i := range r.resources {
		t.markReceived(r.resources[i].item.Key.Name)
	}
	for i := range r.errors {
		t.markReceived(r.errors[i].Key.Name)
	}
}

// markReceived records that the server sent a resource, or an error for it.
func (t *subscriptions) markReceived(name string) {
	if s := t.names[name]; s != nil {
		s.stage, s.late, s.uncertain = received, false, false
	}
}

// expire records the timeout of a resource. It restarts with the first response of a
// server that was silent.
func (s *subscription) expire(silent bool) {
	s.late, s.uncertain = false, false
	if s.stage = requestTimeout; silent {
		s.stage = silentTimeout
	}
}

func (t *subscriptions) requestDue(now time.Time) bool {
	if t.requests == 0 && len(t.names) == 0 {
		// An empty first request would subscribe to all resources.
		t.pending = false
	}
	return t.pending && !now.Before(t.holdUntil)
}

// nextRequest makes the next request. It also returns the subscriptions whose timeout
// starts when the request is sent.
func (t *subscriptions) nextRequest(node *corev3.Node, now time.Time) (*discoveryv3.DiscoveryRequest, []*subscription) {
	t.requests++
	names, fresh := t.choose()
	r := &discoveryv3.DiscoveryRequest{
		VersionInfo:   t.version,
		Node:          node,
		ResourceNames: names,
		TypeUrl:       t.kind.URL(),
		ResponseNonce: t.nonce,
	}
	if t.nackDetail != "" {
		r.ErrorDetail = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: t.nackDetail}
		t.nackedAt = now
	}
	t.nackDetail = ""
	t.ageRemovals(now)
	return r, fresh
}

// choose returns the names for the request that is being made, and the subscriptions
// that it requests for the first time on the stream. It sets pending if it leaves a
// name out, which the next request then has.
func (t *subscriptions) choose() (names []string, fresh []*subscription) {
	if t.sorted == nil {
		t.sorted = slices.AppendSeq(make([]string, 0, len(t.names)), maps.Keys(t.names))
		slices.Sort(t.sorted)
	}
	names, t.pending = t.sorted, false
	var omitted []string
	for _, name := range t.sorted {
		s := t.names[name]
		if s.uncertain && s.omissions < maxOmissions && s.lastOmitted <= t.responded {
			s.lastOmitted, t.pending = t.requests, true
			s.omissions++
			omitted = append(omitted, name)
			continue
		}
		s.late = s.late || t.requests > 1 && !s.named && s.stage == notRequested
		s.named, s.lastNamed = true, t.requests
		if s.stage == notRequested {
			fresh = append(fresh, s)
		}
	}
	if len(omitted) > 0 {
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool {
			_, found := slices.BinarySearch(omitted, n)
			return found
		})
	}
	return names, fresh
}

func (t *subscriptions) ageRemovals(now time.Time) {
	for name, r := range t.removed {
		switch {
		case r.since.IsZero():
			r.since = now
			t.removed[name] = r
		case now.Sub(r.since) > removalMemory:
			delete(t.removed, name)
		}
	}
}
