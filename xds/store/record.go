package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// What a key and a value may measure, in bytes. A key's size is that of type and
// name together, and one more.
const (
	MaxKeySize   = 1024
	MaxValueSize = 64 << 20
)

// A record is what the file holds for one key: a CRC-32C over the key and all
// that follows it (4 bytes), the time of the write in Unix nanoseconds (8 bytes),
// the value. Integers are big endian.
const recordHeader = 12

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// An item is an entry with the record that holds it; the entry's Raw is the
// record's tail.
type item struct {
	Entry
	record []byte
}

func newItem(key resource.Key, raw []byte, updated time.Time) *item {
	record := make([]byte, recordHeader+len(raw))
	nanos := updated.UnixNano()
	binary.BigEndian.PutUint64(record[4:], uint64(nanos))
	copy(record[recordHeader:], raw)
	binary.BigEndian.PutUint32(record, checksum(encodeKey(key), record[4:]))
	return &item{Entry: Entry{Key: key, Raw: record[recordHeader:], Updated: time.Unix(0, nanos).UTC()}, record: record}
}

// decodeRecord is newItem's inverse. It keeps record.
func decodeRecord(encodedKey, record []byte) (*item, error) {
	key, err := decodeKey(encodedKey)
	if err != nil {
		return nil, err
	}
	if len(record) < recordHeader {
		return nil, fmt.Errorf("record of %v: %d bytes are too few", key, len(record))
	}
	if want, got := binary.BigEndian.Uint32(record), checksum(encodedKey, record[4:]); want != got {
		return nil, fmt.Errorf("record of %v: checksum is %08x, its bytes have %08x", key, want, got)
	}
	nanos := int64(binary.BigEndian.Uint64(record[4:]))
	return &item{Entry: Entry{Key: key, Raw: record[recordHeader:], Updated: time.Unix(0, nanos).UTC()}, record: record}, nil
}

// sum is what the item adds to a snapshot's sum.
func (i *item) sum() uint64 { return uint64(binary.BigEndian.Uint32(i.record)) }

func checksum(parts ...[]byte) uint32 {
	var crc uint32
	for _, part := range parts {
		crc = crc32.Update(crc, castagnoli, part)
	}
	return crc
}

// encodeKey puts a NUL between type and name: the order of the bytes is then the
// order of the keys.
func encodeKey(key resource.Key) []byte {
	return []byte(string(key.Type) + "\x00" + key.Name)
}

func decodeKey(encoded []byte) (resource.Key, error) {
	kind, name, found := strings.Cut(string(encoded), "\x00")
	key := resource.Key{Type: resource.Type(kind), Name: name}
	if !found {
		return key, fmt.Errorf("key %q has no type", encoded)
	}
	return key, checkKey(key)
}

func checkKey(key resource.Key) error {
	switch size := len(key.Type) + 1 + len(key.Name); {
	case key.Type == "":
		return fmt.Errorf("%w: %q has no type", ErrInvalidKey, key.Name)
	case strings.Contains(string(key.Type), "\x00"):
		return fmt.Errorf("%w: type %q holds a NUL", ErrInvalidKey, key.Type)
	case size > MaxKeySize:
		return fmt.Errorf("%w: %d bytes, more than %d", ErrInvalidKey, size, MaxKeySize)
	}
	return nil
}

// A tally is the number of records in the file and the sum of their checksums. It
// is written with every commit, and finds what no record's own checksum can:
// records that are missing, or that are an older commit's.
type tally struct{ count, sum uint64 }

const (
	tallySize  = 20
	schemaSize = 8
)

var errShort = errors.New("wrong size")

func (t tally) encode() []byte {
	b := make([]byte, 0, tallySize)
	b = binary.BigEndian.AppendUint64(b, t.count)
	b = binary.BigEndian.AppendUint64(b, t.sum)
	return binary.BigEndian.AppendUint32(b, checksum(b))
}

func decodeTally(b []byte) (tally, error) {
	if len(b) != tallySize {
		return tally{}, fmt.Errorf("tally: %w: %d bytes", errShort, len(b))
	}
	if binary.BigEndian.Uint32(b[16:]) != checksum(b[:16]) {
		return tally{}, errors.New("tally: checksum mismatch")
	}
	return tally{count: binary.BigEndian.Uint64(b), sum: binary.BigEndian.Uint64(b[8:])}, nil
}

// The schema's encoding is the one thing that no later schema may change.
func encodeSchema(version uint32) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, schemaSize), version)
	return binary.BigEndian.AppendUint32(b, checksum(b))
}

func decodeSchema(b []byte) (uint32, error) {
	if len(b) != schemaSize {
		return 0, fmt.Errorf("schema version: %w: %d bytes", errShort, len(b))
	}
	if binary.BigEndian.Uint32(b[4:]) != checksum(b[:4]) {
		return 0, errors.New("schema version: checksum mismatch")
	}
	return binary.BigEndian.Uint32(b), nil
}
