package client

import (
	"bytes"
	"context"
	"hash/maphash"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// memory is what may be known already of each resource of a response: a value that
// is in use, whose Raw has the same hash. A server sends all resources of a type when
// one of them changed; only that one is decoded.
type memory []resource.Item

// item returns what is known of the i-th resource: it is, byte for byte, what was
// decoded before.
func (m memory) item(i int, t resource.Type, a *anypb.Any) (resource.Item, bool) {
	if i >= len(m) || m[i].Key.Type != t || a.GetTypeUrl() != t.URL() || !bytes.Equal(m[i].Raw, a.GetValue()) {
		return resource.Item{}, false
	}
	return m[i], true
}

// recall asks the owner what is known of a response. It is for runners.
func (c *Client) recall(ctx context.Context, m *discoveryv3.DiscoveryResponse) memory {
	hashes := make([]uint64, len(m.GetResources()))
	for i, a := range m.GetResources() {
		hashes[i] = maphash.Bytes(c.seed, a.GetValue())
	}
	answer := make(chan memory, 1)
	c.post(func() {
		known := make(memory, len(hashes))
		for i, h := range hashes {
			if r := c.known[h]; r != nil {
				known[i] = r.item
			}
		}
		answer <- known
	})
	select {
	case known := <-answer:
		return known
	case <-ctx.Done():
		return nil
	}
}

// remember sets the value of a resource, which recall then finds, and forgets the one
// that it had. It is for the owner.
func (c *Client) remember(r *serverResource, it resource.Item) {
	if c.known[r.hash] == r {
		delete(c.known, r.hash)
	}
	c.forgetUnapplied(r)
	if r.item = it; r.good() {
		c.rememberUnapplied(r)
		r.hash = maphash.Bytes(c.seed, it.Raw)
		c.known[r.hash] = r
	}
}
