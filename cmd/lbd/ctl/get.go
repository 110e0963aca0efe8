package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

type getCommand struct {
	Clusters  getClusters  `cmd:"" default:"withargs" help:"Show clusters. This is the default: lbd ctl get CLUSTER is enough, unless the name is that of a command."`
	Targets   getTargets   `cmd:"" help:"Show targets."`
	Endpoints getEndpoints `cmd:"" help:"Show the endpoints of a cluster, with their state."`
}

// clusterState has what tables show of a ClusterSummary or a ClusterState.
type clusterState struct {
	Name           string          `json:"name"`
	Target         string          `json:"target"`
	State          string          `json:"state"`
	Error          string          `json:"error"`
	Trouble        *trouble        `json:"trouble"` // absent if picks and requests do not fail
	PriorityInUse  int             `json:"priority_in_use"`
	Endpoints      endpointCounts  `json:"endpoints"`
	EndpointsInUse *endpointCounts `json:"endpoints_in_use"` // absent if there is only one priority
	Source         string          `json:"source"`
	Stale          bool            `json:"stale"`
	Priorities     []struct {
		Priority   int    `json:"priority"`
		Cluster    string `json:"cluster"`
		InUse      bool   `json:"in_use"`
		State      string `json:"state"`
		Why        string `json:"why"`
		Localities []struct {
			Locality  locality         `json:"locality"`
			Endpoints []map[string]any `json:"endpoints"`
		} `json:"localities"`
	} `json:"priorities"`
	Generation int64         `json:"generation"`
	Breaker    *breakerState `json:"circuit_breaker"`
	Counts     struct {
		Time  time.Time         `json:"time"`
		Picks map[string]uint64 `json:"picks"`
		Drops map[string]uint64 `json:"drops"`
	} `json:"counts"`
}

// picks returns the numbers of picks with and without an endpoint.
func (c clusterState) picks() (ok, failed uint64) {
	return c.Counts.Picks["ok"], total(c.Counts.Picks) - c.Counts.Picks["ok"]
}

func total(counts map[string]uint64) (n uint64) {
	for _, one := range counts {
		n += one
	}
	return n
}

// trouble is why picks or requests of a cluster fail.
type trouble struct {
	Cause string    `json:"cause"`
	Since time.Time `json:"since"`
}

// String is the cause with its time.
func (t *trouble) String() string {
	if t.Since.IsZero() {
		return t.Cause
	}
	return t.Cause + ", since " + t.Since.Local().Format("15:04:05")
}

type breakerState struct {
	InFlight int64 `json:"in_flight"`
	Max      int64 `json:"max_requests"`
	Open     bool  `json:"open"`
}

// String returns IN FLIGHT/maximum; it is empty for a cluster without a circuit breaker.
func (b *breakerState) String() string {
	if b == nil {
		return ""
	}
	return fmt.Sprintf("%d/%d", b.InFlight, b.Max)
}

type endpointCounts struct {
	Ready int `json:"ready"`
	Total int `json:"total"`
}

// String returns READY/total.
func (c endpointCounts) String() string { return fmt.Sprintf("%d/%d", c.Ready, c.Total) }

type locality struct {
	Region  string `json:"region"`
	Zone    string `json:"zone"`
	SubZone string `json:"sub_zone"`
}

func (l locality) String() string {
	return strings.TrimRight(l.Region+"/"+l.Zone+"/"+l.SubZone, "/")
}

// priority is a number, or empty for -1: no priority is in use.
func priority(n int) string {
	if n < 0 {
		return ""
	}
	return strconv.Itoa(n)
}

type getClusters struct {
	Names  []string `arg:"" optional:"" name:"cluster" help:"Names of clusters (default all). For these, the state of each priority is shown, too."`
	Prefix string   `help:"Only clusters whose names begin with this (default all)" placeholder:"PREFIX"`
}

