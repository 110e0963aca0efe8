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
)

const (
	// DNSInterval is how often a name is looked up again.
	DNSInterval = 30 * time.Second
	// DNSTimeout is how long a look-up may take.
	DNSTimeout = 10 * time.Second
	// DNSLookups is how many look-ups may be under way; others wait their turn.
	DNSLookups = 64

	// The pause after a look-up that failed grows from dnsBackoffBase by
	// dnsBackoffFactor to dnsBackoffMax, give or take a fifth.
	dnsBackoffBase   = time.Second
	dnsBackoffFactor = 1.6
	dnsBackoffMax    = 2 * time.Minute
)

// DNS looks up the names of LOGICAL_DNS clusters, for as long as they are
// wanted.
type DNS struct {
	lookup func(ctx context.Context, host string) ([]string, error)
	report func(host string, addresses []string, err error)
	lacks  *overload.Monitor // may be nil
	ctx    context.Context   // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	slots  chan struct{} // a value for each look-up that is under way

	mu    sync.Mutex
	hosts map[string]context.CancelFunc
}

// NewDNS returns a DNS that wants no name yet. lookup is such as
// [net.Resolver.LookupHost]. report is told what a name ("host:port") resolves
// to, as "address:port", whenever that changes, and each error; it is called from
// several goroutines. The DNS has to be closed.
//
// A look-up that fails for a shortage of lbd's own changes nothing: it is reported to
// m, which may be nil, and made again until it has an answer.
func NewDNS(lookup func(context.Context, string) ([]string, error), report func(host string, addresses []string, err error), m *overload.Monitor) *DNS {
	d := &DNS{lookup: lookup, report: report, lacks: m, slots: make(chan struct{}, DNSLookups), hosts: make(map[string]context.CancelFunc)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Want makes the names those that are looked up. It does not wait.
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

// Close ends every look-up and waits for it. report is not called afterwards.
func (d *DNS) Close() {
	d.mu.Lock()
	d.cancel()
	d.mu.Unlock()
	d.wg.Wait()
}

// watch looks a name up until ctx ends.
func (d *DNS) watch(ctx context.Context, host string) {
	var known []string // sorted
	failures := 0
	failed := false
	for {
		addresses, err := d.resolve(ctx, host)
		if ctx.Err() != nil {
			return
		}
		pause := DNSInterval
		if d.short(err) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(overload.Pause(overload.RetryPause)):
			}
			continue
		}
		if err != nil {
			pause = dnsPause(failures)
			failures++
			d.report(host, nil, err)
		} else {
			failures = 0
			// Servers turn the order with every answer: the same addresses
			// are no change.
			sorted := slices.Sorted(slices.Values(addresses))
			if failed || !slices.Equal(sorted, known) {
				known = sorted
				d.report(host, addresses, nil)
			}
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// short reports whether a look-up failed for a shortage of lbd's own. What fails while
// there is one is taken for that: the resolver that cannot read its configuration asks
// the wrong server.
func (d *DNS) short(err error) bool {
	return err != nil && (d.lacks.ReportIf(err) || d.lacks.Short())
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

func dnsPause(failures int) time.Duration {
	d := float64(dnsBackoffBase)
	for range failures {
		d = min(d*dnsBackoffFactor, float64(dnsBackoffMax))
	}
	return time.Duration(d * (0.8 + 0.4*rand.Float64()))
}
