package boltfile_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/xds/store/file/boltfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const page = 4096

// sound is a file that an earlier version of lbd wrote, with every kind of page: branches,
// values over several pages, free pages.
func sound(t testing.TB) []byte {
	t.Helper()
	packed, err := os.ReadFile("testdata/pages.db.gz")
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestRead(t *testing.T) {
	records, err := boltfile.Read(sound(t))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"ClusterLoadAssignment/last": "the last commit's",
		"ClusterLoadAssignment/long": strings.Repeat("long ", 3000),
	}
	for i := range 250 {
		size := 100
		if i < 3 {
			size = 9000
		}
		if i < 20 || i >= 120 {
			want[fmt.Sprintf("Cluster/cluster-%05d", i)] = strings.Repeat(string([]byte{byte(i)}), size)
		}
	}
	got := map[string]string{}
	for _, r := range records {
		got[r.Type+"/"+r.Name] = string(r.Value)
		if s := r.Updated.Format("2006-01-02T15:04:05.000000000"); s != "2026-11-20T12:00:00.000000007" {
			t.Errorf("%s was updated at %s", r.Name, s)
		}
	}
	if len(records) != len(want) || !reflect.DeepEqual(got, want) {
		t.Errorf("got %d records, want %d", len(records), len(want))
	}
}

// soundOrRefused fails if a file is read as anything but what it was written as.
func soundOrRefused(t *testing.T, what string, data []byte, want []boltfile.Record) (refused bool) {
	t.Helper()
	got, err := boltfile.Read(data)
	if err == nil && !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: read %d records that were not written", what, len(got))
	}
	return err != nil
}

func TestAnyDamageIsRefusedOrHarmless(t *testing.T) {
	data := sound(t)
	want, err := boltfile.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	draw := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for start := 0; start < len(data); start += page {
		for at := range 100 {
			if at >= 64 {
				at = draw.IntN(page)
			}
			bad := bytes.Clone(data)
			bad[start+at] ^= 1 << draw.IntN(8)
			if soundOrRefused(t, fmt.Sprintf("page %d, byte %d", start/page, at), bad, want) {
				refused++
			}
		}
		zeroed := bytes.Clone(data)
		clear(zeroed[start:][:page])
		soundOrRefused(t, fmt.Sprintf("page %d zeroed", start/page), zeroed, want)
	}
	for size := 0; size < len(data); size += 500 {
		if soundOrRefused(t, fmt.Sprintf("truncated to %d", size), data[:size], want) {
			refused++
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

// An older meta page is that of an earlier commit: it must not be used in the place of
// a damaged one.
func TestBothMetaPagesMustBeSound(t *testing.T) {
	for at := range 2 {
		data := sound(t)
		data[at*page+20]++
		if _, err := boltfile.Read(data); err == nil {
			t.Errorf("read with a damaged meta page %d", at)
		}
	}
}

// Branches that lead back to themselves end.
func TestACycleOfPagesEnds(t *testing.T) {
	data := sound(t)
	for at := 2 * page; at < len(data); at += page {
		if binary.NativeEndian.Uint16(data[at+8:]) == 1 { // a branch
			copy(data[at+24:], data[at:][:8])
		}
	}
	if _, err := boltfile.Read(data); err == nil || !strings.Contains(err.Error(), "used twice") {
		t.Errorf("got %v", err)
	}
}

func FuzzRead(f *testing.F) {
	data := sound(f)
	f.Add(uint32(page+50), uint64(1))
	f.Add(uint32(5*page+12), uint64(1)<<40)
	f.Fuzz(func(t *testing.T, at uint32, word uint64) {
		bad := bytes.Clone(data)
		at %= uint32(len(bad) - 8)
		binary.NativeEndian.PutUint64(bad[at:], binary.NativeEndian.Uint64(bad[at:])^word)
		if !boltfile.Is(bad) && at >= 28 {
			t.Error("is no bbolt file any more")
		}
		_, _ = boltfile.Read(bad) // it must end, and not panic
	})
}