// Run prints a table of clusters, and of the priorities of the named ones.
func (g *getClusters) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	return o.with(app, func(s *session) error {
		raw, clusters, err := readNamed[clusterState](ctx, s.client, "clusters", g.Names, g.Prefix, parameters("endpoints", "false"))
		if err != nil {
			return err
		}
		var counts map[string]clusterState
		if s.output == "table" && len(clusters) > 0 {
			if counts, err = g.counts(ctx, s.client); err != nil {
				return err
			}
		}
		return s.printTables(raw, clusterTable(clusters, counts), troubleTable(clusters), priorityTable(clusters))
	})
}

// readNamed returns the items with these names of a list of the API, or, without names, those whose
// names begin with prefix. query is that of a single item.
func readNamed[T any](ctx context.Context, c *client, kind string, names []string, prefix string, query url.Values) (raw []byte, all []T, err error) {
	if len(names) > 0 && prefix != "" {
		return nil, nil, usage("set either names or --prefix, not both")
	}
	path := "/v1/" + kind
	if len(names) == 0 {
		return list[T](ctx, c, path, kind, parameters("prefix", prefix, "limit", strconv.Itoa(pageSize)), 0)
	}
	var items []json.RawMessage
	for _, name := range names {
		answer, err := c.do(ctx, request{method: http.MethodGet, path: path + "/" + segment(name), query: query})
		if err != nil {
			return nil, nil, err
		}
		items = append(items, answer.body)
	}
	raw, all, err = join[T](kind, items)
	if len(items) == 1 {
		raw = items[0]
	}
	return raw, all, err
}

// pageSize is the number of items in one part of a list.
const pageSize = 5000

// parameters returns a query of names and values. Empty values are omitted.
func parameters(pairs ...string) url.Values {
	q := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		if name, value := pair[0], pair[len(pair)-1]; value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// ifSet returns the value of a parameter for a flag.
func ifSet(flag bool) string {
	if flag {
		return "true"
	}
	return ""
}

// counts returns the picks of each cluster by result. Only the stream of all clusters has them for
// many clusters: its first event is read. They are absent if the daemon refuses a stream, because of
// a limit for instance.
func (g *getClusters) counts(ctx context.Context, c *client) (map[string]clusterState, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, errNoResponse)
	defer cancel()
	prefix := g.Prefix
	if len(g.Names) == 1 {
		prefix = g.Names[0]
	}
	answer, err := c.stream(ctx, "/v1/clusters/watch", parameters("prefix", prefix), "")
	if _, ok := errors.AsType[*refusal](err); ok {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	events := newEventReader(answer.Body)
	for {
		e, err := events.next()
		if err != nil {
			return nil, c.unreachable(ctx, err)
		}
		if e.name != "resync" {
			continue
		}
		var list struct {
			Clusters []clusterState `json:"clusters"`
		}
		if err := decode(e.data, &list); err != nil {
			return nil, err
		}
		all := make(map[string]clusterState, len(list.Clusters))
		for _, one := range list.Clusters {
			all[one.Name] = one
		}
		return all, nil
	}
}

// clusterTable shows clusters with their picks: PICKS are successful, FAILURES are all others.
func clusterTable(clusters []clusterState, counts map[string]clusterState) *table {
	t := newTable("NAME", "STATE", "PRIORITY", "READY", "SOURCE", "PICKS", "FAILURES")
	for _, c := range clusters {
		source := c.Source
		if c.Stale {
			source += " (stale)"
		}
		picks, failures := "", ""
		if counted, ok := counts[c.Name]; ok {
			successful, failed := counted.picks()
			picks, failures = strconv.FormatUint(successful, 10), strconv.FormatUint(failed, 10)
		}
		t.add(c.Name, c.State, priority(c.PriorityInUse), c.Endpoints.String(), source, picks, failures)
	}
	return t
}

// troubleTable shows why picks or requests of clusters fail; it is empty if they do not.
func troubleTable(clusters []clusterState) *table {
	t := newTable("NAME", "TROUBLE")
	for _, c := range clusters {
		if c.Trouble != nil {
			t.add(c.Name, c.Trouble.String())
		}
	}
	return t
}

// priorityTable shows the priorities of clusters, if the daemon has sent them, and why picks of a
// cluster fail.
func priorityTable(clusters []clusterState) *table {
	t := newTable("NAME", "PRIORITY", "IN USE", "STATE", "WHY")
	for _, c := range clusters {
		if c.Error != "" {
			t.add(c.Name, "", "no", c.State, c.Error)
		}
		for _, p := range c.Priorities {
			use := "no"
			if p.InUse {
				use = "yes"
			}
			t.add(cmp.Or(p.Cluster, c.Name), priority(p.Priority), use, p.State, p.Why)
		}
	}
	return t
}

type getTargets struct {
	Names  []string `arg:"" optional:"" name:"target" help:"Names of targets (default all): xds:///NAME or NAME. For these, the clusters of their routes are shown, too."`
	Prefix string   `help:"Only targets whose full names (xds:///…) begin with this (default all)" placeholder:"PREFIX"`
}

// targetState has what tables show of a target.
type targetState struct {
	Name     string         `json:"name"`
	State    string         `json:"state"`
	Clusters int            `json:"clusters"`
	HostedBy []string       `json:"hosted_by"`
	Error    string         `json:"error"`
	States   []clusterState `json:"cluster_states"`
}

// Run prints a table of targets, and of the clusters of the named ones.
func (g *getTargets) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	return o.with(app, func(s *session) error {
		raw, targets, err := readNamed[targetState](ctx, s.client, "targets", g.Names, g.Prefix, nil)
		if err != nil {
			return err
		}
		t := newTable("NAME", "STATE", "CLUSTERS", "HOSTED BY", "ERROR")
		clusters := newTable("TARGET", "CLUSTER", "STATE", "PRIORITY", "READY", "SOURCE")
		for _, one := range targets {
			t.add(one.Name, one.State, strconv.Itoa(one.Clusters), strings.Join(one.HostedBy, ","), one.Error)
			for _, c := range one.States {
				clusters.add(c.Target, c.Name, c.State, priority(c.PriorityInUse), c.Endpoints.String(), c.Source)
			}
		}
		return s.printTables(raw, t, clusters)
	})
}

