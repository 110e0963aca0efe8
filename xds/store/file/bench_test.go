package file

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lbd-dev/lbd/xds/store"
)

// fill puts n clusters of size bytes each.
func fill(tb testing.TB, s *Store, n, size int) {
	tb.Helper()
	draw := rand.NewChaCha8([32]byte{})
	_, err := s.Update(tb.Context(), func(tx *store.Tx) error {
		for i := range n {
			raw := make([]byte, size)
			_, _ = draw.Read(raw)
			if err := tx.Put(clusterKey(fmt.Sprintf("cluster-%05d", i)), raw); err != nil {
				return err
			}
		}
		return nil
	})
	noError(tb, err)
}

func benchmarkUpdate(b *testing.B, dir string) {
	s, err := Open(dir, Options{})
	noError(b, err)
	defer func() { _ = s.Close() }()
	fill(b, s, 10_000, 300)
	raw := bytes.Repeat([]byte("x"), 300)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_, err := s.Update(b.Context(), func(tx *store.Tx) error {
			raw[0], raw[1], raw[2] = byte(i), byte(i>>8), byte(i>>16)
			return tx.Put(clusterKey("cluster-05000"), raw)
		})
		noError(b, err)
	}
}

func BenchmarkUpdateOneOf10000(b *testing.B) {
	b.Run("memory", func(b *testing.B) { benchmarkUpdate(b, "") })
	b.Run("disk", func(b *testing.B) { benchmarkUpdate(b, b.TempDir()) })
}

func BenchmarkOpen(b *testing.B) {
	for _, shape := range []struct{ n, size int }{{1150, 300}, {1000, 30_000}} {
		b.Run(fmt.Sprintf("%dx%dB", shape.n, shape.size), func(b *testing.B) {
			dir := b.TempDir()
			s, err := Open(dir, Options{})
			noError(b, err)
			fill(b, s, shape.n, shape.size)
			noError(b, s.Close())
			b.ReportAllocs()
			for b.Loop() {
				s, err := Open(dir, Options{})
				noError(b, err)
				noError(b, s.Close())
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	s, err := Open("", Options{})
	noError(b, err)
	defer func() { _ = s.Close() }()
	fill(b, s, 10_000, 10)
	snapshot, key := s.Snapshot(), clusterKey("cluster-07777")
	b.ReportAllocs()
	for b.Loop() {
		if _, found := snapshot.Get(key); !found {
			b.Fatal("not found")
		}
	}
}
