package service_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestUnknownReferencesOfRoutes: a snapshot whose routes refer to unknown resources gets
// warnings.
func TestUnknownReferencesOfRoutes(t *testing.T) {
	s, _ := start(t, "", nil)
	const absent = "picks that need it are refused unless a management server has it"
	byName := listener("shop")
	byName["api_listener"].(object)["api_listener"].(object)["rds"] = object{"route_config_name": "r", "config_source": object{"ads": object{}}} //nolint:errcheck,forcetypeassert // made above
	delete(byName["api_listener"].(object)["api_listener"].(object), "route_config")                                                             //nolint:errcheck,forcetypeassert // made above
	routes := func(name string, list ...object) object {
		return object{
			"@type": resource.TypeRoutes.URL(), "name": name,
			"virtual_hosts": []object{{"domains": []string{"*"}, "routes": list}},
		}
	}
	var many []string
	for i := range 12 {
		many = append(many, "c"+string(rune('a'+i))+"=1")
	}
	warned := func(resources ...object) string {
		var says []string
		for _, w := range pushAll(t, s, resources...).Warnings {
			if strings.Contains(w.Reason, absent) {
				says = append(says, w.Resource+" | "+w.String())
			}
		}
		return strings.Join(says, "\n")
	}

	const ofListener = `Listener/shop | resources[0].api_listener.api_listener.rds.route_config_name: is "r", which was not pushed and is in no file: ` + absent
	if got := warned(byName); got != ofListener {
		t.Errorf("a listener alone: %s", got)
	}
	if got, want := warned(assigned("b", "h"), routes("r", route("/a", "a"), route("/b", "b=1", "a=1"), route("/", "a"))),
		"RouteConfiguration/r | resources[1].virtual_hosts: lead to clusters that were not pushed and are in no file: a: "+absent; got != want {
		t.Errorf("a cluster that is not there: %s", got)
	}
	if got := warned(byName, assigned("a", "h")); got != "" {
		t.Errorf("all was pushed before: %s", got)
	}
	if got, want := warned(listener("own", route("/", many...))),
		"Listener/own | resources[0].api_listener.api_listener.route_config.virtual_hosts: lead to clusters that were not pushed and are in no file: "+
			"ca, cb, cc, cd, ce, cf, cg, ch, ci, cj and 2 more: "+absent; got != want {
		t.Errorf("many: %s", got)
	}

	// A resource of a file is known.
	s.FilesChanged(inFiles(t, map[resource.Key][]byte{{Type: sources.Config, Name: "filed"}: []byte(`{"type":"EDS"}`)}))
	if got := warned(routes("s", route("/", "filed"))); got != "" {
		t.Errorf("in a file: %s", got)
	}
	if !slices.Contains(strings.Fields(clusterNames(t, s)), "filed") {
		t.Error("the file is not followed")
	}
}
