package ctl

import (
	"context"
	"strconv"

	"github.com/alecthomas/kong"
)

type leasesCommand struct {
	Cluster   string `help:"Only leases of this cluster (default all)" placeholder:"CLUSTER"`
	Owner     string `help:"Only leases of this owner (default all)" placeholder:"NAME"`
	Identity  string `help:"Only leases of the caller with this identity (default all)" placeholder:"NAME"`
	OlderThan string `help:"Only leases that were granted at least so long ago, such as 5m (default all)" placeholder:"DURATION"`
	Limit     int    `help:"Maximum number of leases; 0: all (default ${default})" default:"1000" placeholder:"N"`
}

// Run prints a table of leases.
func (l *leasesCommand) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	if l.Limit < 0 {
		return usage("--limit must not be negative: %d", l.Limit)
	}
	q := parameters("cluster", l.Cluster, "owner", l.Owner, "identity", l.Identity, "older_than", l.OlderThan,
		"limit", strconv.Itoa(pageSize))
	if l.Limit > 0 {
		q.Set("limit", strconv.Itoa(min(l.Limit, pageSize)))
	}
	return o.with(app, func(s *session) error {
		raw, leases, err := list[struct {
			ID       string `json:"id"`
			Cluster  string `json:"cluster"`
			Leaf     string `json:"leaf"`
			Address  string `json:"address"`
			Owner    string `json:"owner"`
			Identity string `json:"identity"`
			Granted  string `json:"granted_at"`
			Expires  string `json:"expires_at"`
		}](ctx, s.client, "/v1/leases", "leases", q, l.Limit)
		if err != nil {
			return err
		}
		t := newTable("ID", "CLUSTER", "LEAF", "ADDRESS", "OWNER", "IDENTITY", "GRANTED", "EXPIRES")
		for _, one := range leases {
			t.add(one.ID, one.Cluster, one.Leaf, one.Address, one.Owner, one.Identity, clock(one.Granted), clock(one.Expires))
		}
		return s.printTables(raw, t)
	})
}
