package fleet

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/etcd"
	"github.com/lbd-dev/lbd/xds/store/storetest"
)

var prefixes atomic.Int64

// freshPrefix returns a prefix that nothing has.
func freshPrefix() string { return fmt.Sprintf("lbd/test-%d", prefixes.Add(1)) }

func TestConformance(t *testing.T) {
	m := startMember(t)
	fresh := func(*testing.T) storetest.Open {
		c := etcd.Config{Endpoints: []string{m.client}, Prefix: freshPrefix()}
		return func(t *testing.T, o storetest.Options) store.Store {
			s, err := etcd.Open(t.Context(), c, etcd.Options{Now: o.Now, OnCommit: o.OnCommit})
			noError(t, err)
			return s
		}
	}
	storetest.Run(t, fresh, true)
}
