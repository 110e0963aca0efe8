package observe

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"
	"weak"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/wake"
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
	EventOverlaySet        EventType = "overlay_set"
	EventOverlayEnded      EventType = "overlay_ended"
	EventExpiryDeferred    EventType = "expiry_deferred"
	EventFileRefused       EventType = "file_refused"
	EventFileAccepted      EventType = "file_accepted"
	EventFileChanged       EventType = "file_changed"
	EventChangeHeld        EventType = "change_held"
	EventChangePermitted   EventType = "change_permitted"
	EventCoveredChanged    EventType = "covered_changed"
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
	EventPushed, EventPushRefused, EventOverlaySet, EventOverlayEnded, EventExpiryDeferred, EventFileRefused, EventFileAccepted, EventFileChanged,
	EventChangeHeld, EventChangePermitted, EventCoveredChanged, EventXDSChanged, EventDNSChanged, EventStoreFailing, EventStoreRecovered,
	EventXDSConnected, EventXDSDisconnected, EventXDSRejected, EventXDSResourceError, EventXDSFellBack, EventXDSReturned,
	EventShortageBegan, EventShortageEnded, EventLeasesEnded, EventStreamsEnded,
}

// Event is something that happened.
type Event struct {
	// ID grows with every event of the process.
	ID      uint64    `json:"id"`
	Time    time.Time `json:"time"`
	Type    EventType `json:"type" enums:"priority_switched,leaf_skipped,leaf_restored,state_changed,connection_changed,ejected,unejected,circuit_breaker_opened,circuit_breaker_closed,pushed,push_refused,overlay_set,overlay_ended,expiry_deferred,file_refused,file_accepted,file_changed,change_held,change_permitted,covered_changed,xds_changed,dns_changed,store_failing,store_recovered,xds_connected,xds_disconnected,xds_rejected,xds_resource_error,xds_fell_back,xds_returned,shortage_began,shortage_ended,leases_ended,streams_ended"`
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
	added wake.All

	mu     sync.Mutex // guards what follows
	before uint64     // the ID before the first event's
	last   uint64
	rings  []*ring
}

// ring returns the ring of a type: that of all others is the last one.
func (es *Events) ring(t EventType) *ring {
	at := slices.IndexFunc(es.rings, func(r *ring) bool { return r.types == nil || slices.Contains(r.types, t) })
	return es.rings[at]
}

// ring holds the newest events that fit.
type ring struct {
	types     []EventType // nil for all that are in no other ring
	max       int
	kept      []*remembered
	first     int    // the oldest, once kept is full
	forgotten uint64 // the ID of the last event that was evicted
}

// remembered is an event as it is kept. It is never changed.
type remembered struct {
	Event

	mu    sync.Mutex            // guards the following, which the first watcher sets
	small *Message              // nil for a large one
	large weak.Pointer[Message] // kept only while watchers receive it
}

