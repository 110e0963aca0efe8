package decode_test

import (
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// A resource of a management server has the fields that are not applied beside its
// value; one that is stored has none.
func TestUnappliedFieldsOfAServer(t *testing.T) {
	for name, c := range map[string]struct {
		of       resource.Type
		body     string
		path     string
		field    string
		isStored bool
	}{
		"in the table": {resource.TypeCluster, eds(`"health_checks":[{}]`), "health_checks", "envoy.config.cluster.v3.Cluster.health_checks", false},
		"judged":       {resource.TypeCluster, eds(`"ring_hash_lb_config":{}`), "ring_hash_lb_config", "envoy.config.cluster.v3.Cluster.ring_hash_lb_config", false},
		"in an Any": {
			resource.TypeCluster, only(policy(weighted, `"enable_oob_load_report":true`)), inPolicy + ".enable_oob_load_report",
			"envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin.enable_oob_load_report", false,
		},
		"stored":  {resource.TypeCluster, eds(`"health_checks":[{}],"ring_hash_lb_config":{}`), "", "", true},
		"nothing": {resource.TypeCluster, eds(), "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			d := accept(t, resource.TypeCluster, c.body, decode.Options{})
			o := decode.Options{Origin: decode.FromServer, Stored: c.isStored}
			it, err := decode.Resource(c.of, &anypb.Any{TypeUrl: c.of.URL(), Value: d.Raw}, o)
			noError(t, err)
			switch {
			case c.field == "" && it.Unapplied == nil:
			case len(it.Unapplied) != 1 || it.Unapplied[0].Field != c.field || it.Unapplied[0].Path != c.path:
				t.Errorf("unapplied: %+v", it.Unapplied)
			}
		})
	}
}
