// Package boltfile reads the bbolt files in which earlier versions of lbd stored
// resources. It only reads: a store migrates such a file once.
//
// It accepts a file only if nothing of its last commit is missing or changed: both
// meta pages, and the checksum over each record and over all of them. The pages
// between may be anything: reading them ends, and stays within the file.
package boltfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"strings"
	"time"
)

// Record is one stored resource.
type Record struct {
	Type, Name string
	Updated    time.Time
	Value      []byte // part of the file's bytes
}

// A page has a header (id 8, flags 2, count 2, overflow 4) and its elements, in the
// machine's byte order:
//
//	meta    magic 4, version 4, page size 4, flags 4, root page 8, sequence 8,
//	        free list's page 8, high water mark 8, transaction 8, FNV-1a of these 8
//	branch  position 4, key size 4, page 8
//	leaf    flags 4, position 4, key size 4, value size 4
//
// A position counts from its element's first byte. A leaf element with flag 1 is
// a bucket; its value is root page 8, sequence 8 and, if the root is 0, a leaf page.
const (
	pageHeader  = 16
	elementSize = 16
	metaSize    = 64

	magic   = 0xED0CDAED
	version = 2

	branchPage = 0x01
	leafPage   = 0x02
	bucketFlag = 1
)

var native = binary.NativeEndian

// Is reports whether a file that begins with head is a bbolt file.
func Is(head []byte) bool {
	return len(head) >= pageHeader+4 && native.Uint32(head[pageHeader:]) == magic
}

// Read returns the records of a file.
func Read(data []byte) ([]Record, error) {
	m, err := newestMeta(data)
	if err != nil {
		return nil, err
	}
	r := &reader{data: data, pageSize: m.pageSize, seen: map[uint64]bool{}}
	buckets := map[string]*bucket{}
	err = r.tree(m.root, func(flags uint32, key, value []byte) error {
		if flags != bucketFlag {
			return fmt.Errorf("%q is no bucket", key)
		}
		b, err := r.bucket(value)
		buckets[string(key)] = b
		return err
	})
	if err != nil {
		return nil, err
	}
	return records(buckets["meta"], buckets["resources"])
}

type meta struct{ pageSize, root, transaction uint64 }

// newestMeta returns the meta of the last commit. Both must be sound: the other one
// is of the commit before it.
func newestMeta(data []byte) (meta, error) {
	first, err := readMeta(data, 0)
	if err != nil {
		return first, err
	}
	second, err := readMeta(data, first.pageSize)
	if err != nil {
		return second, err
	}
	older, newer := first, second
	if older.transaction > newer.transaction {
		older, newer = newer, older
	}
	if newer.transaction != older.transaction+1 || first.pageSize != second.pageSize {
		return newer, errors.New("its two meta pages do not follow each other")
	}
	return newer, nil
}

func readMeta(data []byte, at uint64) (meta, error) {
	b, err := part(data, at+pageHeader, metaSize)
	if err != nil {
		return meta{}, fmt.Errorf("no meta page at byte %d: truncated", at)
	}
	if native.Uint32(b) != magic || native.Uint32(b[4:]) != version {
		return meta{}, fmt.Errorf("no meta page at byte %d", at)
	}
	sum := fnv.New64a()
	sum.Write(b[:56])
	m := meta{pageSize: uint64(native.Uint32(b[8:])), root: native.Uint64(b[16:]), transaction: native.Uint64(b[48:])}
	if sum.Sum64() != native.Uint64(b[56:]) || m.pageSize < pageHeader+metaSize {
		return m, fmt.Errorf("meta page at byte %d: checksum mismatch", at)
	}
	return m, nil
}

// A bucket is the records of a bucket, in the order of the file.
type bucket struct{ keys, values [][]byte }

func (b *bucket) get(key string) []byte {
	for i := range b.keys {
		if string(b.keys[i]) == key {
			return b.values[i]
		}
	}
	return nil
}

type reader struct {
	data     []byte
	pageSize uint64
	seen     map[uint64]bool // pages that were read: none is in two places
}

