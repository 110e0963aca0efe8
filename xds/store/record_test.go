package store

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

func TestKeysAreInTheOrderOfTheirEncoding(t *testing.T) {
	keys := []resource.Key{
		{Type: "A", Name: ""},
		{Type: "A", Name: "\x00"},
		{Type: "A", Name: "z"},
		{Type: "A\x01", Name: "a"},
		{Type: "AA", Name: ""},
		{Type: "B", Name: "a/b%2F:é"},
	}
	encoded := make([][]byte, len(keys))
	for i, key := range keys {
		encoded[i] = encodeKey(key)
		if got, err := decodeKey(encoded[i]); err != nil || got != key {
			t.Errorf("%q came back as %q, %v", key, got, err)
		}
	}
	if !slices.IsSortedFunc(keys, compare) || !slices.IsSortedFunc(encoded, bytes.Compare) {
		t.Error("not in order")
	}
}

func FuzzDecodeRecord(f *testing.F) {
	good := newItem(clusterKey("a"), []byte("value"), begin)
	f.Add(encodeKey(good.Key), good.record)
	f.Add(encodeKey(clusterKey("b")), good.record)
	f.Add([]byte("no type"), good.record[:recordHeader-1])
	f.Fuzz(func(t *testing.T, key, record []byte) {
		item, err := decodeRecord(key, record)
		if err == nil {
			if again := newItem(item.Key, item.Raw, item.Updated); !bytes.Equal(encodeKey(again.Key), key) || !bytes.Equal(again.record, record) {
				t.Errorf("%x = %x came back as %x", key, record, again.record)
			}
		}
		// Any one byte changed is found: a CRC misses no burst of 32 bits.
		if k, err := decodeKey(key); err == nil && len(record) > 0 {
			item := newItem(k, record, time.Unix(0, int64(len(record))))
			at := int(record[0]) % len(item.record)
			item.record[at] ^= 1 << (record[0] % 8)
			if _, err := decodeRecord(key, item.record); err == nil {
				t.Errorf("byte %d changed and nobody saw", at)
			}
		}
	})
}

func FuzzDecodeTally(f *testing.F) {
	f.Add(tally{count: 3, sum: 1 << 40}.encode())
	f.Add(encodeSchema(7))
	f.Fuzz(func(t *testing.T, b []byte) {
		if tally, err := decodeTally(b); err == nil && !bytes.Equal(tally.encode(), b) {
			t.Errorf("tally %x came back as %x", b, tally.encode())
		}
		if version, err := decodeSchema(b); err == nil && !bytes.Equal(encodeSchema(version), b) {
			t.Errorf("schema %x came back as %x", b, encodeSchema(version))
		}
	})
}
