package file

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// The file is a header and records. Integers are big endian, checksums are CRC-32C:
//
//	header  magic 8, version 4, checksum of these 4,
//	        acknowledged size 8, checksum of that 4
//	record  size of the body 4, checksum 4, body
//	body    operation 1, and then
//	        put:    time in Unix nanoseconds 8, index 8, size of the key 2, key, value
//	        patch:  as a put, but for the value: how many bytes at the beginning and at the end of the
//	                value before stay, 4 each, and what replaces those between
//	        delete: key
//	        commit: index 8
//	key     type, NUL, name
//
// The index of a put is that of the commit that made the value what it is: in a file that was
// compacted, an older one than that of the commit that follows.
//
// A record's checksum covers the checksum of the record before it (of the first one:
// the header's), the size and the body: a record that is missing, repeated or of
// another file is found like a changed one.
//
// The records up to a commit are one transaction. A file that ends within one was not
// written to the end: it was never acknowledged, and Open cuts it off. The acknowledged
// size distinguishes that from damage: it is the end of the last commit that is known to
// be on disk. Below it, every record must be as it was written.
const (
	magic         = "lbdstore"
	headerSize    = 28
	versionOffset = 8
	sumOffset     = 12
	ackOffset     = 16 // of the acknowledged size

	recordHead = 8
	putHead    = 19 // of the body of a put, before the key
	patchHead  = 8  // of the value of a patch
	commitSize = 9  // of the body of a commit
	maxBody    = putHead + store.MaxKeySize + store.MaxValueSize
)

// schemaVersion is that of the files that are written. A file of wholeVersion is read, and has no patches until it is
// compacted. Magic, version and their checksum are what no later version may change.
const (
	schemaVersion = 4
	wholeVersion  = 3
)

// The operations.
const (
	opPut    = 1
	opDelete = 2
	opCommit = 3
	opPatch  = 4
)

// A position is the end of a record: the size of the file up to it, and its checksum.
type position struct {
	size int64
	sum  uint32
}

// encodeHeader returns a header with an acknowledged size, and the position after it.
func encodeHeader(acknowledged int64) ([]byte, position) {
	return headerOf(schemaVersion, acknowledged)
}

func headerOf(version uint32, acknowledged int64) ([]byte, position) {
	b := binary.BigEndian.AppendUint32([]byte(magic), version)
	sum := store.Checksum(0, b)
	b = binary.BigEndian.AppendUint32(b, sum)
	b = binary.BigEndian.AppendUint64(b, uint64(acknowledged))
	b = binary.BigEndian.AppendUint32(b, store.Checksum(0, b[ackOffset:]))
	return b, position{headerSize, sum}
}

// decodeHeader returns the version of a file, and of one that can be read the
// acknowledged size and the position of the first record.
func decodeHeader(b []byte) (version uint32, acknowledged int64, start position, err error) {
	switch {
	case len(b) < headerSize:
		return 0, 0, start, fmt.Errorf("truncated to %d bytes", len(b))
	case string(b[:versionOffset]) != magic:
		return 0, 0, start, errors.New("not a file that lbd wrote")
	}
	sum := store.Checksum(0, b[:sumOffset])
	if sum != binary.BigEndian.Uint32(b[sumOffset:]) {
		return 0, 0, start, errors.New("header: checksum mismatch")
	}
	if version = binary.BigEndian.Uint32(b[versionOffset:]); version != schemaVersion && version != wholeVersion {
		return version, 0, start, nil
	}
	if store.Checksum(0, b[ackOffset:ackOffset+8]) != binary.BigEndian.Uint32(b[ackOffset+8:headerSize]) {
		return version, 0, start, errors.New("acknowledged size: checksum mismatch")
	}
	return version, int64(binary.BigEndian.Uint64(b[ackOffset:])), position{headerSize, sum}, nil
}

// A writer appends records. Errors are returned by commit.
type writer struct {
	out     *bufio.Writer
	end     position
	patched int64 // the sizes of the values that patches make
}

