package observe

import (
	"cmp"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/xds/resource"
)

// The limits of remembered events. Frequent ones have limits of their own, so that they
// evict no others.
const (
	MaxEvents           = 4096
	MaxConnectionEvents = 1024
	MaxBreakerEvents    = 1024 // circuit breakers
	MaxSourceEvents     = 1024 // changes by management servers and by DNS
	MaxRefusedEvents    = 1024 // rejected pushes and resources
)

// EventType is the kind of an event.
type EventType string

// The types of events.
const (
	EventPrioritySwitched  EventType = "priority_switched"
	EventLeafSkipped       EventType = "leaf_skipped"
	EventLeafRestored      EventType = "leaf_restored"
	EventStateChanged      EventType = "state_changed"
	EventConnectionChanged EventType = "connection_changed"
	EventEjected           EventType = "ejected"
	EventUnejected         EventType = "unejected"
	EventBreakerOpened     EventType = "circuit_breaker_opened"
	EventBreakerClosed     EventType = "circuit_breaker_closed"
	EventPushed            EventType = "pushed"
	EventPushRefused       EventType = "push_refused"
	EventFileRefused       EventType = "file_refused"
	EventFileAccepted      EventType = "file_accepted"
	EventFileChanged       EventType = "file_changed"
	EventChangeHeld        EventType = "change_held"
	EventChangePermitted   EventType = "change_permitted"
	EventXDSChanged        EventType = "xds_changed"
	EventDNSChanged        EventType = "dns_changed"
	EventStoreFailing      EventType = "store_failing"
	EventStoreRecovered    EventType = "store_recovered"
	EventXDSConnected      EventType = "xds_connected"
	EventXDSDisconnected   EventType = "xds_disconnected"
	EventXDSRejected       EventType = "xds_rejected"
	EventXDSResourceError  EventType = "xds_resource_error"
	EventXDSFellBack       EventType = "xds_fell_back"
	EventXDSReturned       EventType = "xds_returned"
	EventShortageBegan     EventType = "shortage_began"
	EventShortageEnded     EventType = "shortage_ended"
	EventLeasesEnded       EventType = "leases_ended"
	EventStreamsEnded      EventType = "streams_ended"
)

// EventTypes are all types of events.
var EventTypes = []EventType{
	EventPrioritySwitched, EventLeafSkipped, EventLeafRestored, EventStateChanged, EventConnectionChanged, EventEjected, EventUnejected,
	EventBreakerOpened, EventBreakerClosed,
	EventPushed, EventPushRefused, EventFileRefused, EventFileAccepted, EventFileChanged,
	EventChangeHeld, EventChangePermitted, EventXDSChanged, EventDNSChanged, EventStoreFailing, EventStoreRecovered,
	EventXDSConnected, EventXDSDisconnected, EventXDSRejected, EventXDSResourceError, EventXDSFellBack, EventXDSReturned,
	EventShortageBegan, EventShortageEnded, EventLeasesEnded, EventStreamsEnded,
}

