package api

import (
	"fmt"
	"time"

	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/picks"
)

// maxTTL returns the maximum ttl of a caller's leases, and quota whether its quota limits it.
func (h *handlers) maxTTL(c *access.Caller) (limit time.Duration, quota bool) {
	if c.Quota != nil && c.Quota.MaxTTL > 0 && c.Quota.MaxTTL < h.Limits.MaxTTL {
		return c.Quota.MaxTTL, true
	}
	return h.Limits.MaxTTL, false
}

// ttl reads the ttl of a caller's leases.
func (h *handlers) ttl(v value, to *time.Duration, c *access.Caller) string {
	if wanted := v.duration(to, time.Millisecond, h.Limits.MaxTTL); wanted != "" {
		return wanted
	}
	if limit, quota := h.maxTTL(c); quota && *to > limit {
		return fmt.Sprintf("allowed: max_ttl of the caller's quota is %v", limit)
	}
	return ""
}

// count reads the number of picks of a request.
func (h *handlers) count(v value, to *int, c *access.Caller) string {
	if wanted := v.integer(to, 1, picks.MaxPicks); wanted != "" {
		return wanted
	}
	if c.Quota != nil && c.Quota.MaxPicks > 0 && *to > c.Quota.MaxPicks {
		return fmt.Sprintf("allowed: max_picks of the caller's quota is %d", c.Quota.MaxPicks)
	}
	return ""
}

// defaultTTL returns the ttl of leases of requests that set none.
func (h *handlers) defaultTTL(c *access.Caller) time.Duration {
	limit, _ := h.maxTTL(c)
	return min(picks.DefaultTTL, limit)
}
