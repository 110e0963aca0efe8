package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
)

// The layout of a bbolt file, version 2, in the machine's byte order. A page has
// a header (id 8, flags 2, count 2, overflow 4) and its elements:
//
//	meta      magic 4, version 4, page size 4, flags 4, root page 8, sequence 8,
//	          free list's page 8, high water mark 8, transaction 8, FNV-1a of these 8
//	branch    position 4, key size 4, page 8
//	leaf      flags 4, position 4, key size 4, value size 4
//	free list ids, 8 each; if count is 65535 the first is the count
//
// A position counts from its element's first byte. A leaf element with flag 1 is
// a bucket; its value is root page 8, sequence 8 and, if the root is 0, a leaf page.
const (
	pageHeader = 16
	metaSize   = 64

	boltMagic   = 0xED0CDAED
	boltVersion = 2

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10

	bucketFlag = 1
)

var native = binary.NativeEndian

// A layout checks what bbolt takes on trust. bbolt's own Tx.Check does not serve:
// it runs in a goroutine of its own, where a fault ends the process, and believes
// page sizes.
type layout struct {
	data     []byte
	pageSize uint64
	high     uint64 // pages in use are below
	used     []bool // by page
}

type boltMeta struct {
	pageSize             uint64
	root, freelist, high uint64
	txid                 uint64
}

// checkLayout checks that every page of a bbolt file is in one place only, in a
// tree or free, and that every element and key is within its page and in order.
func checkLayout(data []byte) error {
	meta, err := newestMeta(data)
	if err != nil {
		return err
	}
	if pages := uint64(len(data)) / meta.pageSize; meta.high > pages {
		return fmt.Errorf("%d pages, where %d were written: truncated", pages, meta.high)
	}
	l := &layout{data: data, pageSize: meta.pageSize, high: meta.high, used: make([]bool, meta.high)}
	if err := l.checkTree(meta.root, nil, nil, 0); err != nil {
		return err
	}
	if err := l.checkFreelist(meta.freelist); err != nil {
		return err
	}
	for id := uint64(2); id < l.high; id++ {
		if !l.used[id] {
			return fmt.Errorf("page %d is neither used nor free", id)
		}
	}
	return nil
}

// newestMeta returns the meta of the last commit. Both must be sound: bbolt would
// go back to the commit before it without a word.
func newestMeta(data []byte) (boltMeta, error) {
	first, err := readMeta(data, 0)
	if err != nil {
		return first, err
	}
	second, err := readMeta(data, first.pageSize)
	if err != nil {
		return second, err
	}
	older, newer := first, second
	if older.txid > newer.txid {
		older, newer = newer, older
	}
	if newer.txid != older.txid+1 || first.pageSize != second.pageSize {
		return newer, errors.New("its two meta pages do not follow each other")
	}
	if newer.high < 2 {
		return newer, errors.New("no room for its meta pages")
	}
	return newer, nil
}

func readMeta(data []byte, at uint64) (boltMeta, error) {
	if uint64(len(data)) < at+pageHeader+metaSize {
		return boltMeta{}, fmt.Errorf("no meta page at byte %d: truncated", at)
	}
	b := data[at+pageHeader:][:metaSize]
	if native.Uint32(b) != boltMagic || native.Uint32(b[4:]) != boltVersion {
		return boltMeta{}, fmt.Errorf("no meta page at byte %d", at)
	}
	sum := fnv.New64a()
	sum.Write(b[:56])
	if sum.Sum64() != native.Uint64(b[56:]) {
		return boltMeta{}, fmt.Errorf("meta page at byte %d: checksum mismatch", at)
	}
	m := boltMeta{
		pageSize: uint64(native.Uint32(b[8:])),
		root:     native.Uint64(b[16:]), freelist: native.Uint64(b[32:]), high: native.Uint64(b[40:]), txid: native.Uint64(b[48:]),
	}
	if m.pageSize < pageHeader+metaSize {
		return m, fmt.Errorf("meta page at byte %d: page size %d", at, m.pageSize)
	}
	return m, nil
}

// page claims a page with its overflow, and returns its bytes.
func (l *layout) page(id uint64) ([]byte, error) {
	if id < 2 || id >= l.high {
		return nil, fmt.Errorf("page %d is outside of the file", id)
	}
	header := l.data[id*l.pageSize:][:pageHeader]
	if got := native.Uint64(header); got != id {
		return nil, fmt.Errorf("page %d says that it is page %d", id, got)
	}
	pages := uint64(native.Uint32(header[12:])) + 1
	if pages > l.high-id {
		return nil, fmt.Errorf("page %d: %d pages, past the end", id, pages)
	}
	for i := id; i < id+pages; i++ {
		if err := l.claim(i); err != nil {
			return nil, err
		}
	}
	return l.data[id*l.pageSize:][:pages*l.pageSize], nil
}

