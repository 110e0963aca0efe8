package access

import (
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/service/quota"
)

// Caller is who makes a request. It is immutable, but for being revoked.
type Caller struct {
	// Name identifies the caller in events, the audit log and limits. It is empty
	// for a caller without identity.
	Name string
	// Roles are what the caller may do on a listener that permits it.
	Roles Roles
	// Expires is when the identity ends; zero means never.
	Expires time.Time
	// Quota has the limits of what the caller uses; nil for the default.
	Quota *quota.Class

	// patterns are those of the names of clusters and targets that the caller may
	// see; nil means all.
	patterns []string
	revoked  chan struct{}
}

// Anonymous returns a caller without identity that sees every cluster.
func Anonymous(r Roles) *Caller { return &Caller{Roles: r} }

// MaySee reports whether the caller's patterns include a cluster or target.
func (c *Caller) MaySee(name string) bool {
	return c.patterns == nil || slices.ContainsFunc(c.patterns, func(p string) bool { return match(p, name) })
}

// Restricted reports whether there are names that the caller may not see.
func (c *Caller) Restricted() bool { return c.patterns != nil }

// Revoked returns a channel that is closed when the identity is removed from the
// file, or changed in it. It is nil for a caller that cannot be revoked. Expiry
// does not close it.
func (c *Caller) Revoked() <-chan struct{} { return c.revoked }

// Ended reports whether the identity was revoked, or has expired.
func (c *Caller) Ended(now time.Time) bool {
	select {
	case <-c.revoked:
		return true
	default:
		return !c.Expires.IsZero() && !now.Before(c.Expires)
	}
}

// match reports whether name has the form of pattern, in which each "*" stands
// for any characters, including none.
func match(pattern, name string) bool {
	prefix, rest, found := strings.Cut(pattern, "*")
	if !found {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return false
	}
	for {
		part, more, found := strings.Cut(rest, "*")
		if !found {
			return strings.HasSuffix(name, rest)
		}
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name, rest = name[i+len(part):], more
	}
}
