package lastgood

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// An encoded Update is: the format (1 byte), Updated in Unix nanoseconds (8 bytes, big
// endian), Version with its length (uvarint), Server with its length, Raw. An older format
// has no Server.
const (
	formatWithoutServer = 1
	entryFormat         = 2
)

var errUnknownFormat = errors.New("unknown format of the entry")

func encode(e *resource.Update) []byte {
	b := make([]byte, 0, 9+2*binary.MaxVarintLen64+len(e.Version)+len(e.Server)+len(e.Raw))
	b = append(b, entryFormat)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Updated.UnixNano()))
	b = store.AppendString(b, e.Version)
	b = store.AppendString(b, e.Server)
	return append(b, e.Raw...)
}

// decodeEntry is the inverse of encode. Raw is the end of b.
func decodeEntry(key resource.Key, b []byte) (resource.Update, error) {
	if len(b) < 9 || b[0] != formatWithoutServer && b[0] != entryFormat {
		return resource.Update{}, errUnknownFormat
	}
	e := resource.Update{Item: resource.Item{Key: key}, Updated: time.Unix(0, int64(binary.BigEndian.Uint64(b[1:]))).UTC()}
	format, b := b[0], b[9:]
	version, b, ok := store.CutString(b)
	if !ok {
		return resource.Update{}, errUnknownFormat
	}
	var server []byte
	if format == entryFormat {
		if server, b, ok = store.CutString(b); !ok {
			return resource.Update{}, errUnknownFormat
		}
	}
	e.Version, e.Server, e.Raw = string(version), string(server), b
	return e, nil
}
