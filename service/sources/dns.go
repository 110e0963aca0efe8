package sources

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/resolver"
)

// addressesResolved publishes the addresses of a DNS name, or why it does not resolve.
func (p *publisher) addressesResolved(host string, addresses []string, err error) {
	if err != nil {
		p.Logger.Warn("name does not resolve", "host", host, "error", err)
	}
	var before, after []string
	_, ended := p.change(func(r *resolver.Resolver) []resolver.Change {
		before = r.HostAddresses(host)
		changes := r.ApplyHost(host, addresses, err)
		after = r.HostAddresses(host)
		return changes
	})
	ended.Close()
	removed, added := without(before, after), without(after, before)
	var parts []string
	if len(removed) > 0 {
		parts = append(parts, "removed "+few(removed))
	}
	if len(added) > 0 {
		parts = append(parts, "added "+few(added))
	}
	if parts != nil {
		p.Events.Add(observe.Event{Type: observe.EventDNSChanged, Resource: host, Says: difference.Clip(
			fmt.Sprintf("%s resolves to %d addresses: %s", host, len(after), strings.Join(parts, "; ")), difference.MaxSentence)})
	}
}

// without returns the elements of a that are not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// few joins the first few names.
func few(names []string) string {
	const limit = 5
	if len(names) <= limit {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), len(names)-limit)
}