func newWriter(f *os.File, end position) *writer {
	return &writer{out: bufio.NewWriterSize(io.NewOffsetWriter(f, end.size), 32<<10), end: end}
}

func (w *writer) record(parts ...[]byte) {
	var head [recordHead]byte
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	binary.BigEndian.PutUint32(head[:], uint32(size))
	sum := store.Checksum(store.Checksum(w.end.sum, head[:4]), parts...)
	binary.BigEndian.PutUint32(head[4:], sum)
	_, _ = w.out.Write(head[:]) // bufio keeps the first error for Flush
	for _, part := range parts {
		_, _ = w.out.Write(part)
	}
	w.end = position{w.end.size + recordHead + int64(size), sum}
}

// put writes an entry: whole, or how it differs from the value before, if that takes less. before is nil if the file has
// none, or no patches.
func (w *writer) put(e *store.Entry, before []byte) {
	op, value := byte(opPut), e.Raw
	var sizes []byte
	if prefix, suffix := store.Shared(before, e.Raw); prefix+suffix > patchHead {
		sizes = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(prefix)), uint32(suffix))
		op, value = opPatch, e.Raw[prefix:len(e.Raw)-suffix]
		w.patched += int64(len(e.Raw))
	}
	key := store.EncodeKey(e.Key)
	head := binary.BigEndian.AppendUint64([]byte{op}, uint64(e.Updated.UnixNano()))
	head = binary.BigEndian.AppendUint64(head, e.Index)
	w.record(binary.BigEndian.AppendUint16(head, uint16(len(key))), key, sizes, value)
}

func (w *writer) delete(key resource.Key) { w.record([]byte{opDelete}, store.EncodeKey(key)) }

func (w *writer) commit(index uint64) error {
	w.record(binary.BigEndian.AppendUint64([]byte{opCommit}, index))
	return w.out.Flush()
}

// sizeWith is the size of a file that holds only s.
func sizeWith(s *store.Snapshot) int64 {
	return headerSize + int64(s.Len())*(recordHead+putHead) + s.Size() + recordHead + commitSize
}

// errUnreadable is the error of bytes that are not a record of this file.
var errUnreadable = errors.New("no sound record")

// A reader reads records.
type reader struct {
	in   io.Reader
	left int64 // what the file still has
	end  position
	body []byte // of the last record; the next one overwrites it

	patched int64 // the sizes of the values that patches have made
}

// next reads a record into r.body. Its error wraps errUnreadable, or is the disk's.
func (r *reader) next() error {
	var head [recordHead]byte
	if r.left < recordHead {
		return fmt.Errorf("%w: %d bytes are too few", errUnreadable, r.left)
	}
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return err
	}
	size := int64(binary.BigEndian.Uint32(head[:]))
	if size == 0 || size > maxBody || size > r.left-recordHead {
		return fmt.Errorf("%w: a size of %d bytes", errUnreadable, size)
	}
	r.body = slices.Grow(r.body[:0], int(size))[:size]
	if _, err := io.ReadFull(r.in, r.body); err != nil {
		return err
	}
	sum := store.Checksum(r.end.sum, head[:4], r.body)
	if sum != binary.BigEndian.Uint32(head[4:]) {
		return fmt.Errorf("%w: checksum mismatch", errUnreadable)
	}
	r.left -= recordHead + size
	r.end = position{r.end.size + recordHead + size, sum}
	return nil
}

