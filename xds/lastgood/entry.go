package lastgood

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Entry is one resource as it was last accepted.
type Entry struct {
	Key resource.Key
	// Raw is the resource as protobuf. It is shared and must not be changed.
	Raw []byte
	// Version is the one with which Raw came, and Updated when that was, in UTC. A
	// later version with an equal Raw changes neither.
	Version string
	Updated time.Time
}

// What the store keeps of an Entry is: the format (1 byte), Updated in Unix
// nanoseconds (8 bytes, big endian), the length of Version (uvarint), Version, Raw.
const entryFormat = 1

var errUnknownFormat = errors.New("not an entry that this lbd knows")

func (e Entry) encode() []byte {
	b := make([]byte, 0, 9+binary.MaxVarintLen64+len(e.Version)+len(e.Raw))
	b = append(b, entryFormat)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Updated.UnixNano()))
	b = binary.AppendUvarint(b, uint64(len(e.Version)))
	b = append(b, e.Version...)
	return append(b, e.Raw...)
}

// decodeEntry is encode's inverse. The Entry's Raw is b's tail.
func decodeEntry(key resource.Key, b []byte) (Entry, error) {
	if len(b) < 9 || b[0] != entryFormat {
		return Entry{}, errUnknownFormat
	}
	updated := time.Unix(0, int64(binary.BigEndian.Uint64(b[1:]))).UTC()
	length, n := binary.Uvarint(b[9:])
	if n <= 0 || length > uint64(len(b)-9-n) {
		return Entry{}, errUnknownFormat
	}
	b = b[9+n:]
	return Entry{Key: key, Raw: b[length:], Version: string(b[:length]), Updated: updated}, nil
}
