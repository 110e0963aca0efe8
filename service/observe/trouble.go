package observe

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Trouble is why picks from a cluster, or requests to its endpoints, fail now.
type Trouble struct {
	// Fails is what fails. Requests are those that callers have reported or had leases for.
	Fails string `json:"fails" enums:"picks,requests"`
	// Target is the xds target whose picks fail; absent for picks from the cluster itself.
	Target string `json:"target,omitempty"`
	// Cause is what is wrong.
	Cause string `json:"cause" example:"cannot connect to 10.0.0.7:8080 and 3 others: connection refused"`
	// Since is when it began; absent if that is not known.
	Since time.Time `json:"since,omitzero" validate:"optional"`
	// Checks is the path of a report that says what to do.
	Checks string `json:"checks" example:"/v1/doctor?cluster=orders&dial=true"`
	// Ejecting is whether picks fail at times because outlier detection ejects endpoints.
	Ejecting bool `json:"-"`
}

// String is the cause with its time; empty without trouble.
func (t *Trouble) String() string {
	if t == nil || t.Since.IsZero() {
		return cmp.Or(t, &Trouble{}).Cause
	}
	return t.Cause + ", since " + t.Since.Format(time.RFC3339)
}

// troubleOf returns why picks or requests of a cluster fail; nil if they do not.
func troubleOf(m *ledger.Cluster) *Trouble {
	out := &Trouble{Fails: "picks", Target: m.Target.Label}
	refusing, failing := m.Refusing.Now(), m.Totals.Failing.Now()
	if refusing != nil {
		out.Since = refusing.Since
	}
	switch sum := m.Target.Channel.ClusterSummary(m.Name); {
	case m.Target.Channel.Warming():
		out.Cause, out.Since = unusable(m), ledger.Updated(m.ClusterConfig())
	case sum.State == connectivity.TransientFailure:
		out.Cause, out.Since = causeOf(&sum), sum.Since
	}
	if limit := limited(m); out.Cause == "" && limit != "" {
		now := time.Now()
		m.Limited.CompareAndSwap(nil, &now) // else the next second notes it
		out.Cause, out.Since = limit, *cmp.Or(m.Limited.Load(), &now)
	}
	switch {
	case out.Cause != "":
	case refusing != nil && (failing == nil || failing.Percent < refusing.Percent):
		code := fault.Code(refusing.Kind)
		out.Cause = fmt.Sprintf("%d %% of the picks fail: %s", refusing.Percent, cmp.Or(refusals[code], refusing.Kind))
		ejected := m.Ejected.Load()
		if out.Ejecting = code == fault.NoReadyEndpoint && ejected != nil && time.Since(*ejected) < ejectedAge; out.Ejecting {
			out.Cause += ", because outlier detection ejects endpoints whose requests fail too often"
		}
	case failing != nil:
		out.Fails, out.Since = "requests", failing.Since
		out.Cause = fmt.Sprintf("%d %% of the requests fail at the endpoints, as callers report", failing.Percent)
	default:
		return nil
	}
	out.Since = out.Since.UTC().Truncate(time.Millisecond)
	out.Checks = "/v1/doctor?" + url.Values{"cluster": {m.Name}, "dial": {"true"}}.Encode()
	return out
}

// ejectedAge is how long ejections count as why no endpoint was READY: as long as failed picks do.
const ejectedAge = time.Minute

// refusals say why picks fail, by the code of their error.
var refusals = map[fault.Code]string{
	fault.CircuitBroken:   "the circuit breaker is full at times",
	fault.NoReadyEndpoint: "no endpoint is READY at times",
	fault.AllExcluded:     "callers exclude every READY endpoint",
	fault.PickTimeout:     "no endpoint becomes READY within their wait",
	fault.NoRoute:         "no route matches them",
}

// unusable says why a cluster without a tree cannot be used; empty if it can, or waits for resources.
func unusable(m *ledger.Cluster) string {
	cc := m.ClusterConfig()
	switch {
	case cc.Err != nil:
		return cc.Err.Error()
	case cc.Pending || m.Usable() > 0:
		return ""
	case cc.AssignmentErr != nil:
		return cc.AssignmentErr.Error()
	default:
		return policy.ErrNoEndpoints.Error()
	}
}

// census counts the endpoints of all priorities.
func census(sum *policy.Summary) (all policy.Census) {
	for _, c := range sum.Priorities {
		all = all.Add(c)
	}
	return all
}

// causeOf says why the picks of a tree fail.
func causeOf(sum *policy.Summary) string {
	all := census(sum)
	if all.Ejected > 0 && all.Ejected == all.Total() {
		return fmt.Sprintf("outlier detection has ejected all endpoints (%d): their requests fail too often", all.Ejected)
	}
	connect, ok := errors.AsType[*policy.ConnectError](sum.Err)
	if !ok {
		if sum.Err == nil {
			return "no endpoint is READY"
		}
		return sum.Err.Error()
	}
	others := ""
	if n := all.TransientFailure - 1; n == 1 {
		others = " and another"
	} else if n > 1 {
		others = fmt.Sprintf(" and %d others", n)
	}
	why := connect.Err.Error()
	if i := strings.LastIndex(why, "connect: "); i >= 0 { // before it are the addresses again
		why = why[i+len("connect: "):]
	}
	return fmt.Sprintf("cannot connect to %s%s: %s", connect.Address, others, why)
}

