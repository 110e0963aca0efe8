package sources

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// maxMissing is how many clusters one warning names.
const maxMissing = 10

// missing warns of what the routes of a bundle lead to and nobody here has, once
// the bundle holds: a target cannot be used without it. It may be on its way, or
// come from a management server.
func (s *Sources) missing(tx *store.Tx, b *decode.Bundle) []fault.Problem {
	var warnings []fault.Problem
	has := func(t resource.Type, name string) bool {
		key := resource.Key{Type: t, Name: name}
		if _, ok := tx.Get(key); ok {
			return true
		}
		set := s.files.Load()
		if set == nil {
			return false
		}
		_, ok := set.Resources[key]
		return ok
	}
	warn := func(i resource.Item, field, format string, args ...any) {
		if len(warnings) < decode.MaxProblems {
			warnings = append(warnings, fault.Problem{
				Resource: i.Key.String(), Field: strings.TrimPrefix(i.Field+"."+field, "."), Reason: fmt.Sprintf(format, args...),
			})
		}
	}
	for _, i := range b.Items {
		routes, at := i.Routes, "virtual_hosts"
		if l := i.Listener; l != nil {
			if l.RouteName != "" && !has(resource.TypeRoutes, l.RouteName) {
				warn(i, "api_listener.api_listener.rds.route_config_name", "is %q, which was not pushed and is in no file: "+whereElse, l.RouteName)
			}
			routes, at = l.Routes, "api_listener.api_listener.route_config.virtual_hosts"
		}
		if routes == nil {
			continue
		}
		var unknown []string
		for _, name := range clustersOf(routes) {
			if !has(Config, name) && !has(Endpoints, name) {
				unknown = append(unknown, name)
			}
		}
		if n := len(unknown); n > 0 {
			more := ""
			if n > maxMissing {
				unknown, more = unknown[:maxMissing], fmt.Sprintf(" and %d more", n-maxMissing)
			}
			warn(i, at, "lead to clusters that were not pushed and are in no file: %s%s: "+whereElse, strings.Join(unknown, ", "), more)
		}
	}
	return warnings
}

const whereElse = "picks that need it are refused unless a management server has it"

// clustersOf are the clusters that routes lead to, each once.
func clustersOf(c *resource.RouteConfiguration) []string {
	var names []string
	for _, h := range c.VirtualHosts {
		for _, r := range h.Routes {
			for _, to := range r.Clusters {
				names = append(names, to.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