type getEndpoints struct {
	Cluster string `arg:"" help:"Name of the cluster."`
	Target  string `help:"Target in whose tree the state is (default the cluster's own tree)" placeholder:"TARGET"`
}

// endpointState is an EndpointState of the contract, with its priority and locality.
type endpointState struct {
	Address  string   `json:"address"`
	Weight   int      `json:"weight"`
	Health   string   `json:"health"`
	State    string   `json:"state"`
	Share    *float64 `json:"share"`
	Error    string   `json:"last_error"`
	Overlay  string   `json:"overlay"`
	Priority int      `json:"priority"`
	Locality locality `json:"locality"`
}

// Run prints the endpoints of all priorities.
func (g *getEndpoints) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	return o.with(app, func(s *session) error {
		var state clusterState
		path := "/v1/clusters/" + segment(g.Cluster)
		if _, err := s.client.get(ctx, path, parameters("target", g.Target), &state); err != nil {
			return err
		}
		raw, endpoints, err := flatten(state)
		if err != nil {
			return err
		}
		t := newTable("ADDRESS", "PRIORITY", "LOCALITY", "WEIGHT", "HEALTH", "OVERLAY", "STATE", "SHARE", "ERROR")
		for _, e := range endpoints {
			share := ""
			if e.Share != nil {
				share = percent(*e.Share)
			}
			t.add(e.Address, priority(e.Priority), e.Locality.String(), strconv.Itoa(e.Weight), e.Health, e.Overlay,
				e.State, share, e.Error)
		}
		return s.printTables(raw, t)
	})
}

// flatten returns the endpoints of a cluster, each with its priority and locality, as JSON and decoded.
func flatten(state clusterState) (raw []byte, all []endpointState, err error) {
	items := []map[string]any{}
	for _, p := range state.Priorities {
		for _, l := range p.Localities {
			for _, e := range l.Endpoints {
				e["priority"], e["locality"] = p.Priority, l.Locality
				items = append(items, e)
			}
		}
	}
	if raw, err = json.Marshal(map[string]any{"cluster": state.Name, "endpoints": items}); err != nil {
		return nil, nil, err
	}
	var list struct {
		Endpoints []endpointState `json:"endpoints"`
	}
	err = decode(raw, &list)
	return raw, list.Endpoints, err
}
