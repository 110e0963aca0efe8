package client

import (
	"hash/maphash"

	"github.com/lbd-dev/lbd/xds/resource"
)

// resourceCache finds the values in use by the hash of their bytes: a server sends all
// resources of a type when one of them changed, and only that one is decoded.
type resourceCache struct {
	seed maphash.Seed // fixed

	// owner only
	byHash    map[uint64]*resourceState
	byKey     map[resource.Key]*resourceState // of the server that sent it last
	unapplied unappliedFields
}

// lookUp returns, for each hash, the value that has it, or the zero Item.
func (c *resourceCache) lookUp(hashes []uint64) cachedItems {
	items := make(cachedItems, len(hashes))
	for i, h := range hashes {
		if r := c.byHash[h]; r != nil {
			items[i] = r.item
		}
	}
	return items
}

// set sets the value of a resource, or removes it with the zero Item.
func (c *resourceCache) set(r *resourceState, item resource.Item) {
	if c.byHash[r.hash] == r {
		delete(c.byHash, r.hash)
	}
	if c.byKey[r.key] == r {
		delete(c.byKey, r.key)
	}
	c.unapplied.remove(r)
	if r.item = item; r.hasValue() {
		c.unapplied.add(r)
		r.hash = maphash.Bytes(c.seed, item.Raw)
		c.byHash[r.hash] = r
		c.byKey[r.key] = r
	}
}

// previous returns a value in use, or the zero Item.
func (c *resourceCache) previous(key resource.Key) resource.Item {
	if r := c.byKey[key]; r != nil {
		return r.item
	}
	return resource.Item{}
}