// tree calls leaf for each element of the leaves under a page.
func (r *reader) tree(id uint64, leaf func(flags uint32, key, value []byte) error) error {
	if id < 2 || r.seen[id] || id > uint64(len(r.data))/r.pageSize {
		return fmt.Errorf("page %d is used twice, or is outside of the file", id)
	}
	r.seen[id] = true
	page := r.data[id*r.pageSize:]
	if len(page) < pageHeader || native.Uint64(page) != id {
		return fmt.Errorf("page %d is missing", id)
	}
	size := (uint64(native.Uint32(page[12:])) + 1) * r.pageSize
	return r.elements(page[:min(size, uint64(len(page)))], leaf)
}

func (r *reader) elements(page []byte, leaf func(flags uint32, key, value []byte) error) error {
	for i := range uint64(native.Uint16(page[10:])) {
		at := pageHeader + elementSize*i
		e, err := part(page, at, elementSize)
		if err != nil {
			return err
		}
		switch native.Uint16(page[8:]) {
		case branchPage:
			err = r.tree(native.Uint64(e[8:]), leaf)
		case leafPage:
			at += uint64(native.Uint32(e[4:]))
			size := uint64(native.Uint32(e[8:]))
			var key, value []byte
			if key, err = part(page, at, size); err == nil {
				value, err = part(page, at+size, uint64(native.Uint32(e[12:])))
			}
			if err == nil {
				err = leaf(native.Uint32(e), key, value)
			}
		default:
			err = errors.New("a page of a tree is neither branch nor leaf")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket reads a bucket of records.
func (r *reader) bucket(value []byte) (*bucket, error) {
	b := &bucket{}
	leaf := func(flags uint32, key, value []byte) error {
		if flags != 0 {
			return errors.New("a bucket in a bucket")
		}
		b.keys, b.values = append(b.keys, key), append(b.values, value)
		return nil
	}
	if len(value) < 16 {
		return nil, errors.New("a bucket is cut off")
	}
	if root := native.Uint64(value); root != 0 {
		return b, r.tree(root, leaf)
	}
	if len(value) < 16+pageHeader {
		return nil, errors.New("a bucket is cut off")
	}
	return b, r.elements(value[16:], leaf)
}

func part(b []byte, at, size uint64) ([]byte, error) {
	if at > uint64(len(b)) || size > uint64(len(b))-at {
		return nil, fmt.Errorf("%d bytes at %d are outside of the page: truncated", size, at)
	}
	return b[at:][:size], nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// records decodes what lbd put into the buckets, big endian:
//
//	meta/schema       version 4, checksum of it 4
//	meta/tally        number of records 8, sum of their checksums 8, checksum of both 4
//	resources/KEY     checksum of KEY and what follows 4, time in Unix nanoseconds 8, value
//
// KEY is type, NUL, name; checksums are CRC-32C.
func records(about, stored *bucket) ([]Record, error) {
	if about == nil || stored == nil {
		return nil, errors.New("not a file that lbd wrote")
	}
	schema, tally := about.get("schema"), about.get("tally")
	if len(schema) != 8 || crc32.Checksum(schema[:4], castagnoli) != binary.BigEndian.Uint32(schema[4:]) ||
		binary.BigEndian.Uint32(schema) != 1 {
		return nil, errors.New("no schema version 1")
	}
	if len(tally) != 20 || crc32.Checksum(tally[:16], castagnoli) != binary.BigEndian.Uint32(tally[16:]) {
		return nil, errors.New("tally: checksum mismatch")
	}
	all, sum := make([]Record, 0, len(stored.keys)), uint64(0)
	for i, key := range stored.keys {
		value := stored.values[i]
		kind, name, ok := strings.Cut(string(key), "\x00")
		if !ok || len(value) < 12 {
			return nil, fmt.Errorf("record %q is too short", key)
		}
		want := binary.BigEndian.Uint32(value)
		if crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value[4:]) != want {
			return nil, fmt.Errorf("record %q: checksum mismatch", key)
		}
		sum += uint64(want)
		updated := time.Unix(0, int64(binary.BigEndian.Uint64(value[4:]))).UTC()
		all = append(all, Record{Type: kind, Name: name, Updated: updated, Value: value[12:]})
	}
	if n := uint64(len(all)); n != binary.BigEndian.Uint64(tally) || sum != binary.BigEndian.Uint64(tally[8:]) {
		return nil, fmt.Errorf("%d records with sum %x, where %d with sum %x were written",
			n, sum, binary.BigEndian.Uint64(tally), binary.BigEndian.Uint64(tally[8:]))
	}
	return all, nil
}
