package service

import "time"

// Limits of picks.
const (
	// MaxPicks is the most picks of one request.
	MaxPicks = 1000
	// MaxWait is the longest that a pick may queue.
	MaxWait = 60 * time.Second
	// MaxExclude is the most addresses that a pick may exclude.
	MaxExclude = 100
	// DefaultTTL and MaxTTL are how long a lease lasts.
	DefaultTTL = 30 * time.Second
	MaxTTL     = 10 * time.Minute
)

// PickRequest asks for picks.
type PickRequest struct {
	Cluster string
	// N is how many picks, 1 to MaxPicks.
	N int
	// Wait is how long the picks may queue, 0 to MaxWait.
	Wait         time.Duration
	WaitForReady bool
	// Hash is the request hash key, for policies that hash.
	Hash    string
	Exclude []string
	Explain bool
	// TTL, where positive, makes every pick a lease.
	TTL time.Duration
	// IdempotencyKey, of leases, makes a repeated request return the same.
	IdempotencyKey string
}

// Picks is the answer to a PickRequest.
type Picks struct {
	Cluster    string
	Generation int64
	// Stale is true where the cluster's source is away.
	Stale bool
	// Picks has at least one.
	Picks []Pick
	// Dropped counts the picks of the request that each drop category took;
	// nil where none did.
	Dropped map[string]int
	// CircuitBroken counts those that the circuit breaker refused.
	CircuitBroken int
}

// Pick is one endpoint picked.
type Pick struct {
	Address  string
	Hostname string
	Locality Locality
	Priority int
	Lease    *Lease // nil for an unleased pick
	Explain  []Step // nil unless asked for
}

// Lease is what is held for one pick.
type Lease struct {
	ID        string    `json:"id"`
	ExpiresAt time.Time `json:"expires_at"`
}
