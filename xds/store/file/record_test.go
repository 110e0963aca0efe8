package file

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/store"
)

func be32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

// resealed returns data with the checksums of as many records as it has, so that what
// is in the records is read.
func resealed(data []byte) []byte {
	data = append(bytes.Clone(data), make([]byte, max(0, headerSize-len(data)))...)
	header, end := encodeHeader(int64(binary.BigEndian.Uint64(data[ackOffset:])))
	copy(data, header)
	sum := end.sum
	for at := headerSize; at+recordHead <= len(data); {
		size := int(binary.BigEndian.Uint32(data[at:]))
		if size > len(data)-at-recordHead {
			break
		}
		sum = store.Checksum(sum, data[at:][:4], data[at+recordHead:][:size])
		binary.BigEndian.PutUint32(data[at+4:], sum)
		at += recordHead + size
	}
	return data
}

// A patch of another value than the one in the file is no sound record.
func TestPatched(t *testing.T) {
	patch := func(prefix, suffix uint32, between string) []byte {
		return append(append(be32(prefix), be32(suffix)...), between...)
	}
	value := &store.Entry{Raw: []byte("abc")}
	for _, c := range []struct {
		before *store.Entry
		patch  []byte
		want   string // empty for an error
	}{
		{value, patch(1, 1, "x"), "axc"},
		{value, patch(3, 0, ""), "abc"},
		{value, patch(0, 0, "xyz"), "xyz"},
		{nil, patch(0, 0, "x"), ""},
		{value, patch(0, 0, "")[:7], ""},
		{value, patch(4, 0, "x"), ""},
		{value, patch(2, 2, "x"), ""},
		{value, patch(math.MaxUint32, math.MaxUint32, "x"), ""},
		{value, patch(3, 0, strings.Repeat("x", store.MaxValueSize-2)), ""},
	} {
		got, err := patched(c.before, c.patch)
		if string(got) != c.want || errors.Is(err, errUnreadable) != (c.want == "") {
			t.Errorf("%v and %.20q: %.20q, %v", c.before, c.patch, got, err)
		}
	}
}

// FuzzReadLog reads any bytes as a file. What it accepts is written as the same file.
func FuzzReadLog(f *testing.F) {
	dir := f.TempDir()
	s, err := Open(dir, Options{})
	noError(f, err)
	fill(f, s, 3, 10)
	large := bytes.Repeat([]byte("0123456789"), 50)
	for _, change := range []func(tx *store.Tx) error{
		func(tx *store.Tx) error { tx.Delete(clusterKey("cluster-00001")); return nil },
		func(tx *store.Tx) error { return tx.Put(clusterKey("large"), large) },
		func(tx *store.Tx) error { return tx.Put(clusterKey("large"), large[1:]) }, // a patch
	} {
		_, err := s.Update(f.Context(), change)
		noError(f, err)
	}
	noError(f, s.Close())
	data, err := os.ReadFile(storeFile(dir))
	noError(f, err)
	f.Add(data, false)
	f.Add(data[:len(data)-5], true)
	f.Add([]byte(magic), true)
	f.Fuzz(func(t *testing.T, data []byte, reseal bool) {
		if reseal {
			data = resealed(data)
		}
		c, err := readLog(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		if c.end.size > int64(len(data)) || c.end.size < c.acknowledged {
			t.Fatalf("the last commit ends at %d of %d, %d acknowledged", c.end.size, len(data), c.acknowledged)
		}
		path := filepath.Join(t.TempDir(), "again")
		noError(t, writeNamed(path, c.snapshot))
		again, err := os.ReadFile(path)
		noError(t, err)
		second, err := readLog(bytes.NewReader(again), int64(len(again)))
		if err != nil || second.unfinished != nil {
			t.Fatalf("%v, %v", err, second.unfinished)
		}
		if got, want := contentsOf(t, second.snapshot), contentsOf(t, c.snapshot); len(got) != len(want) {
			t.Errorf("%d entries came back as %d", len(want), len(got))
		}
	})
}
