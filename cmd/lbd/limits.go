package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/quota"
	"github.com/lbd-dev/lbd/service/sources"
)

const (
	// memoryRatio is the part of a container's memory that the garbage collector aims at,
	// unless GOMEMLIMIT is set. The pages of the executable, and what is allocated while it works, come on top.
	memoryRatio = 0.7
	// defaultAPIBytes is the default of --api-bytes where there is no memory limit.
	defaultAPIBytes = 1 << 30
	minAPIBytes     = 1 << 20
	maxAccounts     = 20_000
	maxMaxLeases    = 100_000_000
	maxRate         = 1_000_000

	maxRegistrations = 100_000
)

// limitMemory sets the limit of the garbage collector from the container's, unless
// GOMEMLIMIT does.
func limitMemory(log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit, err := memlimit.Set(memlimit.WithRatio(memoryRatio), memlimit.WithProvider(memlimit.FromCgroup))
	if err == nil && limit > 0 {
		log.Debug("the memory limit is that of the container", "bytes", limit)
	}
}

// apiBytes returns --api-bytes: by default half of the memory limit.
func (c *Config) apiBytes() int64 {
	if c.APIBytes > 0 {
		return c.APIBytes
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return max(limit/2, minAPIBytes)
	}
	return defaultAPIBytes
}

// quotas returns what callers of the API may use.
func (c *Config) quotas(budget overload.Budget) *quota.Manager {
	return quota.New(quota.Options{
		Totals: map[quota.Resource]int64{
			quota.Bytes: c.apiBytes(), quota.Bulk: int64(cmp.Or(c.MaxBulk, defaultMaxBulk)), quota.Streams: int64(c.maxStreams(budget)),
			quota.WaitingPicks: int64(cmp.Or(c.MaxWaitingPicks, min(defaultMaxWaiting, budget.Connections/2))), quota.Leases: int64(cmp.Or(c.MaxLeases, picks.DefaultMaxLeases)),
			quota.UnknownNames:     int64(cmp.Or(c.OnDemandUnknown, sources.DefaultOnDemandUnknown)) + 1, // a new name is counted before the oldest is evicted
			quota.IdempotentLeases: picks.MaxEndedLeases,
		},
		Share: c.CallerShare, Default: &quota.Class{Rate: c.CallerRate, Burst: c.CallerRate}, MaxAccounts: maxAccounts,
	})
}

// maxStreams returns --max-streams: by default half of the connections, which reserves the
// others for picks.
func (c *Config) maxStreams(budget overload.Budget) int {
	return cmp.Or(c.MaxStreams, min(observe.MaxWatchers, budget.Connections/2))
}

// maxPeerConnections returns --max-peer-connections: by default the share of one caller.
func (c *Config) maxPeerConnections(budget overload.Budget) int {
	share := cmp.Or(c.CallerShare, quota.DefaultShare)
	return cmp.Or(c.MaxPeerConns, max(1, int(float64(budget.Connections)*share)))
}

// logShedding logs changes of the level.
func logShedding(log *slog.Logger) func(overload.Level) {
	return func(l overload.Level) {
		level := slog.LevelWarn
		if l == overload.ShedNothing {
			level = slog.LevelInfo
		}
		log.Log(nil, level, "overload: "+l.String()) //nolint:sloglint,staticcheck // the text is one of five; there is no request
	}
}

// endStreams returns a function that ends a part of the streams that are shed, and reports how many
// were ended when no others are left.
func endStreams(end func() int, report func(int)) func() {
	total := 0
	return func() {
		n := end()
		if total += n; n == 0 && total > 0 {
			report(total)
			total = 0
		}
	}
}

// listenerAddresses are the TCP addresses of lbd's own listeners, once they are known.
type listenerAddresses struct {
	all atomic.Pointer[[]netip.AddrPort]
}

func (o *listenerAddresses) set(listeners []*listen.Listener) {
	var all []netip.AddrPort
	for _, l := range listeners {
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			all = append(all, netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), a.AddrPort().Port()))
		}
	}
	o.all.Store(&all)
}

// has reports whether lbd listens on an address.
func (o *listenerAddresses) has(a netip.AddrPort) bool {
	all := o.all.Load()
	return all != nil && slices.ContainsFunc(*all, func(l netip.AddrPort) bool {
		return l == a || l.Port() == a.Port() && l.Addr().IsUnspecified() && isOwn(a.Addr())
	})
}

// isOwn reports whether an address is one of this machine.
func isOwn(ip netip.Addr) bool {
	if ip.IsLoopback() {
		return true
	}
	addresses, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(addresses, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip.AsSlice())
	})
}

// permit returns which addresses endpoints may have.
func (c *Config) permit(own *listenerAddresses) (*lb.Permit, error) {
	p := &lb.Permit{Denied: lb.DefaultDenied, Own: own.has}
	var err error
	if p.Allowed, err = networks(c.AllowEndpoints); err != nil {
		return nil, fmt.Errorf("--allow-endpoints: %w", err)
	}
	if len(c.DenyEndpoints) == 0 {
		return p, nil
	}
	if len(c.DenyEndpoints) == 1 && c.DenyEndpoints[0] == "none" {
		p.Denied, p.Own = nil, nil
		return p, nil
	}
	if slices.Contains(c.DenyEndpoints, "none") {
		return nil, errors.New("--deny-endpoints: none denies nothing: it cannot be set together with networks")
	}
	if p.Denied, err = networks(c.DenyEndpoints); err != nil {
		return nil, fmt.Errorf("--deny-endpoints: %w", err)
	}
	return p, nil
}

// networks parses networks in CIDR notation, or single addresses.
func networks(texts []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range texts {
		n, err := netip.ParsePrefix(text)
		if err != nil {
			a, err := netip.ParseAddr(text)
			if err != nil || a.Zone() != "" {
				return nil, fmt.Errorf("%q is not a network such as 10.0.0.0/8", text)
			}
			n = netip.PrefixFrom(a, a.BitLen())
		}
		if n != n.Masked() {
			return nil, fmt.Errorf("%q has bits beyond its length: write %v", text, n.Masked())
		}
		all = append(all, n)
	}
	return all, nil
}

// validateLimits checks the flags of this file.
func (c *Config) validateLimits() error {
	if err := cmp.Or(
		within("max-leases", c.MaxLeases, 0, maxMaxLeases), within("max-lease-share", c.MaxLeaseShare, 0, 1),
		within("max-ttl", c.MaxTTL, 0, picks.MaxTTL), within("max-streams", c.MaxStreams, 0, maxConnections), within("max-peer-connections", c.MaxPeerConns, 0, maxConnections),
		within("max-bulk", c.MaxBulk, 0, maxConnections), within("max-waiting-picks", c.MaxWaitingPicks, 0, maxConnections),
		within("caller-share", c.CallerShare, 0, 1), within("caller-rate", c.CallerRate, 0, maxRate),
		within("max-registrations", c.MaxRegistrations, 0, maxRegistrations), within("max-expired", c.MaxExpired, 0, 1),
	); err != nil {
		return err
	}
	if c.APIBytes != 0 && c.APIBytes < minAPIBytes {
		return fmt.Errorf("--api-bytes must be 0 for the default, or at least %d", minAPIBytes)
	}
	if c.MaxTTL != 0 && c.MaxTTL < time.Millisecond {
		return errors.New("--max-ttl must be at least 1ms")
	}
	_, err := c.permit(new(listenerAddresses))
	return err
}
