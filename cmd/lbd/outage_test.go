package main

import (
	"testing"
	"time"
)

// TestIdleClustersInOutage: while the management server is unreachable, resources of idle
// clusters are kept for later picks, also after a restart.
func TestIdleClustersInOutage(t *testing.T) {
	t.Parallel()
	_, p := serveSnapshot(t,
		edsCluster("orders"), assignmentOf("orders", "10.0.0.1:80"), edsCluster("cart"), assignmentOf("cart", "10.0.0.3:80"),
	)
	c := Config{Bootstrap: bootstrapOf(t, p), Data: t.TempDir(), OnDemandIdle: time.Second, PickWait: 2 * time.Second}
	idle := func(url string) {
		eventually(t, "the end of what is idle", func() bool { return xdsState(t, url, "").OnDemand.Clusters == 0 })
	}
	t.Run("released", func(t *testing.T) {
		url := startFollowing(t, c)
		orders, cart := call(t, url, "cluster=orders"), call(t, url, "cluster=cart")
		orders.more()
		cart.more()
		p.kill()
		untilMetric(t, url, `lbd_cluster_stale{cluster="orders"}`, "1")
		orders.stop()
		cart.stop()
		idle(url)
		expectStale(t, url, "cluster=orders", "true")
	})
	t.Run("restarted", func(t *testing.T) {
		url := startFollowing(t, c)
		expectStale(t, url, "cluster=cart", "true")
		idle(url)
		expectStale(t, url, "cluster=orders", "true")
	})
}
