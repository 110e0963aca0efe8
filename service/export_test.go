package service

import (
	"context"

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

// Settle returns once all trees have their newest config.
func (s *Service) Settle(ctx context.Context) error {
	var names []string
	for _, t := range s.targets.Hosted().Sorted() {
		names = append(names, t.Name)
	}
	return s.targets.Settle(ctx, names)
}
