package lbdclient

import (
	"cmp"
	"crypto/tls"
	"net/http"
	"slices"
	"sync"
)

// clones has a clone of the Base of a Transport for each host of a cluster with https: its connections are for one name.
type clones struct {
	mu    sync.Mutex
	known map[cloneKey]*http.Transport // maxClusters at most
}

type cloneKey struct {
	base *http.Transport
	host string
}

// of returns the clone of base for a host.
func (c *clones) of(base *http.Transport, host string) *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := cloneKey{base, host}
	if known := c.known[key]; known != nil {
		return known
	}
	clone := base.Clone()
	if clone.TLSClientConfig == nil {
		clone.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if slices.Contains(clone.TLSClientConfig.NextProtos, "h2") { // base speaks it, but Clone does not set it up
		clone.ForceAttemptHTTP2 = true
	}
	clone.TLSClientConfig.ServerName = cmp.Or(clone.TLSClientConfig.ServerName, host)
	for other, old := range c.known {
		if len(c.known) < maxClusters {
			break
		}
		delete(c.known, other)
		old.CloseIdleConnections() // and those in use, when they are idle
	}
	c.known[key] = clone
	return clone
}

// closeIdle closes the idle connections of the clones of base; of all clones if it is nil.
func (c *clones) closeIdle(base http.RoundTripper) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, clone := range c.known {
		if base == nil || key.base == base {
			clone.CloseIdleConnections()
		}
	}
}
