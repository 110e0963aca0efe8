package service

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// SetStale sets whether the source of a cluster's own tree is unreachable.
func (s *Service) SetStale(cluster string, stale bool) {
	s.targets.Hosted().Own(cluster).View().Only.SetStale(stale)
}

// SetAmbientError makes a resource of a cluster's own tree one that is in use in spite of
// an error.
func (s *Service) SetAmbientError(cluster string, key resource.Key, err error) {
	errors := []resolver.AmbientError{{Key: key, Err: err}}
	s.targets.Hosted().Own(cluster).SetAmbient(resolver.AmbientErrors{All: errors, Routing: errors})
}

// CompareSeries compares all series of the families in want with want, one series a line.
func CompareSeries(t *testing.T, g prometheus.Gatherer, want string) {
	t.Helper()
	families, err := prometheus.Gatherers{g}.Gather() // which finds inconsistent series
	noError(t, err)
	wanted, names := strings.Split(strings.TrimSpace(want), "\n"), map[string]bool{}
	for _, line := range wanted {
		names[line[:strings.IndexAny(line, "{ ")]] = true
	}
	var got []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			line := f.GetName()
			if labels != nil {
				line += "{" + strings.Join(labels, ",") + "}"
			}
			if names[f.GetName()] {
				got = append(got, fmt.Sprint(line, " ", m.GetGauge().GetValue()+m.GetCounter().GetValue()))
			}
		}
	}
	slices.Sort(got)
	slices.Sort(wanted)
	if !slices.Equal(got, wanted) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wanted, "\n"))
	}
}