// limited says which drops or circuit breakers refuse every pick; empty if some pass. Of an AGGREGATE, those of
// the leaf in use count.
func limited(m *ledger.Cluster) string {
	cause, used, refusing := "", "", m.Refusing.Now()
	if names, p := m.LeafNames(), m.Target.Channel.ClusterSummary(m.Name).Priority; p >= 0 && p < len(names) {
		used = names[p]
	}
	for _, l := range m.Leaves {
		if used != "" && l.Cluster.Name != used {
			continue
		}
		b := l.Breaker()
		// One that is full has refused nothing yet: as many callers may use all of it.
		refuses := b.Open && (l.Limit() == 0 || refusing != nil && refusing.Kind == string(fault.CircuitBroken))
		if refuses {
			cause = fmt.Sprintf("the circuit breaker is full: %d of %d requests are in flight", b.InFlight, l.Limit())
		}
		all := -1
		if l.Assignment != nil {
			all = slices.IndexFunc(l.Assignment.Drops, func(d resource.Drop) bool { return d.PerMillion >= 1_000_000 })
		}
		if all >= 0 {
			cause = fmt.Sprintf("category %q drops all picks", l.Assignment.Drops[all].Category)
		}
		if !refuses && all < 0 {
			return ""
		}
	}
	return cause
}

// notes returns a function that says what is not as the sources of a cluster have it now: resources that a
// push or a file covers, and pushes and resources that were refused since its last change.
func (s *State) notes() func(m *ledger.Cluster) []string {
	var covered map[string]string
	if s.options.Covered != nil {
		covered = s.options.Covered()
	}
	refused := s.options.Events.refused()
	return func(m *ledger.Cluster) (out []string) {
		if len(covered)+len(refused) == 0 {
			return nil
		}
		cc := m.ClusterConfig()
		subjects := []string{m.Name, resource.Key{Type: resource.TypeCluster, Name: m.Name}.String()}
		if source, _ := cc.Source(); source != nil && source.Type == resource.ClusterEDS {
			subjects = append(subjects, resource.Key{Type: resource.TypeAssignment, Name: source.AssignmentName()}.String())
		}
		for _, of := range subjects {
			if by := covered[of]; by != "" {
				out = append(out, of+": "+by)
			}
			if e := refused[of]; e != nil && e.Time.After(ledger.Updated(cc)) {
				out = append(out, difference.Clip(fmt.Sprintf("refused at %s: %s", e.Time.Format(time.RFC3339), cmp.Or(e.Error, e.Says)), maxConditionText))
			}
		}
		return out
	}
}

// noteTrouble notes what fails, once a second.
func noteTrouble(l *ledger.Ledger, now time.Time) {
	for t := range l.Hosted().All() {
		t.Note(now)
		for _, m := range t.View().Clusters.All() {
			if m.Refusing.Now() != nil {
				sum := t.Channel.ClusterSummary(m.Name)
				if all := census(&sum); all.Ejected > 0 && all.Ready == 0 {
					m.Ejected.Store(&now)
				}
			}
			switch was := m.Limited.Load(); {
			case limited(m) == "":
				m.Limited.Store(nil)
			case was == nil:
				m.Limited.Store(&now)
			}
		}
	}
}

// summarizeAll summarizes a cluster as its own tree has it, or the first xds target. Trouble is that of any
// of its trees.
func summarizeAll(h *ledger.Hosted, m *ledger.Cluster, targets, notes []string) ClusterSummary {
	out := summarize(m)
	out.Targets, out.Trouble, out.Notes = targets, troubleOfAll(h, m, targets), notes
	return out
}

func troubleOfAll(h *ledger.Hosted, m *ledger.Cluster, targets []string) *Trouble {
	out := troubleOf(m)
	for _, label := range targets {
		t := h.Named(label)
		if t == nil || t == m.Target || out != nil && out.Fails == "picks" {
			continue // all trees have the same requests
		}
		if other := t.View().Clusters.Get(m.Name); other != nil {
			if is := troubleOf(other); is != nil && is.Fails == "picks" {
				out = is
			}
		}
	}
	return out
}

// Troubled returns the clusters of a scope whose picks or requests fail, by name.
func (s *State) Troubled(in *ledger.Scope) []ClusterSummary {
	var out []ClusterSummary
	h := s.ledger.Hosted()
	h.Clusters(func(m *ledger.Cluster, targets []string) {
		if t := troubleOfAll(h, m, targets); t != nil && in.Cluster(m.Name) {
			out = append(out, ClusterSummary{Name: m.Name, Trouble: t})
		}
	})
	slices.SortFunc(out, func(a, b ClusterSummary) int { return strings.Compare(a.Name, b.Name) })
	return out
}
