package file

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
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

// FuzzReadLog reads any bytes as a file. What it accepts is written as the same file.
func FuzzReadLog(f *testing.F) {
	dir := f.TempDir()
	s, err := Open(dir, Options{})
	noError(f, err)
	fill(f, s, 3, 10)
	if _, err := s.Update(f.Context(), func(tx *store.Tx) error { tx.Delete(clusterKey("cluster-00001")); return nil }); err != nil {
		f.Fatal(err)
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
