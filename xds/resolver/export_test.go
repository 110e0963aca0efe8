package resolver

import "github.com/lbd-dev/lbd/xds/resource"

// Held is how much a resolver remembers.
func (r *Resolver) Held() int {
	n := len(r.targets) + len(r.needs) + len(r.hostNames) + len(r.hosts) +
		len(r.requests.current) + len(r.requests.unchecked) +
		len(r.failing.keys) + len(r.failing.changed) +
		len(r.layers.shared) + len(r.layers.ads) + len(r.covered) + len(r.overlays) + len(r.held) + len(r.waiting)
	for _, t := range r.targets {
		n += t.byCluster.Len() + t.parts.Len()
	}
	for _, of := range r.needs {
		n += of.Len()
	}
	return n
}

// Asking are the targets for which a management server may speak of a resource.
func (r *Resolver) Asking(key resource.Key) []string {
	var names []string
	for t := range r.needs[key].All() {
		if r.accepts(targetResource{t.name, key}) {
			names = append(names, t.name)
		}
	}
	for w := range r.requests.current {
		if w.key == key && !r.requestable(w) {
			names = append(names, w.target)
		}
	}
	return names
}

// ApplyOverlays replaces the overlays of a cluster, the oldest first, and returns the changed targets
// by name.
func (r *Resolver) ApplyOverlays(cluster string, list []*resource.Overlay) []TargetConfig {
	return r.Accept(&Proposal{Overlays: map[string][]*resource.Overlay{cluster: list}})
}
