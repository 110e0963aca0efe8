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
	// Server is the URI of the management server that sent it; empty where an lbd
	// that did not note it wrote the entry.
	Server string
}

// What the store keeps of an Entry is: the format (1 byte), Updated in Unix
// nanoseconds (8 bytes, big endian), the length of Version (uvarint), Version, the
// same of Server, Raw. An older format has no Server.
const (
	formatWithoutServer = 1
	entryFormat         = 2
)

var errUnknownFormat = errors.New("the entry has a format that this lbd does not know")

func (e Entry) encode() []byte {
	b := make([]byte, 0, 9+2*binary.MaxVarintLen64+len(e.Version)+len(e.Server)+len(e.Raw))
	b = append(b, entryFormat)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Updated.UnixNano()))
	b = appendString(b, e.Version)
	b = appendString(b, e.Server)
	return append(b, e.Raw...)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodeEntry is encode's inverse. The Entry's Raw is b's tail.
func decodeEntry(key resource.Key, b []byte) (Entry, error) {
	if len(b) < 9 || b[0] != formatWithoutServer && b[0] != entryFormat {
		return Entry{}, errUnknownFormat
	}
	e := Entry{Key: key, Updated: time.Unix(0, int64(binary.BigEndian.Uint64(b[1:]))).UTC()}
	format, b := b[0], b[9:]
	var ok bool
	if e.Version, b, ok = cutString(b); !ok {
		return Entry{}, errUnknownFormat
	}
	if format == entryFormat {
		if e.Server, b, ok = cutString(b); !ok {
			return Entry{}, errUnknownFormat
		}
	}
	e.Raw = b
	return e, nil
}

func cutString(b []byte) (s string, rest []byte, ok bool) {
	length, n := binary.Uvarint(b)
	if n <= 0 || length > uint64(len(b)-n) {
		return "", nil, false
	}
	b = b[n:]
	return string(b[:length]), b[length:], true
}
