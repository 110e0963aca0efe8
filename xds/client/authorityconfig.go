package client

import (
	"slices"

	"github.com/lbd-dev/lbd/xds/bootstrap"
)

// authorityConfig is an authority of the bootstrap. The authorities of all targets share it.
type authorityConfig struct {
	name    string              // "" for names without an authority
	servers []*bootstrap.Server // in order of fallback, each once
	updates updateQueue
}

func newAuthorityConfig(name string, servers []bootstrap.Server) *authorityConfig {
	c := &authorityConfig{name: name, updates: updateQueue{batches: newQueue[updateBatch]()}}
	for i := range servers {
		if c.indexOf(&servers[i]) < 0 {
			c.servers = append(c.servers, &servers[i])
		}
	}
	return c
}

func (c *authorityConfig) indexOf(s *bootstrap.Server) int {
	return slices.IndexFunc(c.servers, func(o *bootstrap.Server) bool { return o.Key() == s.Key() })
}

// authorityKey identifies an authority: there is one for each target and each authority
// of the bootstrap that has resources of the target.
type authorityKey struct {
	target string
	config *authorityConfig
}
