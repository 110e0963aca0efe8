package service_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
)

// fussy is a policy of another's that takes one config alone.
type fussy struct{ balancer.Builder }

type fussyConfig struct {
	serviceconfig.LoadBalancingConfig
	Endpoints string `json:"endpoints"`
}

var errTaste = errors.New("endpoints must be any")

func (fussy) ParseConfig(text json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	c := &fussyConfig{}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, err
	}
	if c.Endpoints != "any" {
		return nil, errTaste
	}
	return c, nil
}

// anyReady picks one of the SubConns that are READY.
type anyReady struct{}

func (anyReady) Build(info base.PickerBuildInfo) balancer.Picker {
	for sc := range info.ReadySCs {
		return &only{sc}
	}
	return base.NewErrPicker(balancer.ErrNoSubConnAvailable)
}

type only struct{ sc balancer.SubConn }

func (o *only) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{SubConn: o.sc}, nil
}

func init() {
	balancer.Register(fussy{base.NewBalancerBuilder("test.fussy", anyReady{}, base.Config{})})
}

func fussyCluster(t *testing.T, value object) []byte {
	return encode(t, object{"type": "EDS", "load_balancing_policy": object{"policies": []object{{
		"typed_extension_config": object{"name": "x", "typed_config": object{
			"@type": "type.googleapis.com/xds.type.v3.TypedStruct", "type_url": "type.googleapis.com/test.fussy", "value": value,
		}},
	}}}})
}

// TestConfigThatACustomPolicyRefuses: the push is refused in the policy's words,
// and what serves goes on, after a restart too.
func TestConfigThatACustomPolicyRefuses(t *testing.T) {
	dir := t.TempDir()
	s, stop := start(t, dir, nil)
	push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	push(t, s, sources.Config, "orders", fussyCluster(t, object{"endpoints": "any"}))
	for _, dry := range []bool{true, false} {
		_, err := s.Push(t.Context(), &sources.PushRequest{
			Kind: sources.Config, Cluster: "orders", Body: fussyCluster(t, object{"endpoints": "none"}), ChangeOptions: sources.ChangeOptions{DryRun: dry},
		})
		e, ok := errors.AsType[*fault.Error](err)
		if !ok || e.Code != fault.InvalidResource || len(e.Problems) != 1 ||
			e.Problems[0].Field != "load_balancing_policy.policies[0].typed_extension_config.typed_config.value" ||
			e.Problems[0].Reason != "is rejected by test.fussy: "+errTaste.Error() {
			t.Errorf("refused with %+v, %v", e, err)
		}
	}
	serves := func() {
		t.Helper()
		if out, err := pick(s, picks.Request{Cluster: "orders", Wait: picks.MaxWait}); err != nil || out.Picks[0].Address != "a-0:80" {
			t.Errorf("%+v, %v", out, err)
		}
		c, err := s.Cluster(t.Context(), "orders", "", true)
		if err != nil || !strings.HasSuffix(c.Policy, "test.fussy") || c.State != "READY" {
			t.Errorf("%+v, %v", c, err)
		}
	}
	serves()
	stop()
	s, _ = start(t, dir, nil)
	serves()
}