// NewEvents returns an empty Events. IDs begin with the time, so that the ID of another
// process is unknown in this one.
func NewEvents(log *slog.Logger) *Events {
	begin := uint64(time.Now().UnixMicro())
	return &Events{
		log: log, before: begin, last: begin,
		rings: []*ring{
			{max: MaxConnectionEvents, types: []EventType{EventConnectionChanged}},
			{max: MaxBreakerEvents, types: []EventType{EventBreakerOpened, EventBreakerClosed}},
			{max: MaxRefusedEvents, types: []EventType{EventPushRefused, EventXDSRejected, EventXDSResourceError}},
			{max: MaxSourceEvents, types: []EventType{EventXDSChanged, EventDNSChanged, EventCoveredChanged}},
			{max: MaxEvents},
		},
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

// refused returns the last refusal of each cluster that was pushed, by its name, and of each resource of a
// management server.
func (es *Events) refused() map[string]*remembered {
	es.mu.Lock()
	defer es.mu.Unlock()
	out := make(map[string]*remembered)
	for _, e := range es.ring(EventPushRefused).kept {
		if of := cmp.Or(e.Resource, e.Cluster); out[of] == nil || out[of].ID < e.ID {
			out[of] = e
		}
	}
	return out
}

// StreamsEnded adds an event: streams and long polls of callers without identity were ended because
// lbd is overloaded.
func (es *Events) StreamsEnded(n int) {
	es.Add(Event{
		Type: EventStreamsEnded,
		Says: fmt.Sprintf("lbd is overloaded: streams and long polls of callers without identity were ended: %d", n),
	})
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
	for _, r := range es.ringsOf(f) {
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

// ringsOf returns the rings that may have events that f selects.
func (es *Events) ringsOf(f EventFilter) []*ring {
	if len(f.Types) == 0 {
		return es.rings
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
	// maxKeptJSON is the maximum size of JSON that is kept with its event.
	maxKeptJSON = 8 << 10
)

// WatchEvents watches the events that f selects, the oldest first: those after lastID or,
// if that is empty, the last f.Limit and all later ones. A message "event" has one
// [Event]. A message "resync" without data means that events after lastID were evicted,
// or that lastID is of another process. It fails with RateLimited and ShuttingDown.
func (ws *Watches) WatchEvents(f EventFilter, lastID string) (*Watch, error) {
	return ws.admit(func() (reader, *sharedFeed, error) {
		es := ws.state.options.Events
		feed, shared := join(ws, "events", func() *eventFeed { return &eventFeed{events: es} })
		r := &eventReader{subscriber: feed.add(), events: es, filter: f}
		if lastID != "" {
			r.at, _ = strconv.ParseUint(lastID, 10, 64) // an ID that is not a number is unknown
			return r, shared, nil
		}
		es.mu.Lock()
		defer es.mu.Unlock()
		r.at, r.past = es.last, f.Limit > 0
		return r, shared, nil
	})
}

// eventFeed notifies watchers of events.
type eventFeed struct {
	subscribers
	events *Events
}

func (f *eventFeed) run(ctx context.Context) {
	for {
		added := f.events.added.Wait()
		f.notify(ctx)
		select {
		case <-added:
		case <-ctx.Done():
			return
		}
	}
}

// eventReader is the position of a watcher of events.
type eventReader struct {
	*subscriber

	events *Events
	filter EventFilter
	at     uint64        // the last event that was read
	past   bool          // the watch begins with the last events
	page   []*remembered // to be sent next
}

func (r *eventReader) next() (m *Message, more bool) {
	for len(r.page) == 0 {
		switch forgotten, found := r.turn(); {
		case forgotten:
			return &Message{Type: "resync", ID: strconv.FormatUint(r.at, 10), Data: []byte("{}")}, true
		case !found:
			return nil, true
		}
	}
	e := r.page[0]
	if r.page = r.page[1:]; len(r.page) == 0 {
		r.page = nil
	}
	return e.message(), true
}

// position is the ID after which the watch resumes: that of the last event that was read, which
// the filter may not have selected.
func (r *eventReader) position() string {
	if r.past || len(r.page) > 0 {
		return ""
	}
	return strconv.FormatUint(r.at, 10)
}

// turn reads the next page, which is empty if the filter's scope has none of its events. found is
// false if there are no more events. If events of the page were evicted, it skips all events up to
// now.
func (r *eventReader) turn() (forgotten, found bool) {
	past := r.past
	forgotten, found = r.read()
	r.page = r.filter.visible(r.page)
	if past {
		r.page = slices.Clone(r.filter.last(r.page))
	}
	return forgotten, found
}

func (r *eventReader) read() (forgotten, found bool) {
	es := r.events
	es.mu.Lock()
	defer es.mu.Unlock()
	if r.past { // before the filter's scope and limit
		r.page, r.at, r.past = es.since(0, r.filter), es.last, false
		return false, len(r.page) > 0
	}
	if es.forgot(r.at, r.filter) {
		r.at = es.last
		return true, false
	}
	r.page, r.at = es.since(r.at, r.filter), es.last
	if len(r.page) > pageOfEvents {
		r.page = slices.Clone(r.page[:pageOfEvents])
		r.at = r.page[pageOfEvents-1].ID
	}
	return false, len(r.page) > 0
}

// forgot reports whether an event after an ID that f may select was evicted, or the ID
// is of another process. It is called under es.mu.
func (es *Events) forgot(id uint64, f EventFilter) bool {
	if id < es.before || id > es.last {
		return true
	}
	return slices.ContainsFunc(es.ringsOf(f), func(r *ring) bool { return r.forgotten > id })
}

// message returns the event as a message, which all watchers share.
func (e *remembered) message() *Message {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.small
	if m == nil {
		m = e.large.Value()
	}
	if m != nil {
		return m
	}
	m = &Message{Type: "event", ID: strconv.FormatUint(e.ID, 10), Data: encode(e.Event)}
	if len(m.Data) <= maxKeptJSON {
		e.small = m
	} else {
		e.large = weak.Make(m)
	}
	return m
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
	return slices.DeleteFunc(slices.Clone(all), func(c difference.Change) bool { return !s.Resource(c.Key()) })
}
