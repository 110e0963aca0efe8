package sources

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// maxUnknownClusters limits how many clusters one warning names.
const maxUnknownClusters = 10

// unknownReferences warns about the references of a bundle's routes to resources that
// neither the store, after the push that tx holds, nor a file has. They may be pushed
// later, or come from a management server.
func (p *pushes) unknownReferences(tx *store.Tx, b *decode.Bundle) []fault.Problem {
	var warnings []fault.Problem
	has := func(t resource.Type, name string) bool {
		key := resource.Key{Type: t, Name: name}
		_, ok := tx.Get(key)
		return ok || p.files.has(key)
	}
	warn := func(i resource.Item, field, format string, args ...any) {
		if len(warnings) < decode.MaxProblems {
			reason := fmt.Sprintf(format, args...) + ": picks that need it are refused unless a management server has it"
			warnings = append(warnings, fault.Problem{Resource: i.Key.String(), Field: strings.TrimPrefix(i.Field+"."+field, "."), Reason: reason})
		}
	}
	for _, i := range b.Items {
		routes, at := i.Routes, "virtual_hosts"
		if l := i.Listener; l != nil {
			if l.RouteName != "" && !has(resource.TypeRoutes, l.RouteName) {
				warn(i, "api_listener.api_listener.rds.route_config_name", "is %q, which was not pushed and is in no file", l.RouteName)
			}
			routes, at = l.Routes, "api_listener.api_listener.route_config.virtual_hosts"
		}
		if routes == nil {
			continue
		}
		unknown := slices.DeleteFunc(routes.Clusters(), func(name string) bool { return has(Config, name) || has(Endpoints, name) })
		if len(unknown) > 0 {
			warn(i, at, "lead to clusters that were not pushed and are in no file: %s", difference.Few(unknown, maxUnknownClusters))
		}
	}
	return warnings
}
