package parity_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	lbdpicks "github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/lastgood"
	"github.com/lbd-dev/lbd/xds/lrs"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store/file"
)

// lbdTarget is the service of lbd, which hosts one target of a management server.
type lbdTarget struct {
	target  string
	dialer  *lb.Dialer
	service *service.Service
	store   *file.Store
	client  *client.Client
	reports *lrs.Reporter
	kept    *lastgood.Resources
}

func newLBDTarget(ctx context.Context, config []byte, target, dir string) (l *lbdTarget, err error) {
	full, err := ledger.TargetName(target)
	if err != nil {
		return nil, err
	}
	b, err := bootstrap.Parse(config, bootstrap.Options{})
	if err != nil {
		return nil, err
	}
	l = &lbdTarget{target: full, dialer: lb.NewDialer(b, overload.Budget{}, nil, nil)}
	log := slog.New(slog.DiscardHandler)
	l.service = service.New(service.Options{
		Logger: log, Connectors: l.dialer.Connectors(resource.ConnectTCPHold),
		Sources: sources.Settings{ConnectMode: resource.ConnectTCPHold, Bootstrap: b, Targets: []string{full}},
	})
	if l.store, err = file.Open(dir, file.Options{Logger: log, OnCommit: l.service.Inbound.Commit}); err != nil {
		return nil, err
	}
	l.client, err = client.New(client.Options{
		Bootstrap: b, Logger: log, Policies: lb.PolicyTraits, OnUpdate: l.service.Inbound.ServerUpdate, Events: l.service.Inbound.ServerEvent,
	})
	if err != nil {
		return nil, err
	}
	l.kept = lastgood.OpenResources("", log)
	l.reports = lrs.New(lrs.Options{Node: b.Node, Loads: l.service.Loads, Logger: log})
	return l, l.service.Start(ctx, sources.Connections{Store: l.store, Servers: l.client, LastGood: l.kept, Reports: l.reports})
}

func (l *lbdTarget) ask(ctx context.Context, r *request) directed {
	req := lbdpicks.Request{Target: l.target, Path: r.path, N: 1}
	for _, h := range r.headers {
		req.Headers = append(req.Headers, lbdpicks.Header{Name: h.name, Value: h.value})
	}
	var out lbdpicks.Picks
	err := l.service.Picks.Pick(ctx, &req, &out)
	if err == nil {
		p := out.Picks[0]
		return directed{reply{kind: picked, address: p.Address, done: func() {}}, p.Cluster}
	}
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return directed{reply: reply{kind: kind("failed: " + err.Error())}}
	}
	return directed{reply{kind: l.kindOf(e)}, e.Cluster}
}

// kindOf returns the kind of an error, by its code, and by its text where several kinds
// have one code.
func (l *lbdTarget) kindOf(e *fault.Error) kind {
	detail, _, _ := strings.Cut(e.Detail, " (resolution note: ") // which is not why the pick failed
	switch e.Code {
	case fault.PickTimeout:
		return queued
	case fault.Dropped:
		return dropped
	case fault.CircuitBroken:
		return broken
	case fault.UnknownTarget:
		return noListener
	case fault.NoRoute:
		if strings.Contains(detail, "cannot be followed") {
			return unsupported
		}
		return noRoute
	case fault.NoReadyEndpoint:
	default:
		return kind(fmt.Sprintf("%s: %s", e.Code, detail))
	}
	switch {
	case strings.Contains(detail, "has no virtual host"):
		return noHost
	case e.Cluster == "" && strings.Contains(detail, "RouteConfiguration/") && strings.Contains(detail, "does not exist"):
		return noRoutes
	case e.Cluster == "" && strings.Contains(detail, "cannot be used"):
		return badTarget
	case strings.Contains(detail, "connection refused"):
		return refused
	case slices.Contains(withoutEndpoints, detail), strings.Contains(detail, "ClusterLoadAssignment/"):
		return none
	case strings.Contains(detail, "does not exist"):
		return noCluster
	case strings.Contains(detail, "rejected the resource from management server"):
		return badCluster
	}
	return kind("not ready: " + detail)
}

var states = map[string]connectivity.State{
	"READY": connectivity.Ready, "CONNECTING": connectivity.Connecting, "IDLE": connectivity.Idle,
	"TRANSIENT_FAILURE": connectivity.TransientFailure, "SHUTDOWN": connectivity.Shutdown,
}

// look returns the view of a cluster.
func (l *lbdTarget) look(ctx context.Context, cluster string) (view, error) {
	c, err := l.service.State.Cluster(ctx, cluster, l.target, true)
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Code == fault.UnknownCluster {
		return view{state: connectivity.Shutdown, saw: "none"}, nil
	}
	if err != nil {
		return view{}, err
	}
	v := view{state: states[c.State], states: make(map[string]connectivity.State)}
	for _, p := range c.Priorities {
		if !p.Started {
			continue
		}
		for _, locality := range p.Localities {
			for _, e := range locality.Endpoints {
				takeState(v.states, e)
			}
		}
	}
	v.saw = fmt.Sprint(c.State, c.PriorityInUse, readyOf(v.states))
	return v, nil
}

func takeState(known map[string]connectivity.State, e observe.EndpointState) {
	state, ok := states[e.State]
	if !ok || state == connectivity.Ready && len(e.Addresses) > 0 {
		return // it is excluded by its EDS health, or its connected address is unknown
	}
	for _, a := range append([]string{e.Address}, e.Addresses...) {
		if known[a] != connectivity.Ready {
			known[a] = state
		}
	}
}

// clusters lists those that have a tree.
func (l *lbdTarget) clusters() ([]string, error) {
	t, err := l.service.State.Target(l.target)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range t.ClusterStates {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return names, nil
}

func (l *lbdTarget) close() {
	l.service.Close()
	if l.client != nil {
		l.reports.Close()
		l.client.Close()
		_ = l.kept.Close()
	}
	if l.store != nil {
		_ = l.store.Close()
	}
	l.dialer.Close()
}
