package ctl

import (
	"fmt"
	"io"
)

// effect is an Effect of the contract: what a change would do to picks.
type effect struct {
	Targets      []string        `json:"targets"`
	Clusters     []clusterEffect `json:"clusters"`
	MoreClusters int             `json:"more_clusters"`
	Unpredicted  []string        `json:"unpredicted"`
}

type clusterEffect struct {
	Cluster        string   `json:"cluster"`
	PicksPerSecond *float64 `json:"picks_per_second"`
	Shift          *float64 `json:"shift"`
	MovedHashKeys  *float64 `json:"moved_hash_keys"`
	Before         outcome  `json:"before"`
	After          outcome  `json:"after"`
	Endpoints      []struct {
		Address string   `json:"address"`
		Before  *float64 `json:"share_before"`
		After   *float64 `json:"share_after"`
	} `json:"endpoints"`
	MoreEndpoints int      `json:"more_endpoints"`
	Limits        []string `json:"limits"`
	Unpredicted   []string `json:"unpredicted"`
}

type outcome struct {
	Dropped float64 `json:"dropped"`
	Error   string  `json:"error"`
}

const (
	// maxClustersShown and maxEndpointsShown limit the preview of a large change: -o json has all.
	maxClustersShown  = 10
	maxEndpointsShown = 10
)

// describe prints the effect.
func (e *effect) describe(w io.Writer) {
	for i := range e.Clusters[:min(len(e.Clusters), maxClustersShown)] {
		e.Clusters[i].describe(w)
	}
	if more := len(e.Clusters) - maxClustersShown + e.MoreClusters; more > 0 {
		fmt.Fprintf(w, "effect on %d more clusters\n", more)
	}
	printAll(w, "effect on target ", e.Targets[:min(len(e.Targets), maxClustersShown)])
	printAll(w, "note: ", e.Unpredicted)
}

// printAll prints a line for each text.
func printAll(w io.Writer, prefix string, texts []string) {
	for _, text := range texts {
		fmt.Fprintln(w, escape(prefix+text))
	}
}

func (c *clusterEffect) describe(w io.Writer) {
	line := "effect on " + c.Cluster + ": "
	if c.Shift == nil {
		line += "it cannot be predicted how many picks would move"
	} else {
		line += percent(*c.Shift) + " of the picks would move"
	}
	if c.PicksPerSecond != nil {
		line += fmt.Sprintf(" (of %.3g/s)", *c.PicksPerSecond)
	}
	if c.MovedHashKeys != nil {
		line += "; " + percent(*c.MovedHashKeys) + " of the hash keys"
	}
	if c.Before.Dropped != c.After.Dropped {
		line += "; drops " + percent(c.Before.Dropped) + " to " + percent(c.After.Dropped)
	}
	if c.After.Error != "" {
		line += "; picks would fail: " + c.After.Error
	}
	fmt.Fprintln(w, escape(line))
	shown := 0
	for _, e := range c.Endpoints {
		if e.Before == nil || e.After == nil || *e.Before == *e.After {
			continue
		}
		if shown++; shown <= maxEndpointsShown {
			fmt.Fprintln(w, escape("  "+e.Address+": "+percent(*e.Before)+" to "+percent(*e.After)))
		}
	}
	if more := max(0, shown-maxEndpointsShown) + c.MoreEndpoints; more > 0 {
		fmt.Fprintf(w, "  and %d more endpoints\n", more)
	}
	printAll(w, "warning: ", c.Limits)
	printAll(w, "note: ", c.Unpredicted)
}
