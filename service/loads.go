package service

import (
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/lrs"
)

// Loads is what the picks of all trees come to, for load reports.
func (s *Service) Loads() lrs.Loads { return loads{s.counters} }

// loads gives what policies count to those who report it.
type loads struct{ counters *policy.Counters }

func (l loads) Open(key lrs.Key) lrs.Counters { return l.counters.ReadLoad(policy.ServiceKey(key)) }
