package files

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// Version is a file's content that is, or was, in use. It is immutable.
type Version struct {
	Sum             string // SHA-256, in hex, of the content
	Modified        time.Time
	Items           []resource.Item
	Rejected        []decode.Rejected // Clusters of a Partial version that are not in use
	Warnings, Notes []decode.Problem  // not in an Archive
	Partial         bool              // it is the valid part of a bad file
	Restored        bool              // it is from an Archive
}

// versionFormat begins an encoded Version: the format, 1 if it is partial, Modified
// in Unix nanoseconds (8 bytes, big endian), then strings, each after its length
// (uvarint): the sum; and of each item type, name, field and raw. A rejected Cluster is
// an item without raw, and has why in the place of its field.
const versionFormat = 1

// versionHeader is the length of what comes before the strings.
const versionHeader = 10

var errVersion = errors.New("not a version that this lbd knows")

func (v *Version) encode() []byte {
	b := []byte{versionFormat, 0}
	if v.Partial {
		b[1] = 1
	}
	b = binary.BigEndian.AppendUint64(b, uint64(v.Modified.UnixNano()))
	b = store.AppendString(b, v.Sum)
	add := func(k resource.Key, field string, raw []byte) {
		b = store.AppendString(store.AppendString(b, string(k.Type)), k.Name)
		b = store.AppendString(store.AppendString(b, field), raw)
	}
	for _, i := range v.Items {
		add(i.Key, i.Field, i.Raw)
	}
	for _, r := range v.Rejected {
		add(r.Key, r.Why, nil)
	}
	return b
}

// decodeVersion is encode's inverse. The items have no values yet; their Raw shares
// b's memory.
func decodeVersion(b []byte) (*Version, error) {
	if len(b) < versionHeader || b[0] != versionFormat || b[1] > 1 {
		return nil, errVersion
	}
	v := &Version{Restored: true, Partial: b[1] == 1, Modified: time.Unix(0, int64(binary.BigEndian.Uint64(b[2:]))).UTC()}
	sum, b, ok := store.CutString(b[versionHeader:])
	if !ok {
		return nil, errVersion
	}
	v.Sum = string(sum)
	for len(b) > 0 {
		var parts [4][]byte
		for i := range parts {
			if parts[i], b, ok = store.CutString(b); !ok {
				return nil, errVersion
			}
		}
		key := resource.Key{Type: resource.Type(parts[0]), Name: string(parts[1])}
		if len(parts[3]) == 0 {
			v.Rejected = append(v.Rejected, decode.Rejected{Key: key, Why: string(parts[2])})
			continue
		}
		v.Items = append(v.Items, resource.Item{Key: key, Field: string(parts[2]), Raw: parts[3]})
	}
	return v, nil
}
