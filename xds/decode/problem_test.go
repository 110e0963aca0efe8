package decode_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestProblemsAreListedUpToAHundred(t *testing.T) {
	for _, c := range []struct {
		broken int
		last   string
	}{
		{100, "endpoints[0].lb_endpoints[99].load_balancing_weight: is 0: it must be at least 1, or absent, which is 1"},
		{123, "and 23 more like these"},
	} {
		var endpoints []string
		for i := range c.broken {
			endpoints = append(endpoints, endpoint("h", i+1, `"load_balancing_weight":0`))
		}
		_, err := decode.One(resource.TypeAssignment, []byte(localities(locality("a", 0, 1, endpoints...))), decode.Options{})
		got := refusals(t, err, "ClusterLoadAssignment/orders")
		if len(got) != min(c.broken, 101) || got[len(got)-1] != c.last {
			t.Errorf("%d problems, the last %q; want the last %q", len(got), got[len(got)-1], c.last)
		}
	}
}

func TestWarningsAreListedUpToAHundred(t *testing.T) {
	var groups []string
	for i := range 150 {
		groups = append(groups, locality(fmt.Sprint(i), 0, 0))
	}
	d := accept(t, resource.TypeAssignment, localities(groups...), decode.Options{})
	if n := len(d.Warnings); n != 101 || d.Warnings[100].Reason != "and 50 more like these" {
		t.Errorf("%d warnings, the last %v", n, d.Warnings[n-1])
	}
}

func TestReasonsQuoteNoMoreThanCanBeRead(t *testing.T) {
	long := strings.Repeat("é", 5000)
	for _, body := range []string{
		`{"cluster_name":"orders","` + long + `":1}`,
		`{"cluster_name":"orders","endpoints":[{"priority":"` + long + `"}]}`,
	} {
		_, err := decode.One(resource.TypeAssignment, []byte(body), decode.Options{})
		if err == nil || len(err.Error()) > 3000 {
			t.Errorf("an error of %d bytes", len(fmt.Sprint(err)))
		}
	}
}

func TestErrorsRead(t *testing.T) {
	err := &decode.InvalidError{Problems: []decode.Problem{
		{Resource: "Cluster/a", Field: "name", Reason: "is empty"},
		{Resource: "Cluster/a", Reason: "is odd"},
		{Resource: "Cluster/b", Field: "type", Reason: "is absent"},
	}}
	if got, want := err.Error(), "Cluster/a: name: is empty; is odd; Cluster/b: type: is absent"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	text, e := json.Marshal(err.Problems[0])
	if want := `{"resource":"Cluster/a","field":"name","reason":"is empty"}`; e != nil || string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
}

// Every field that a refusal names is found in the body.
func TestLocateFindsWhatDecodingRefuses(t *testing.T) {
	body := "version: '1'\nresources:\n- '@type': " + clusterType + "\n  name: a\n  type: STATIC\n- '@type': " + assignmentType +
		"\n  clusterName: b\n  endpoints:\n  - lbEndpoints:\n    - endpoint:\n        address: {socketAddress: {address: 'a:1', portValue: 0}}\n"
	_, err := decode.All([]byte(body), decode.Options{Format: decode.FormatYAML})
	var invalid *decode.InvalidError
	if !errors.As(err, &invalid) {
		t.Fatal(err)
	}
	l := text.LocateYAML([]byte(body))
	var got []string
	for _, p := range invalid.Problems {
		line, column := l.Find(p.Field)
		got = append(got, fmt.Sprintf("%d:%d", line, column))
	}
	if want := "[5:3 11:35 11:51]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s: %v", got, want, err)
	}
}
