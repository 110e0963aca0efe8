package lb

import "github.com/lbd-dev/lbd/lb/policy"

// Summary returns the counts of the last batch.
func (c *Channel) Summary() policy.Summary { return *c.summary.Load() }
