package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fleet"
	"github.com/lbd-dev/lbd/service/fleet/roster"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/etcd"
)

// summaryAge is how long a summary of this daemon is used again.
const summaryAge = time.Second

// membership makes the daemon one of those that share its store.
type membership struct {
	*fleet.Fleet

	// Fixed after start.
	config  Config
	state   *observe.State
	store   *etcd.Store
	address string
	log     *slog.Logger

	stop  context.CancelFunc // nil before start
	ended chan struct{}

	mu       sync.Mutex // guards the rest
	isolated time.Time  // since when there is no session; zero while there is one
	summary  roster.Summary
	made     time.Time // when summary was
	picks    uint64    // as of then
}

// newMembership returns nil if the daemon shares no store.
func newMembership(c Config, log *slog.Logger) (*membership, error) {
	if c.Store == "" {
		return nil, nil
	}
	e, err := c.StoreAccess.config(c.Store)
	if err != nil {
		return nil, err
	}
	m := &membership{config: c, log: log, ended: make(chan struct{}), isolated: time.Now()}
	m.Fleet = fleet.New(fleet.Options{
		Connect: e.Connect, Prefix: e.Prefix + "/", MaxTTL: cmp.Or(c.MaxTTL, picks.MaxTTL), Log: log,
		Replica: m.replica, Summary: m.summarize, Ready: func() bool { return m.store.Status().Live && m.store.Err() == nil },
	})
	return m, nil
}

// start joins the fleet, when the store knows that it is the right one. Close ends it.
func (m *membership) start(ctx context.Context, svc *service.Service, st store.Store, listeners []*listen.Listener) error {
	if m == nil {
		return nil
	}
	var err error
	if m.address, err = m.config.advertised(ctx, listeners); err != nil {
		return err
	}
	m.state, m.store = svc.State, st.(*etcd.Store)              //nolint:errcheck // openStore returns no other with --store
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // until Close
	m.stop = stop
	go func() {
		defer close(m.ended)
		if err := m.Run(ctx); err != nil {
			m.log.Error("the fleet is left", "error", err)
		}
	}()
	svc.Metrics.MustRegister(observe.Collector(func(out chan<- prometheus.Metric) {
		out <- joinedFamily.Metric(observe.Flag(m.Joined()))
	}))
	return nil
}

// Close leaves the fleet. The service calls it before it ends the leases.
func (m *membership) Close() {
	if m.stop != nil {
		m.stop()
		<-m.ended
	}
}

// peers returns what forwards requests to the other daemons; nil if there are none.
func (m *membership) peers() (*api.Peers, error) {
	if m == nil {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if path := m.config.FleetCA; path != "" {
		var err error
		if config.RootCAs, err = readRoots("--fleet-ca", path); err != nil {
			return nil, err
		}
	}
	return api.NewPeers(config), nil
}

// replica is what others know of this daemon.
func (m *membership) replica() roster.Replica {
	return roster.Replica{Name: m.config.daemonName(), Version: buildVersion(), Address: m.address, Zone: m.config.Zone}
}

// summarize is what others should know of this daemon now.
func (m *membership) summarize(ctx context.Context) roster.Summary {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if !m.made.IsZero() && now.Sub(m.made) < summaryAge {
		return m.summary
	}
	picks, status := m.state.Succeeded(), m.store.Status()
	s := roster.Summary{Index: status.Index}
	if !m.made.IsZero() && picks >= m.picks { // else a cluster was removed
		s.PicksPerSecond = float64(picks-m.picks) / now.Sub(m.made).Seconds()
	}
	if !status.Current.IsZero() {
		s.BehindSeconds = max(0, now.Sub(status.Current).Seconds())
	}
	unreachable, more := m.state.Unreachable(ctx, roster.MaxFailing)
	for _, u := range unreachable {
		s.Failing = append(s.Failing, roster.Failing(u))
	}
	s.More = more
	m.summary, m.made, m.picks = s, now, picks
	return s
}

// conditions says that limits of the fleet have no share.
func (m *membership) conditions() []observe.Condition {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Joined() {
		m.isolated = time.Time{}
		return nil
	}
	if m.isolated.IsZero() {
		m.isolated = time.Now()
	}
	if !m.Shares() {
		return nil
	}
	return []observe.Condition{{
		Kind: observe.ConditionStoreFailing, Subject: "fleet", Since: m.isolated,
		Text:   "this daemon has no session in etcd: leases of clusters with limit_scope fleet are refused",
		Remedy: "check etcd and the network between it and this host; other daemons admit requests meanwhile",
	}}
}

var joinedFamily = observe.Gauge("lbd_fleet_joined",
	"1 if the daemon has a session in the store that it shares, else 0: leases of clusters with limit_scope fleet are refused then. Only with --store.")

// advertised returns the URL at which other daemons reach this one; empty if they cannot.
func (c *Config) advertised(ctx context.Context, listeners []*listen.Listener) (string, error) {
	if c.Advertise != "" {
		return c.Advertise, nil
	}
	for _, l := range listeners {
		a, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			continue
		}
		ip := a.IP
		if ip.IsUnspecified() {
			e, err := parseEtcd(c.Store)
			if err != nil {
				return "", err
			}
			ip = sourceFor(ctx, e.Endpoints[0])
		}
		if ip == nil {
			continue
		}
		scheme := "http"
		if l.TLS {
			scheme = "https"
		}
		return scheme + "://" + net.JoinHostPort(ip.String(), fmt.Sprint(a.Port)), nil
	}
	return "", nil
}

// sourceFor returns the address of this host from which it would connect to another one; nil if that is
// not known. It sends nothing.
func sourceFor(ctx context.Context, hostPort string) net.IP {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "udp", hostPort)
	if err != nil {
		return nil
	}
	defer func() { _ = c.Close() }() // nothing was sent
	if a, ok := c.LocalAddr().(*net.UDPAddr); ok {
		return a.IP
	}
	return nil
}

// validateFleet checks the flags of this file.
func (c *Config) validateFleet() error {
	if c.Store == "" && (c.Advertise != "" || c.FleetCA != "") {
		return errors.New("--advertise and --fleet-ca need --store")
	}
	if c.Advertise != "" {
		if err := roster.CheckAddress(c.Advertise); err != nil {
			return fmt.Errorf("--advertise: %w", err)
		}
	}
	if len(c.Zone) > maxName {
		return fmt.Errorf("--zone must be at most %d bytes", maxName)
	}
	return nil
}
