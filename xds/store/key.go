package store

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Maximum sizes in bytes. The size of a key is that of type and name, and 1.
const (
	MaxKeySize   = 1024
	MaxValueSize = 64 << 20
)

// CheckKey returns an ErrInvalidKey for a key that cannot be stored.
func CheckKey(key resource.Key) error {
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

// CompareKeys orders keys by type and name: it returns -1, 0 or 1.
func CompareKeys(a, b resource.Key) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
}

// Checksum continues a CRC-32C over more bytes.
func Checksum(sum uint32, parts ...[]byte) uint32 {
	for _, part := range parts {
		sum = crc32.Update(sum, castagnoli, part)
	}
	return sum
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// EncodeKey returns type, NUL, name: the order of the bytes is the order of the keys.
func EncodeKey(key resource.Key) []byte {
	return []byte(string(key.Type) + "\x00" + key.Name)
}

// DecodeKey is the inverse of EncodeKey. It checks the key.
func DecodeKey(encoded []byte) (resource.Key, error) {
	kind, name, found := strings.Cut(string(encoded), "\x00")
	key := resource.Key{Type: resource.Type(kind), Name: name}
	if !found {
		return key, fmt.Errorf("key %q has no type", encoded)
	}
	return key, CheckKey(key)
}

// AppendString appends a string after its length (uvarint), for values of several parts.
func AppendString[S ~string | ~[]byte](b []byte, s S) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// CutString returns a string of AppendString, which shares b's memory, and what follows it.
func CutString(b []byte) (s, rest []byte, ok bool) {
	length, n := binary.Uvarint(b)
	if n <= 0 || length > uint64(len(b)-n) {
		return nil, nil, false
	}
	b = b[n:]
	return b[:length:length], b[length:], true
}
