package observe

import (
	"fmt"
	"log/slog"
	"strconv"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
)

// Report counts, remembers and logs the events of a target's channel. The owner of the
// channel's tree calls it.
func (es *Events) Report(t *ledger.Target, events []policy.Event) {
	if len(events) == 0 {
		return
	}
	if v := t.View(); v != nil && v.Only != nil && !v.Only.Known() {
		return // only picks have named the cluster
	}
	h := treeEvents{t, es, es.log}
	if t.Label != "" {
		h.log = h.log.With("target", t.Label)
	}
	for _, e := range events {
		h.handle(e)
	}
}

type treeEvents struct {
	*ledger.Target

	events *Events
	log    *slog.Logger
}

func (t treeEvents) add(e Event) {
	e.Target = t.Label
	t.events.Add(e)
}

func (t treeEvents) handle(e policy.Event) {
	log := t.log
	switch e := e.(type) {
	case policy.PrioritySwitched:
		if e.From >= 0 { // the first priority is not a switch
			t.Cluster(e.Root).Switches.Add(e.Reason)
		}
		t.add(Event{
			Type: EventPrioritySwitched, Cluster: e.Cluster, Says: e.Detail,
			From: priorityName(e.From), To: priorityName(e.To), Reason: string(e.Reason),
		})
		log.Info("priority switched", "cluster", e.Cluster, "from", e.From, "to", e.To,
			"reason", string(e.Reason), "detail", e.Detail)
	case policy.LeafChanged:
		if e.Err == nil {
			t.add(Event{Type: EventLeafRestored, Cluster: e.Cluster, Leaf: e.Leaf, Says: fmt.Sprintf("leaf %s is no longer skipped", e.Leaf)})
			log.Info("leaf of aggregate restored", "cluster", e.Cluster, "leaf", e.Leaf)
			return
		}
		t.add(Event{
			Type: EventLeafSkipped, Cluster: e.Cluster, Leaf: e.Leaf,
			Says: fmt.Sprintf("leaf %s is skipped: %v", e.Leaf, e.Err), Error: e.Err.Error(),
		})
		log.Warn("leaf of aggregate skipped", "cluster", e.Cluster, "leaf", e.Leaf, "error", e.Err)
	case policy.StateChanged:
		t.add(Event{
			Type: EventStateChanged, Cluster: e.Cluster, Says: "the cluster is " + e.To.String(), From: e.From.String(), To: e.To.String(),
		})
		log.Info("cluster state changed", "cluster", e.Cluster, "from", e.From.String(), "to", e.To.String())
	case policy.ConnectionChanged:
		t.connectionChanged(e)
	case policy.EjectionSpared:
		t.Cluster(e.Root).Totals.Ejections.Add(false)
	case policy.Ejected:
		t.Cluster(e.Root).Totals.Ejections.Add(true)
		t.add(Event{
			Type: EventEjected, Cluster: e.Cluster, Says: "the endpoint is ejected: " + e.Reason,
			Reason: e.Reason, Address: e.Address, Until: Optional(e.Until),
		})
		log.Warn("endpoint ejected", "cluster", e.Cluster, "address", e.Address, "reason", e.Reason, "until", e.Until.UTC())
	case policy.Unejected:
		t.add(Event{Type: EventUnejected, Cluster: e.Cluster, Says: "the endpoint is no longer ejected", Address: e.Address})
		log.Info("endpoint unejected", "cluster", e.Cluster, "address", e.Address)
	}
}

func (t treeEvents) connectionChanged(e policy.ConnectionChanged) {
	var says string
	counts := t.Cluster(e.Root).Counts
	switch {
	case e.To == connectivity.Ready:
		counts.Connects.Add("ok")
		says = "connected"
	case e.From == connectivity.Ready && e.To == connectivity.TransientFailure:
		counts.Losses.Add("lost")
		says = "connection lost immediately"
	case e.To == connectivity.TransientFailure:
		counts.Connects.Add("error")
		says = "could not connect"
	case e.From == connectivity.Ready:
		counts.Losses.Add("lost")
		says = "connection lost"
	default:
		return // connecting, or waiting to
	}
	event := Event{
		Type: EventConnectionChanged, Cluster: e.Cluster, Says: says, Address: e.Address, From: e.From.String(), To: e.To.String(), Error: fault.Text(e.Err),
	}
	t.add(event)
	t.log.Debug("connection changed", "cluster", e.Cluster, "address", e.Address, "from", event.From, "to", event.To, "error", event.Error)
}

func priorityName(p int) string {
	if p < 0 {
		return "none"
	}
	return strconv.Itoa(p)
}

// BreakerFull reports the circuit breakers of a cluster that have reached their limits.
// It is called when one has refused a pick.
func (es *Events) BreakerFull(m *ledger.Cluster) {
	for _, l := range m.Leaves {
		if l.Counters.Breaker.Filled(l.Limit()) {
			es.Add(Event{Type: EventBreakerOpened, Cluster: l.Cluster.Name, Says: "the circuit breaker is full: picks are refused"})
			es.log.Warn("circuit breaker opened", "cluster", l.Cluster.Name)
		}
	}
}

// BreakerEased reports the circuit breakers of a cluster that admit picks again. It is
// called after a lease ended or a limit changed.
func (es *Events) BreakerEased(m *ledger.Cluster) {
	for _, l := range m.Leaves {
		if l.Counters.Breaker.Eased(l.Limit()) {
			es.Add(Event{Type: EventBreakerClosed, Cluster: l.Cluster.Name, Says: "the circuit breaker admits picks again"})
			es.log.Info("circuit breaker closed", "cluster", l.Cluster.Name)
		}
	}
}
