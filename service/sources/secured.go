package sources

import (
	"bytes"
	"context"
	"crypto/sha256"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// securedType is the store's type of the marks that pushed Clusters were in force with
// TLS by a certificate provider: by the Cluster's name, with the hash of its content.
// Such a Cluster never gets plain connections, even if lbd starts without a bootstrap.
// One without a mark may be of an older lbd, which accepted it without a bootstrap and
// made plain connections: these stay in force. The entries are no xDS resources.
const securedType resource.Type = "Secured"

// internal reports whether a store's entry is no xDS resource.
func internal(key resource.Key) bool { return key.Type == hostedType || key.Type == securedType }

// markSecured keeps the mark of a Cluster, which is stored or deleted in tx, up to
// date: c is what it is then, nil for none.
func markSecured(tx *store.Tx, name string, raw []byte, c *resource.Cluster) error {
	key := resource.Key{Type: securedType, Name: name}
	if c == nil || c.Security == nil || c.Security.RootInstance == "" && c.Security.IdentityInstance == "" {
		tx.Delete(key)
		return nil
	}
	sum := sha256.Sum256(raw)
	return tx.Put(key, sum[:])
}

// isSecured reports whether a store's Cluster has a mark.
func isSecured(get func(resource.Key) (store.Entry, bool), e store.Entry) bool {
	if e.Key.Type != Config {
		return false
	}
	mark, ok := get(resource.Key{Type: securedType, Name: e.Key.Name})
	sum := sha256.Sum256(e.Raw)
	return ok && bytes.Equal(mark.Raw, sum[:])
}

// markAll marks the Clusters of a store that are in force with TLS: an older lbd left
// no marks.
func (s *Sources) markAll(ctx context.Context, st Store) {
	snapshot := st.Snapshot()
	var clusters []resource.Item
	s.resolving.Lock()
	for e := range snapshot.All() {
		if e.Key.Type != Config || isSecured(snapshot.Get, e) {
			continue
		}
		i := s.resolver.Value(resource.SourcePush, "", e.Key)
		if i.Cluster != nil && i.Cluster.Security != nil {
			i.Raw = e.Raw
			clusters = append(clusters, i)
		}
	}
	s.resolving.Unlock()
	if clusters == nil {
		return
	}
	_, err := st.Update(ctx, func(tx *store.Tx) error {
		for _, i := range clusters {
			if err := markSecured(tx, i.Key.Name, i.Raw, i.Cluster); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.options.Logger.Error("stored Clusters with TLS cannot be marked: without a bootstrap, their connections would be plain", "error", err)
	}
}
