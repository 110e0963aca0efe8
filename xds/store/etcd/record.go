package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/lbd-dev/lbd/xds/store"
)

// Values begin with the version of their format and a checksum (CRC-32C, big endian) of the
// key, relative to the prefix, and of what follows. Integers are big endian, uvarints are
// those of encoding/binary.
//
//	value     version 1, checksum 4, body
//	record    time in Unix nanoseconds 8, revision varint, kind 1, and then
//	          inline: value
//	          blob:   id with its length, reference
//	reference size uvarint, checksum of the content 4
//	pending   id with its length, reference
//	batch     changes, each: kind 1, key with its length, and of a put the record with its length
//	writer    sequence uvarint
//	head      id of the writer
//
// The revision of a record is that of the commit that put it; 0 is that of the key. It is
// negative if the record was copied from another store, whose indices are below the base.
const (
	recordVersion = 1
	sealSize      = 5
	maxBlob       = 512 << 20 // bytes
	maxIndex      = 1 << 62
)

const (
	kindInline = 0
	kindBlob   = 1
)

const (
	changeDelete = 0
	changePut    = 1
)

var errDamaged = errors.New("damaged")

// seal returns a value for a key relative to the prefix.
func seal(key string, body []byte) []byte {
	b := make([]byte, sealSize, sealSize+len(body))
	b[0] = recordVersion
	binary.BigEndian.PutUint32(b[1:], store.Checksum(0, []byte(key), body))
	return append(b, body...)
}

// unseal returns the body of a value.
func unseal(key string, value []byte) ([]byte, error) {
	switch {
	case len(value) < sealSize:
		return nil, fmt.Errorf("%w: %d bytes", errDamaged, len(value))
	case value[0] > recordVersion:
		return nil, fmt.Errorf("%w: record version %d, this lbd knows %d", store.ErrNewer, value[0], recordVersion)
	case value[0] != recordVersion:
		return nil, fmt.Errorf("%w: record version %d", errDamaged, value[0])
	}
	body := value[sealSize:]
	if store.Checksum(0, []byte(key), body) != binary.BigEndian.Uint32(value[1:]) {
		return nil, fmt.Errorf("%w: checksum mismatch", errDamaged)
	}
	return body, nil
}

// A reference says where the parts of a content are.
type reference struct {
	id   string
	size int
	sum  uint32
}

func (r reference) append(b []byte) []byte {
	b = store.AppendString(b, r.id)
	b = binary.AppendUvarint(b, uint64(r.size))
	return binary.BigEndian.AppendUint32(b, r.sum)
}

func cutReference(b []byte) (r reference, err error) {
	id, b, ok := store.CutString(b)
	size, n := binary.Uvarint(b)
	if !ok || n <= 0 || len(b) != n+4 || size > maxBlob {
		return r, fmt.Errorf("%w: a reference", errDamaged)
	}
	return reference{string(id), int(size), binary.BigEndian.Uint32(b[n:])}, nil
}

// A record is one stored entry. Its content is in the record or in a blob.
type record struct {
	updated  time.Time
	revision int64 // of its commit; 0: that of the key
	raw      []byte
	blob     *reference // nil: the content is raw
}

func (r record) encode(key string) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(r.updated.UnixNano()))
	b = binary.AppendVarint(b, r.revision)
	if r.blob != nil {
		return seal(key, r.blob.append(append(b, kindBlob)))
	}
	return seal(key, append(append(b, kindInline), r.raw...))
}

// decodeRecord shares the memory of value.
func decodeRecord(key string, value []byte) (r record, err error) {
	b, err := unseal(key, value)
	if err != nil {
		return r, err
	}
	if len(b) < 8 {
		return r, fmt.Errorf("%w: %d bytes", errDamaged, len(b))
	}
	r.updated = time.Unix(0, int64(binary.BigEndian.Uint64(b))).UTC()
	revision, n := binary.Varint(b[8:])
	if n <= 0 || revision > maxIndex || revision < -maxIndex || len(b) <= 8+n {
		return r, fmt.Errorf("%w: a revision", errDamaged)
	}
	r.revision = revision
	kind, b := b[8+n], b[9+n:]
	switch kind {
	case kindInline:
		r.raw = b
	case kindBlob:
		ref, err := cutReference(b)
		if err != nil {
			return r, err
		}
		r.blob = &ref
	default:
		return r, fmt.Errorf("%w: kind %d of a record", errDamaged, kind)
	}
	return r, nil
}

// A change is a put or a deletion of a record, by the key relative to the prefix.
type change struct {
	key    string
	record []byte // sealed; nil deletes
}

func encodeBatch(changes []change) []byte {
	var b []byte
	for _, c := range changes {
		if c.record == nil {
			b = store.AppendString(append(b, changeDelete), c.key)
			continue
		}
		b = store.AppendString(append(b, changePut), c.key)
		b = store.AppendString(b, c.record)
	}
	return b
}

// decodeBatch shares the memory of b.
func decodeBatch(b []byte) (changes []change, err error) {
	for len(b) > 0 {
		kind := b[0]
		key, rest, ok := store.CutString(b[1:])
		c := change{key: string(key)}
		if ok && kind == changePut {
			c.record, rest, ok = store.CutString(rest)
		}
		if !ok || kind != changePut && kind != changeDelete {
			return nil, fmt.Errorf("%w: a change of a large commit", errDamaged)
		}
		changes, b = append(changes, c), rest
	}
	return changes, nil
}

func encodePending(key string, r reference) []byte { return seal(key, r.append(nil)) }

func decodePending(key string, value []byte) (reference, error) {
	b, err := unseal(key, value)
	if err != nil {
		return reference{}, err
	}
	return cutReference(b)
}

func encodeWriter(key string, sequence uint64) []byte {
	return seal(key, binary.AppendUvarint(nil, sequence))
}

func decodeWriter(key string, value []byte) (uint64, error) {
	b, err := unseal(key, value)
	if err != nil {
		return 0, err
	}
	sequence, n := binary.Uvarint(b)
	if n <= 0 || n != len(b) {
		return 0, fmt.Errorf("%w: a sequence", errDamaged)
	}
	return sequence, nil
}
