package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/xds/resource"
)

// summarize prints how picks would use a resource of a file.
func summarize(out io.Writer, i resource.Item, among []resource.Item) {
	switch {
	case i.Listener != nil:
		summarizeListener(out, i.Listener, among)
	case i.Routes != nil:
		fmt.Fprintf(out, ": virtual hosts: %d\n", len(i.Routes.VirtualHosts))
		for _, h := range i.Routes.VirtualHosts {
			summarizeVirtualHost(out, h)
		}
	case i.Cluster != nil:
		c := i.Cluster
		fmt.Fprintf(out, ": %s, endpoints of %q, at most %d requests in flight\n", c.Type, c.AssignmentName(), c.MaxRequests)
	case i.Assignment != nil:
		summarizeAssignment(out, i.Assignment)
	}
}

// summarizeListener prints the routes of the target of a Listener.
func summarizeListener(out io.Writer, l *resource.Listener, among []resource.Item) {
	fmt.Fprintf(out, ": target xds:///%s, ", l.Name)
	routes := l.Routes
	if routes != nil {
		fmt.Fprintln(out, "routes of its own")
	} else {
		n := slices.IndexFunc(among, func(i resource.Item) bool { return i.Routes != nil && i.Routes.Name == l.RouteName })
		if n < 0 {
			fmt.Fprintf(out, "routes of RouteConfiguration %q, which is not in this file\n", l.RouteName)
			return
		}
		fmt.Fprintf(out, "routes of RouteConfiguration %q\n", l.RouteName)
		routes = among[n].Routes
	}
	if h := routes.VirtualHost(l.Name); h != nil {
		summarizeVirtualHost(out, h)
	} else {
		fmt.Fprintf(out, "  no virtual host for %q: picks fail\n", l.Name)
	}
}

// summarizeVirtualHost prints the routes in order, with their clusters.
func summarizeVirtualHost(out io.Writer, h *resource.VirtualHost) {
	fmt.Fprintf(out, "  virtual host %q, for %s\n", h.Name, strings.Join(h.Domains, ", "))
	for _, r := range h.Routes {
		fmt.Fprintf(out, "    %s: %s\n", r.Match.Words(), whereTo(r))
	}
}

// whereTo describes the clusters of a route.
func whereTo(r *resource.Route) string {
	if len(r.Clusters) == 0 {
		return "no cluster, picks fail (" + r.Unsupported + ")"
	}
	clusters := make([]string, len(r.Clusters))
	for i, c := range r.Clusters {
		clusters[i] = fmt.Sprintf("%.4g %% to cluster %s", 100*float64(c.Weight)/float64(r.TotalWeight), c.Name)
	}
	return strings.Join(clusters, ", ")
}

// summarizeAssignment prints the share of the picks of each endpoint.
func summarizeAssignment(out io.Writer, a *resource.Assignment) {
	fmt.Fprintf(out, ": %d usable endpoints\n", a.Usable())
	for _, d := range a.Drops {
		fmt.Fprintf(out, "  drops %.4g %% as %q\n", float64(d.PerMillion)/1e4, d.Category)
	}
	localities := slices.Clone(a.Localities)
	slices.SortStableFunc(localities, func(x, y *resource.LocalityEndpoints) int { return cmp.Compare(x.Priority, y.Priority) })
	sums := make(map[uint32]uint64)
	for _, l := range localities {
		if usableOf(l) > 0 {
			sums[l.Priority] += uint64(l.Weight)
		}
	}
	for _, l := range localities {
		n := usableOf(l)
		if n == 0 {
			fmt.Fprintf(out, "  priority %d, locality %s: no usable endpoint\n", l.Priority, l.ID)
			continue
		}
		share := 100 * float64(l.Weight) / float64(sums[l.Priority])
		fmt.Fprintf(out, "  priority %d, locality %s: weight %d, %.4g %% of the picks, %d endpoints with %.4g %% each%s\n",
			l.Priority, l.ID, l.Weight, share, n, share/float64(n), whenUsed(l.Priority))
	}
}

func usableOf(l *resource.LocalityEndpoints) int {
	n := 0
	for _, e := range l.Endpoints {
		if e.Usable() {
			n++
		}
	}
	return n
}

func whenUsed(priority uint32) string {
	if priority == 0 {
		return ""
	}
	return ", while every higher priority fails"
}
