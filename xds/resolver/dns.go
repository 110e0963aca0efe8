package resolver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/backoff"
)

const (
	// DNSInterval is the time between two lookups of a name.
	DNSInterval = 30 * time.Second
	// DNSTimeout is the timeout of a lookup.
	DNSTimeout = 10 * time.Second
	// DNSLookups is the maximum number of concurrent lookups; others wait.
	DNSLookups = 64
)

// DNS resolves the names of LOGICAL_DNS clusters.
type DNS struct {
	lookup   func(ctx context.Context, host string) ([]string, error)
	report   func(host string, addresses []string, err error)
	overload *overload.Monitor // may be nil
	ctx      context.Context   // ends with Close
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	slots    chan struct{} // a value for each lookup in progress

	mu    sync.Mutex
	hosts map[string]context.CancelFunc
}

// NewDNS returns a DNS without names. The caller closes it. lookup is a function like
// [net.Resolver.LookupHost]. report receives the addresses ("address:port") of a name
// ("host:port") when they change, and each error; several goroutines call it.
//
// A lookup that fails because of a shortage of lbd is reported to m, which may be nil, and
// retried, without other effects.
func NewDNS(lookup func(context.Context, string) ([]string, error), report func(host string, addresses []string, err error), m *overload.Monitor) *DNS {
	d := &DNS{lookup: lookup, report: report, overload: m, slots: make(chan struct{}, DNSLookups), hosts: make(map[string]context.CancelFunc)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Want sets the names to resolve. It does not block.
func (d *DNS) Want(hosts map[string]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for host, stop := range d.hosts {
		if !hosts[host] {
			stop()
			delete(d.hosts, host)
		}
	}
	if d.ctx.Err() != nil {
		return
	}
	for host := range hosts {
		if d.hosts[host] != nil {
			continue
		}
		ctx, stop := context.WithCancel(d.ctx)
		d.hosts[host] = stop
		d.wg.Go(func() { d.watch(ctx, host) })
	}
}

// Close ends all lookups and waits for them. report is not called afterwards.
func (d *DNS) Close() {
	d.mu.Lock()
	d.cancel()
	d.mu.Unlock()
	d.wg.Wait()
}

// watch resolves a name until ctx ends.
func (d *DNS) watch(ctx context.Context, host string) {
	var known []string // sorted; nil after an error
	failures := 0
	for {
		addresses, err := d.resolve(ctx, host)
		if ctx.Err() != nil {
			return
		}
		pause := DNSInterval
		switch {
		case d.localShortage(err):
			pause = overload.Pause(overload.RetryPause)
		case err != nil:
			pause = backoff.Wait(failures, rand.Float64)
			failures++
			known = nil
			d.report(host, nil, err)
		default:
			failures = 0
			// Servers rotate the order: only other addresses are a change.
			if sorted := slices.Sorted(slices.Values(addresses)); !slices.Equal(sorted, known) {
				known = sorted
				d.report(host, addresses, nil)
			}
		}
		if !backoff.Sleep(ctx, pause) {
			return
		}
	}
}

// localShortage reports whether a lookup failed because of a shortage of lbd. During a
// shortage, all failures count: a resolver that cannot read its configuration asks the
// wrong server.
func (d *DNS) localShortage(err error) bool {
	return err != nil && (d.overload.ReportIf(err) || d.overload.Short())
}

func (d *DNS) resolve(ctx context.Context, host string) ([]string, error) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return nil, fmt.Errorf("resolve %q: %w", host, err)
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, DNSTimeout, fmt.Errorf("no answer within %v", DNSTimeout))
	defer cancel()
	found, err := d.lookup(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("resolve %q: %w", name, err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("resolve %q: no address", name)
	}
	addresses := make([]string, len(found))
	for i, a := range found {
		addresses[i] = net.JoinHostPort(a, port)
	}
	return addresses, nil
}
