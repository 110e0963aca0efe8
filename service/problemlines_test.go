package service_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
)

// TestProblemsHaveLines: a problem has the line and the column of the field, in every
// format.
func TestProblemsHaveLines(t *testing.T) {
	s, _ := start(t, "", nil)
	const yaml = "endpoints:\n- locality: {zone: a}\n  load_balancing_weight: 1\n  lb_endpoints:\n  - endpoint:\n" +
		"      address: {socket_address: {address: 10.0.0.1, port_value: 70000}}\n"
	const json = `{
  "endpoints": [{
    "loadBalancingWeight": 1,
    "lbEndpoints": [{"endpoint": {"address": {"socketAddress":
      {"address": "10.0.0.1", "portValue": 70000}}}}]
  }]
}`
	enveloped := "resources:\n- \"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment\n" +
		"  cluster_name: c\n  " + strings.ReplaceAll(yaml, "\n", "\n  ")
	large := strings.Repeat("# a line\n", 1<<17) + yaml
	for name, c := range map[string]struct {
		body   string
		format sources.Format
		line   int
		column int
	}{
		"YAML":              {yaml, sources.YAML, 6, 53},
		"JSON":              {json, sources.JSON, 5, 31},
		"in an envelope":    {enveloped, sources.YAML, 9, 55},
		"YAML that is long": {large, sources.YAML, 0, 0},
		"not YAML":          {"endpoints:\n- a: [\n", sources.YAML, 2, 0},
		"not JSON":          {"{\n  \"endpoints\": }", sources.JSON, 2, 16},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Push(t.Context(), &sources.PushRequest{
				Kind: sources.Endpoints, Cluster: "c", Body: []byte(c.body), Format: c.format, ChangeOptions: sources.ChangeOptions{DryRun: true},
			})
			e, ok := errors.AsType[*fault.Error](err)
			if !ok || len(e.Problems) != 1 {
				t.Fatalf("refused with %+v", err)
			}
			if p := e.Problems[0]; p.Line != c.line || p.Column != c.column {
				t.Errorf("%q is at line %d, column %d; want %d, %d", p, p.Line, p.Column, c.line, c.column)
			}
		})
	}

	result, err := s.Push(t.Context(), &sources.PushRequest{
		Kind: sources.Endpoints, Cluster: "c", Format: sources.YAML, ChangeOptions: sources.ChangeOptions{DryRun: true}, Lenient: true,
		Body: []byte(strings.Replace(strings.Replace(yaml, "70000", "7000", 1), "endpoints:", "other: 1\nendpoints:", 1)),
	})
	if err != nil || len(result.Warnings) != 1 || result.Warnings[0].Line != 1 || len(result.Notes) != 1 || result.Notes[0].Line != 1 {
		t.Errorf("warned with %+v, %v", result, err)
	}
}

// TestFewProblemsAreLocatedInMuchJSON: large JSON is not read again for each problem.
func TestFewProblemsAreLocatedInMuchJSON(t *testing.T) {
	s, _ := start(t, "", nil)
	var endpoints []string
	for i := range 50 {
		endpoints = append(endpoints, fmt.Sprintf(`{"endpoint":{"address":{"socket_address":{"address":"10.0.0.%d","port_value":0}}}}`, i))
	}
	body := `{"endpoints":[{"load_balancing_weight":1,"lb_endpoints":[` + strings.Join(endpoints, ",\n") + "]}]}" + strings.Repeat(" ", 1<<20)
	_, err := s.Push(t.Context(), &sources.PushRequest{
		Kind: sources.Endpoints, Cluster: "c", Body: []byte(body), Format: sources.JSON, ChangeOptions: sources.ChangeOptions{DryRun: true},
	})
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || len(e.Problems) != 50 {
		t.Fatalf("refused with %+v", err)
	}
	if e.Problems[0].Line != 1 || e.Problems[14].Line != 15 || e.Problems[20].Line != 0 {
		t.Errorf("problems are at lines %d, %d and %d", e.Problems[0].Line, e.Problems[14].Line, e.Problems[20].Line)
	}
}