// change decodes a put, a patch or a delete. before returns what the file has of a key; nil for nothing.
func (r *reader) change(before func(resource.Key) *store.Entry) (key resource.Key, e *store.Entry, err error) {
	encoded := r.body[1:]
	if r.body[0] != opDelete {
		if len(r.body) < putHead {
			return key, nil, fmt.Errorf("%w: a put of %d bytes", errUnreadable, len(r.body))
		}
		size := int(binary.BigEndian.Uint16(r.body[putHead-2:]))
		if encoded = r.body[putHead:]; size > len(encoded) {
			return key, nil, fmt.Errorf("%w: a key of %d bytes", errUnreadable, size)
		}
		updated := time.Unix(0, int64(binary.BigEndian.Uint64(r.body[1:]))).UTC()
		e = &store.Entry{Raw: encoded[size:], Updated: updated, Index: binary.BigEndian.Uint64(r.body[9:])}
		encoded = encoded[:size]
	}
	if key, err = store.DecodeKey(encoded); err != nil {
		return key, nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if e == nil {
		return key, nil, nil
	}
	e.Key = key
	if r.body[0] == opPut {
		e.Raw = slices.Clone(e.Raw)
		return key, e, nil
	}
	e.Raw, err = patched(before(key), e.Raw)
	r.patched += int64(len(e.Raw))
	return key, e, err
}

// patched returns the value that a patch makes of an entry, which may be nil.
func patched(before *store.Entry, patch []byte) ([]byte, error) {
	if before == nil || len(patch) < patchHead {
		return nil, fmt.Errorf("%w: a patch of nothing", errUnreadable)
	}
	prefix, suffix, size := int(binary.BigEndian.Uint32(patch)), int(binary.BigEndian.Uint32(patch[4:])), len(before.Raw)
	if prefix > size || suffix > size-prefix || prefix+suffix+len(patch)-patchHead > store.MaxValueSize {
		return nil, fmt.Errorf("%w: a patch of another value", errUnreadable)
	}
	return slices.Concat(before.Raw[:prefix], patch[patchHead:], before.Raw[size-suffix:]), nil
}

// commit decodes a commit that adds pending. last is the index of the commit before it, and
// first whether there is none.
func (r *reader) commit(pending store.Changes, last uint64, first bool) (index uint64, err error) {
	if len(r.body) != commitSize {
		return 0, fmt.Errorf("%w: a commit of %d bytes", errUnreadable, len(r.body))
	}
	if index = binary.BigEndian.Uint64(r.body[1:]); index <= last && !first {
		return 0, fmt.Errorf("%w: index %d after %d", errUnreadable, index, last)
	}
	for _, e := range pending {
		if e != nil && (e.Index == 0 || e.Index > index) {
			return 0, fmt.Errorf("%w: an entry of index %d in commit %d", errUnreadable, e.Index, index)
		}
	}
	return index, nil
}

// replay reads the records of a file from start to its end, left bytes later. It returns the
// snapshot of the last commit, its end, and the sizes of the values that patches have made. The error is why the rest
// is not a commit; it wraps errUnreadable unless the disk failed.
func replay(in io.Reader, start position, left int64) (*store.Snapshot, position, int64, error) {
	r := &reader{in: bufio.NewReaderSize(in, 256<<10), left: left, end: start}
	entries, pending := store.Changes{}, store.Changes{}
	end, index := start, uint64(0)
	var err error
	for r.left > 0 && err == nil {
		if err = r.next(); err != nil {
			break
		}
		switch r.body[0] {
		case opPut, opPatch, opDelete:
			var key resource.Key
			var e *store.Entry
			if key, e, err = r.change(func(key resource.Key) *store.Entry {
				if e, changed := pending[key]; changed {
					return e
				}
				return entries[key]
			}); err == nil {
				pending[key] = e
			}
		case opCommit:
			var next uint64
			if next, err = r.commit(pending, index, end == start); err == nil {
				maps.Copy(entries, pending)
				clear(pending)
				end, index = r.end, next
			}
		default:
			err = fmt.Errorf("%w: operation %d", errUnreadable, r.body[0])
		}
	}
	if err == nil && len(pending) > 0 {
		err = fmt.Errorf("%w: the last commit has no end", errUnreadable)
	}
	s, _ := (&store.Snapshot{}).Apply(entries, index)
	return s.At(index), end, r.patched, err
}