func (l *layout) claim(id uint64) error {
	if id < 2 || id >= l.high {
		return fmt.Errorf("page %d is outside of the file", id)
	}
	if l.used[id] {
		return fmt.Errorf("page %d is used twice", id)
	}
	l.used[id] = true
	return nil
}

// checkTree checks the tree under a page, whose keys are at least from and, if to
// is given, below to.
func (l *layout) checkTree(id uint64, from, to []byte, depth int) error {
	page, err := l.page(id)
	if err != nil {
		return err
	}
	switch flags := native.Uint16(page[8:]); flags {
	case branchPage:
		err = l.checkBranch(page, from, to, depth)
	case leafPage:
		err = l.checkLeaf(page, from, to, depth)
	default:
		err = fmt.Errorf("flags %#x are not a tree's", flags)
	}
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

func (l *layout) checkBranch(page, from, to []byte, depth int) error {
	n := int(native.Uint16(page[10:]))
	if n == 0 {
		return errors.New("branch without children")
	}
	keys, children := make([][]byte, n), make([]uint64, n)
	for i := range n {
		element, err := slice(page, pageHeader+16*uint64(i), 16)
		if err != nil {
			return err
		}
		children[i] = native.Uint64(element[8:])
		if keys[i], err = slice(page, pageHeader+16*uint64(i)+uint64(native.Uint32(element)), uint64(native.Uint32(element[4:]))); err != nil {
			return err
		}
	}
	if err := checkOrder(keys, from, to); err != nil {
		return err
	}
	for i, child := range children {
		end := to
		if i+1 < n {
			end = keys[i+1]
		}
		if err := l.checkTree(child, keys[i], end, depth); err != nil {
			return err
		}
	}
	return nil
}

func (l *layout) checkLeaf(page, from, to []byte, depth int) error {
	n := int(native.Uint16(page[10:]))
	keys := make([][]byte, n)
	for i := range n {
		at := pageHeader + 16*uint64(i)
		element, err := slice(page, at, 16)
		if err != nil {
			return err
		}
		flags, position, keySize := native.Uint32(element), uint64(native.Uint32(element[4:])), uint64(native.Uint32(element[8:]))
		if keys[i], err = slice(page, at+position, keySize); err != nil {
			return err
		}
		value, err := slice(page, at+position+keySize, uint64(native.Uint32(element[12:])))
		if err != nil {
			return err
		}
		switch flags {
		case 0:
		case bucketFlag:
			if err := l.checkBucket(value, depth+1); err != nil {
				return fmt.Errorf("bucket %q: %w", keys[i], err)
			}
		default:
			return fmt.Errorf("element %d: flags %#x", i, flags)
		}
	}
	return checkOrder(keys, from, to)
}

func (l *layout) checkBucket(value []byte, depth int) error {
	const maxDepth = 1 // buckets at the root hold records only
	if depth > maxDepth {
		return errors.New("a bucket in a bucket")
	}
	if len(value) < 16 {
		return errors.New("header cut off")
	}
	if root := native.Uint64(value); root != 0 {
		return l.checkTree(root, nil, nil, depth)
	}
	page := value[16:]
	if len(page) < pageHeader || native.Uint16(page[8:]) != leafPage {
		return errors.New("no page within")
	}
	return l.checkLeaf(page, nil, nil, depth)
}

func (l *layout) checkFreelist(id uint64) error {
	page, err := l.page(id)
	if err != nil {
		return fmt.Errorf("free list: %w", err)
	}
	if flags := native.Uint16(page[8:]); flags != freelistPage {
		return fmt.Errorf("free list: page %d has flags %#x", id, flags)
	}
	n, ids := uint64(native.Uint16(page[10:])), page[pageHeader:]
	if n == 0xFFFF {
		n, ids = native.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids))/8 {
		return fmt.Errorf("free list: %d pages do not fit into it", n)
	}
	for i := range n {
		if err := l.claim(native.Uint64(ids[8*i:])); err != nil {
			return fmt.Errorf("free list: %w", err)
		}
	}
	return nil
}

func checkOrder(keys [][]byte, from, to []byte) error {
	for i, key := range keys {
		if i > 0 && bytes.Compare(keys[i-1], key) >= 0 {
			return fmt.Errorf("key %d is not above the one before it", i)
		}
		if bytes.Compare(key, from) < 0 || to != nil && bytes.Compare(key, to) >= 0 {
			return fmt.Errorf("key %d belongs elsewhere", i)
		}
	}
	return nil
}

func slice(b []byte, at, size uint64) ([]byte, error) {
	if at > uint64(len(b)) || size > uint64(len(b))-at {
		return nil, fmt.Errorf("%d bytes at %d reach out of the page", size, at)
	}
	return b[at:][:size], nil
}
