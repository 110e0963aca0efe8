package fleet

import (
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestExitWithoutStore: daemons end on SIGTERM while etcd is away, at different times after it went. The client of etcd
// would keep some of them.
func TestExitWithoutStore(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	var daemons []*daemon
	for range 6 {
		daemons = append(daemons, startDaemon(t, "etcd://"+m.client+"/lbd"))
	}
	for _, d := range daemons {
		d.untilReady(t, 200)
	}
	daemons[0].mustPush(t, "orders", 2)
	m.stop()
	var all sync.WaitGroup
	for i, d := range daemons {
		all.Go(func() {
			time.Sleep(time.Duration(i*i) * 300 * time.Millisecond)
			d.signal(syscall.SIGTERM)
			if code := d.exit(t); code != 0 {
				t.Errorf("daemon %d: exit code %d", i, code)
			}
		})
	}
	all.Wait()
}
