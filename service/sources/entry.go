package sources

import (
	"bytes"
	"crypto/sha256"

	"github.com/lbd-dev/lbd/service/admission"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// getter returns an entry of a store, and whether there is one.
type getter func(resource.Key) (store.Entry, bool)

// decoded returns an entry with its value. One that this daemon has pushed has it
// already.
func (o *Options) decoded(get getter, e store.Entry) (resource.Item, []fault.Problem, error) {
	if i, ok := e.Value.(resource.Item); ok {
		return i, nil, nil
	}
	d := o.decoding(Protobuf)
	d.Stored, d.Secured, d.Name = true, isSecured(get, e.Key, e.Raw), e.Key.Name
	return decode.Item(resource.Item{Key: e.Key, Raw: e.Raw}, d)
}

func (o *Options) view(get getter) admission.View {
	return func(key resource.Key) (resource.Item, bool) {
		e, ok := get(key)
		if !ok {
			return resource.Item{}, false
		}
		item, _, _ := o.decoded(get, e) // has no value where it is invalid
		return item, true
	}
}

// securedType is the store's type of the marks of pushed Clusters that were in use with
// TLS by a certificate provider: by the Cluster's name, with the hash of its content.
// Such a Cluster never gets plain connections, even if lbd starts without a bootstrap.
// A Cluster without a mark may be of an older lbd, which accepted it without a bootstrap
// and made plain connections: it keeps these. The marks are no xDS resources.
const securedType resource.Type = "Secured"

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
