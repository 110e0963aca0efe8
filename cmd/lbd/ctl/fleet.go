package ctl

import (
	"context"
	"fmt"
	"strconv"

	"github.com/alecthomas/kong"
)

type fleetCommand struct{}

// fleetState has what the tables show of the state of a fleet.
type fleetState struct {
	Shared   bool `json:"shared"`
	Joined   bool `json:"joined"`
	Replicas []struct {
		ID      string `json:"id"`
		Name    string `json:"name"`
		Self    bool   `json:"self"`
		State   string `json:"state"`
		Version string `json:"version"`
		Zone    string `json:"zone"`
		Summary *struct {
			Index  uint64  `json:"index"`
			Behind uint64  `json:"behind"`
			Picks  float64 `json:"picks_per_second"`
		} `json:"summary"`
	} `json:"replicas"`
	Limits []struct {
		Cluster  string `json:"cluster"`
		Limit    uint64 `json:"limit"`
		Shares   uint64 `json:"shares"`
		Demand   uint64 `json:"demand"`
		Free     uint64 `json:"free"`
		Replicas int    `json:"replicas"`
	} `json:"limits"`
	Disagreements []struct {
		Says string `json:"says"`
	} `json:"disagreements"`
}

// Run prints tables of daemons and of their common limits.
func (fleetCommand) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	return o.with(app, func(s *session) error {
		var fleet fleetState
		answer, err := s.client.get(ctx, "/v1/fleet", nil, &fleet)
		if err != nil {
			return err
		}
		daemons := newTable("NAME", "ID", "STATE", "ZONE", "VERSION", "INDEX", "BEHIND", "PICKS/S")
		for _, r := range fleet.Replicas {
			name, index, behind, picks := r.Name, "", "", ""
			if r.Self {
				name += " (this daemon)"
			}
			if r.Summary != nil {
				index, behind = strconv.FormatUint(r.Summary.Index, 10), strconv.FormatUint(r.Summary.Behind, 10)
				picks = decimal(r.Summary.Picks)
			}
			daemons.addNamed(r.ID, name, r.ID, r.State, r.Zone, r.Version, index, behind, picks)
		}
		limits := newTable("CLUSTER", "LIMIT", "SHARES", "DEMAND", "FREE", "DAEMONS")
		for _, l := range fleet.Limits {
			n := func(v uint64) string { return strconv.FormatUint(v, 10) }
			limits.add(l.Cluster, n(l.Limit), n(l.Shares), n(l.Demand), n(l.Free), strconv.Itoa(l.Replicas))
		}
		disagreements := newTable("DISAGREEMENT")
		for _, d := range fleet.Disagreements {
			disagreements.add(d.Says)
		}
		if s.output == "table" && !fleet.Shared {
			fmt.Fprintln(s.stdout, "the daemon shares no store with others: it has no --store")
			return nil
		}
		if !fleet.Joined && fleet.Shared {
			s.notice("this daemon has no session in the store: it admits no requests of limits of the fleet")
		}
		return s.printTables(answer.body, daemons, limits, disagreements)
	})
}
