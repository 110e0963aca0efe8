package fleet

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/lbd-dev/lbd/test/storetest"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/etcd"
)

var prefixes atomic.Int64

// fresh creates a fleet at a prefix that nothing has.
func (m *member) fresh(t testing.TB) etcd.Config {
	t.Helper()
	return m.create(t, fmt.Sprintf("fresh/test-%d", prefixes.Add(1)))
}

func TestConformance(t *testing.T) {
	m := startMember(t)
	fresh := func(t *testing.T) storetest.Open {
		c := m.fresh(t)
		return func(t *testing.T, o storetest.Options) store.Store {
			s, err := etcd.Open(t.Context(), c, etcd.Options{Now: o.Now, OnCommit: o.OnCommit})
			noError(t, err)
			return s
		}
	}
	storetest.Run(t, fresh, true)
}
