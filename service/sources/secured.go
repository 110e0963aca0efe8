package sources

import (
	"bytes"
	"context"
	"crypto/sha256"
	"slices"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// securedType is the store's type of the marks of pushed Clusters that were in use with
// TLS by a certificate provider: by the Cluster's name, with the hash of its content.
// Such a Cluster never gets plain connections, even if lbd starts without a bootstrap.
// A Cluster without a mark may be of an older lbd, which accepted it without a bootstrap
// and made plain connections: it keeps these. The marks are no xDS resources.
const securedType resource.Type = "Secured"

// internal reports whether a store's entry is no xDS resource.
func internal(key resource.Key) bool { return key.Type == hostedType || key.Type == securedType }

// markSecured updates the mark of a Cluster that tx stores.
func markSecured(tx *store.Tx, name string, raw []byte, c *resource.Cluster) error {
	key := resource.Key{Type: securedType, Name: name}
	if c == nil || c.Security == nil || c.Security.RootInstance == "" && c.Security.IdentityInstance == "" {
		tx.Delete(key)
		return nil
	}
	sum := sha256.Sum256(raw)
	return tx.Put(key, sum[:])
}

// isSecured reports whether a store has a mark for the content of a resource.
func isSecured(get getter, key resource.Key, raw []byte) bool {
	if key.Type != Config {
		return false
	}
	mark, ok := get(resource.Key{Type: securedType, Name: key.Name})
	sum := sha256.Sum256(raw)
	return ok && bytes.Equal(mark.Raw, sum[:])
}

// markAll marks the stored Clusters that are in use with TLS: an older lbd left no
// marks.
func (p *pushes) markAll(ctx context.Context, st Store, stored []resource.Update) {
	get := st.Snapshot().Get
	stored = slices.DeleteFunc(stored, func(u resource.Update) bool {
		return u.Cluster == nil || u.Cluster.Security == nil || isSecured(get, u.Key, u.Raw)
	})
	if len(stored) == 0 {
		return
	}
	_, err := st.Update(ctx, func(tx *store.Tx) error {
		for _, u := range stored {
			if err := markSecured(tx, u.Key.Name, u.Raw, u.Cluster); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		p.Logger.Error("stored Clusters with TLS cannot be marked: without a bootstrap, their connections would be plain", "error", err)
	}
}
