package observe

import "time"

// Registration is until when a registered endpoint stays.
type Registration struct {
	// TTL is how long it stays after a renewal.
	TTL string `json:"ttl" example:"30s"`
	// ExpiresAt is when it is removed without another renewal.
	ExpiresAt time.Time `json:"expires_at"`
}

// addRegistrations adds the registrations of the endpoints of an assignment.
func (c *ClusterState) addRegistrations(assignment string, registered func(assignment, address string) (ttl time.Duration, expires time.Time)) {
	for _, p := range c.Priorities {
		for _, l := range p.Localities {
			for i := range l.Endpoints {
				if ttl, at := registered(assignment, l.Endpoints[i].Address); ttl > 0 {
					l.Endpoints[i].Registration = &Registration{TTL: ttl.String(), ExpiresAt: at.UTC().Round(0)}
				}
			}
		}
	}
}
