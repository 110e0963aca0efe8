package resolver

// Held is how much a resolver remembers.
func (r *Resolver) Held() int {
	return len(r.targets) + len(r.roots) + len(r.parts) + len(r.needs) + len(r.hostNames) + len(r.hosts) +
		len(r.asked.told) + len(r.asked.open) +
		len(r.listeners) + len(r.routes) + len(r.clusters) + len(r.assignments)
}