// Event is something that happened.
type Event struct {
	// ID grows with every event of the process.
	ID      uint64    `json:"id"`
	Time    time.Time `json:"time"`
	Type    EventType `json:"type" enums:"priority_switched,leaf_skipped,leaf_restored,state_changed,connection_changed,ejected,unejected,circuit_breaker_opened,circuit_breaker_closed,pushed,push_refused,file_refused,file_accepted,file_changed,change_held,change_permitted,xds_changed,dns_changed,store_failing,store_recovered,xds_connected,xds_disconnected,xds_rejected,xds_resource_error,xds_fell_back,xds_returned,shortage_began,shortage_ended,leases_ended,streams_ended"`
	Cluster string    `json:"cluster,omitempty"`
	// Target is the xds target in whose tree it happened; absent for the cluster's own
	// tree.
	Target string `json:"target,omitempty"`
	// Says describes the event in a sentence.
	Says string `json:"says"`
	// The previous connectivity state, priority or management server.
	From string `json:"from,omitempty"`
	// The new connectivity state, priority or management server.
	To     string `json:"to,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Leaf is the leaf cluster, if the cluster is an AGGREGATE.
	Leaf string `json:"leaf,omitempty"`
	// Address is the endpoint's.
	Address string `json:"address,omitempty"`
	Error   string `json:"error,omitempty"`
	// Until is when an ejection may end: it ends with the next interval of outlier
	// detection after that time.
	Until *time.Time `json:"until,omitempty"`
	// By is the client that pushed, and its address.
	By   string `json:"by,omitempty"`
	File string `json:"file,omitempty"`
	// Server is the management server's URI.
	Server string `json:"server,omitempty"`
	// Resource is what was rejected, such as "Cluster/orders".
	Resource string `json:"resource,omitempty"`
	// Version is the version_info of the response that was rejected.
	Version string              `json:"version,omitempty"`
	Changes []difference.Change `json:"changes,omitempty"`
	// Hash identifies the held change.
	Hash string `json:"hash,omitempty"`
}

// Events remembers the last events. Its methods may be called from any goroutine.
type Events struct {
	log   *slog.Logger
	added lb.Signal

	mu          sync.Mutex // guards what follows
	before      uint64     // the ID before the first event's
	last        uint64
	others      ring
	connections ring
	breakers    ring
	refused     ring
	sources     ring
}

func (es *Events) ring(t EventType) *ring {
	switch t {
	case EventConnectionChanged:
		return &es.connections
	case EventBreakerOpened, EventBreakerClosed:
		return &es.breakers
	case EventPushRefused, EventXDSRejected, EventXDSResourceError:
		return &es.refused
	case EventXDSChanged, EventDNSChanged:
		return &es.sources
	default:
		return &es.others
	}
}

// ring holds the newest events that fit.
type ring struct {
	max       int
	kept      []*remembered
	first     int    // the oldest, once kept is full
	forgotten uint64 // the ID of the last event that was evicted
}

// remembered is an event as it is kept. It is never changed.
type remembered struct {
	Event

	json atomic.Pointer[[]byte] // set when the first watcher receives it
}

// NewEvents returns an empty Events. IDs begin with the time, so that the ID of another
// process is unknown in this one.
func NewEvents(log *slog.Logger) *Events {
	begin := uint64(time.Now().UnixMicro())
	return &Events{
		log: log, before: begin, last: begin,
		others: ring{max: MaxEvents}, connections: ring{max: MaxConnectionEvents},
		breakers: ring{max: MaxBreakerEvents}, refused: ring{max: MaxRefusedEvents}, sources: ring{max: MaxSourceEvents},
	}
}

func (r *ring) add(e *remembered) {
	if len(r.kept) < r.max {
		r.kept = append(r.kept, e)
		return
	}
	r.forgotten = r.kept[r.first].ID
	r.kept[r.first] = e
	r.first = (r.first + 1) % r.max
}

// Add remembers an event, and gives it its ID and time.
func (es *Events) Add(e Event) {
	es.mu.Lock()
	defer es.mu.Unlock()
	es.last++
	e.ID, e.Time = es.last, time.Now().UTC()
	es.ring(e.Type).add(&remembered{Event: e})
	es.added.Notify()
}

// EventFilter chooses events.
type EventFilter struct {
	// Cluster, Target and Types are empty for any. A push of several clusters matches
	// each cluster whose resources it lists as changed.
	Cluster string
	Target  string
	Types   []EventType
	// Scope is that of the caller, from whom events and changes of other clusters and
	// targets are hidden. Of events that name neither, those about the daemon and the
	// connections to management servers are visible.
	Scope *ledger.Scope
	// Limit is the maximum number of events.
	Limit int
}

func (f EventFilter) matches(e *remembered) bool {
	return (f.Cluster == "" || e.Cluster == f.Cluster || e.changes(f.Cluster)) &&
		(f.Target == "" || e.Target != "" && ledger.TargetKey(e.Target) == ledger.TargetKey(f.Target)) &&
		(len(f.Types) == 0 || slices.Contains(f.Types, e.Type))
}

// changes reports whether e lists a change of a resource of the cluster's name.
func (e *remembered) changes(cluster string) bool {
	return slices.ContainsFunc(e.Changes, func(c difference.Change) bool {
		key := c.Key()
		return key.Name == cluster && (key.Type == resource.TypeCluster || key.Type == resource.TypeAssignment)
	})
}

// Last returns the last events that f selects, the newest first.
func (es *Events) Last(f EventFilter) []Event {
	es.mu.Lock()
	found := es.since(0, f)
	es.mu.Unlock()
	found = f.last(f.visible(found))
	out := make([]Event, len(found))
	for i, e := range found {
		out[len(found)-1-i] = e.Event
	}
	return out
}

func (f EventFilter) last(all []*remembered) []*remembered { return all[max(0, len(all)-f.Limit):] }

// since returns the events after an ID that f selects, in any scope, the oldest first. It is
// called under es.mu.
func (es *Events) since(id uint64, f EventFilter) []*remembered {
	var found []*remembered
	for _, r := range es.rings(f) {
		for i := range r.kept { // from the newest back
			e := r.kept[(r.first+len(r.kept)-1-i)%len(r.kept)]
			if e.ID <= id {
				break
			}
			if f.matches(e) {
				found = append(found, e)
			}
		}
	}
	slices.SortFunc(found, func(a, b *remembered) int { return cmp.Compare(a.ID, b.ID) })
	return found
}

// rings returns the rings that may have events that f selects.
func (es *Events) rings(f EventFilter) []*ring {
	if len(f.Types) == 0 {
		return []*ring{&es.others, &es.connections, &es.breakers, &es.refused, &es.sources}
	}
	var out []*ring
	for _, t := range f.Types {
		if r := es.ring(t); !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// MaxLastEvents is the maximum number of past events that a watch begins with.
const MaxLastEvents = 1000

const (
	// pageOfEvents is how many events a watcher reads at a time.
	pageOfEvents = 64
	// maxKeptJSON is the maximum size of JSON that is cached with its event.
	maxKeptJSON = 16 << 10
)

// WatchEvents watches the events that f selects, the oldest first: those after lastID or,
// if that is empty, the last f.Limit and all later ones. A message "event" has one
// [Event]. A message "resync" without data means that events after lastID were evicted,
// or that lastID is of another process. It fails with RateLimited and ShuttingDown.
func (ws *Watches) WatchEvents(f EventFilter, lastID string) (*Watch, error) {
	return ws.admit(func() (reader, *sharedFeed, error) {
		es := ws.state.options.Events
		es.mu.Lock()
		defer es.mu.Unlock()
		r := &eventReader{events: es, filter: f, at: es.last}
		switch {
		case lastID != "":
			r.at, _ = strconv.ParseUint(lastID, 10, 64) // an ID that is not a number is unknown
		case f.Limit > 0:
			r.past = es.since(0, f)
		}
		return r, nil, nil
	})
}

// eventReader is the position of a watcher of events.
type eventReader struct {
	events *Events
	filter EventFilter
	at     uint64        // the last event that was read
	past   []*remembered // events to begin with, before the filter's scope and limit
	page   []*remembered // to be sent next
}

func (r *eventReader) next() (*Message, <-chan struct{}) {
	if r.past != nil {
		r.page, r.past = r.filter.last(r.filter.visible(r.past)), nil
	}
	for len(r.page) == 0 {
		if forgotten, more := r.turn(); forgotten {
			return &Message{Type: "resync", ID: strconv.FormatUint(r.at, 10), Data: whole([]byte("{}"))}, nil
		} else if more != nil {
			return nil, more
		}
	}
	e := r.page[0]
	r.page = r.page[1:]
	return &Message{Type: "event", ID: strconv.FormatUint(e.ID, 10), Data: whole(e.encoded())}, nil
}

func (r *eventReader) close() {}

// position is the ID after which the watch resumes: that of the last event that was read, which
// the filter may not have selected.
func (r *eventReader) position() string {
	if r.past != nil || len(r.page) > 0 {
		return ""
	}
	return strconv.FormatUint(r.at, 10)
}

// turn reads the next page, which is empty if the filter's scope has none of its events. If there
// are no more events, it returns a channel that is closed when there may be some. If events of
// the page were evicted, it skips all events up to now.
func (r *eventReader) turn() (forgotten bool, more <-chan struct{}) {
	forgotten, more = r.read()
	r.page = r.filter.visible(r.page)
	return forgotten, more
}

func (r *eventReader) read() (forgotten bool, more <-chan struct{}) {
	es := r.events
	more = es.added.Wait()
	es.mu.Lock()
	defer es.mu.Unlock()
	if es.forgot(r.at, r.filter) {
		r.at = es.last
		return true, nil
	}
	r.page, r.at = es.since(r.at, r.filter), es.last
	if len(r.page) > pageOfEvents {
		r.page = slices.Clone(r.page[:pageOfEvents])
		r.at = r.page[pageOfEvents-1].ID
	}
	if len(r.page) > 0 {
		return false, nil
	}
	return false, more
}

// forgot reports whether an event after an ID that f may select was evicted, or the ID
// is of another process. It is called under es.mu.
func (es *Events) forgot(id uint64, f EventFilter) bool {
	if id < es.before || id > es.last {
		return true
	}
	return slices.ContainsFunc(es.rings(f), func(r *ring) bool { return r.forgotten > id })
}

// encoded returns the event as JSON, encoded once for all watchers.
func (e *remembered) encoded() []byte {
	if b := e.json.Load(); b != nil {
		return *b
	}
	b := encode(e.Event)
	if len(b) <= maxKeptJSON {
		e.json.Store(&b)
	}
	return b
}

// visible returns the events as a caller with the filter's scope sees them. It is called
// without es.mu: matching many patterns takes time.
func (f EventFilter) visible(all []*remembered) []*remembered {
	if f.Scope.All() {
		return all
	}
	out := make([]*remembered, 0, len(all))
	for _, e := range all {
		if seen := e.within(f.Scope); seen != nil {
			out = append(out, seen)
		}
	}
	return out
}

// namelessEvents are the types of events that are about the daemon or a management server,
// whose texts name no cluster and no target.
var namelessEvents = []EventType{
	EventStoreFailing, EventStoreRecovered, EventXDSConnected, EventXDSDisconnected, EventShortageBegan, EventShortageEnded,
}

// within returns the event without what is out of a scope; nil if the scope does not have it.
//
// An event of a cluster or target is in the scope if its cluster and its target are. One of
// several resources is about those of its changes that are in the scope. Any other event is
// visible only if its type is one of namelessEvents. No file names are shown: they may name
// clusters. Held changes are not visible.
func (e *remembered) within(s *ledger.Scope) *remembered {
	if !s.Cluster(e.Cluster) || !s.Target(e.Target) || e.Type == EventChangeHeld { // its reason counts all clusters
		return nil
	}
	out := e.Event
	out.File = ""
	switch {
	case e.Cluster != "" || e.Target != "":
		out.Changes = changesWithin(e.Changes, s)
		if e.File == "" && len(out.Changes) == len(e.Changes) {
			return e
		}
	case len(e.Changes) > 0:
		if out.Changes = changesWithin(e.Changes, s); len(out.Changes) == 0 {
			return nil
		}
		out.Says = difference.Summary(out.Changes)
	case !slices.Contains(namelessEvents, e.Type):
		return nil
	case e.Type == EventShortageBegan:
		out.Error = "" // may have the address of an endpoint
	}
	return &remembered{Event: out}
}

func changesWithin(all []difference.Change, s *ledger.Scope) []difference.Change {
	var out []difference.Change
	for _, c := range all {
		if s.Resource(c.Key()) {
			out = append(out, c)
		}
	}
	return out
}
