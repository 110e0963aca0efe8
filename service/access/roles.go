package access

import (
	"fmt"
	"slices"
	"strings"
)

// Roles is a set of roles. The zero value has none.
type Roles uint8

// The roles. A role is a kind of call, not a rank: none includes another.
const (
	// Pick permits picks, and to renew and end leases by their IDs.
	Pick Roles = 1 << iota
	// Read permits to read states, resources, targets, events and files.
	Read
	// Push permits to change resources and targets.
	Push
	// Admin permits decisions of the operator, such as to apply a held change.
	Admin
	// Metrics permits to read metrics.
	Metrics
	// Dashboard permits to load the files of the dashboard and of /docs, which hold
	// no state: the dashboard reads that with the role Read.
	Dashboard

	// All is every role.
	All = Pick | Read | Push | Admin | Metrics | Dashboard
)

var roleNames = []string{"pick", "read", "push", "admin", "metrics", "dashboard"}

// Has reports whether r includes all of other.
func (r Roles) Has(other Roles) bool { return r&other == other }

// Names returns the names of the roles in r, in a fixed order.
func (r Roles) Names() []string {
	var names []string
	for i, name := range roleNames {
		if r.Has(1 << i) {
			names = append(names, name)
		}
	}
	return names
}

// String returns the form that [ParseRoles] reads: "pick+read", "all" or "none".
func (r Roles) String() string {
	switch r {
	case 0:
		return "none"
	case All:
		return "all"
	default:
		return strings.Join(r.Names(), "+")
	}
}

// ParseRoles parses names of roles joined by "+", "all" or "none".
func ParseRoles(s string) (Roles, error) {
	switch s {
	case "none":
		return 0, nil
	case "all":
		return All, nil
	default:
		return rolesOf(strings.Split(s, "+"))
	}
}

// rolesOf returns the set of the named roles.
func rolesOf(names []string) (Roles, error) {
	var r Roles
	for _, name := range names {
		i := slices.Index(roleNames, name)
		switch {
		case i < 0 && strings.Contains(name, ","):
			return 0, fmt.Errorf("%q: join roles with +, such as pick+read", name)
		case i < 0:
			return 0, fmt.Errorf("unknown role %q: roles are %s", name, strings.Join(roleNames, ", "))
		case r.Has(1 << i):
			return 0, fmt.Errorf("duplicate role %q", name)
		}
		r |= 1 << i
	}
	return r, nil
}

// IsRole reports whether name is that of a role.
func IsRole(name string) bool { return slices.Contains(roleNames, name) }
