package store_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
		encoded[i] = store.EncodeKey(key)
		if got, err := store.DecodeKey(encoded[i]); err != nil || got != key {
			t.Errorf("%q came back as %q, %v", key, got, err)
		}
	}
	if !slices.IsSortedFunc(keys, store.CompareKeys) || !slices.IsSortedFunc(encoded, bytes.Compare) {
		t.Error("not in order")
	}
}

// FuzzCutString decodes what AppendString encodes, and any bytes without a panic.
func FuzzCutString(f *testing.F) {
	f.Add([]byte("name"), []byte("rest"))
	f.Add([]byte{}, []byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 200), []byte{0x80}) // a length of two bytes; a length that does not end
	f.Fuzz(func(t *testing.T, s, rest []byte) {
		got, after, ok := store.CutString(append(store.AppendString(nil, s), rest...))
		if !ok || !bytes.Equal(got, s) || !bytes.Equal(after, rest) {
			t.Errorf("%q before %q: got %q before %q, %t", s, rest, got, after, ok)
		}
		if got, after, ok := store.CutString(rest); ok && len(got)+len(after) >= len(rest) {
			t.Errorf("%q: got %q before %q", rest, got, after)
		}
	})
}

func key(name string) resource.Key { return resource.Key{Type: "T", Name: name} }

// TestReads checks what a batch records as read: what its result depends on.
func TestReads(t *testing.T) {
	base, _ := new(store.Snapshot).Apply(store.Changes{key("a"): {Key: key("a"), Raw: []byte("1")}}, 1)
	put := func(tx *store.Tx, name string) error { return tx.Put(key(name), []byte("2")) }
	get := func(tx *store.Tx, names ...string) error {
		for _, name := range names {
			tx.Get(key(name))
		}
		return nil
	}
	fail := fmt.Errorf("no")
	for name, c := range map[string]struct {
		fns  []func(*store.Tx) error
		want string
		all  bool
	}{
		"nothing":                   {fns: []func(*store.Tx) error{func(tx *store.Tx) error { return put(tx, "a") }}},
		"present and absent":        {fns: []func(*store.Tx) error{func(tx *store.Tx) error { return get(tx, "a", "b") }}, want: "a b"},
		"deleted":                   {fns: []func(*store.Tx) error{func(tx *store.Tx) error { tx.Delete(key("a")); return nil }}, want: "a"},
		"discarded":                 {fns: []func(*store.Tx) error{func(tx *store.Tx) error { tx.Discard(key("a")); return get(tx, "a") }}},
		"its own write":             {fns: []func(*store.Tx) error{func(tx *store.Tx) error { _ = put(tx, "a"); return get(tx, "a") }}},
		"the write of one before":   {fns: []func(*store.Tx) error{func(tx *store.Tx) error { return put(tx, "a") }, func(tx *store.Tx) error { return get(tx, "a") }}},
		"the write of a failed one": {fns: []func(*store.Tx) error{func(tx *store.Tx) error { _ = put(tx, "a"); return fail }, func(tx *store.Tx) error { return get(tx, "a") }}, want: "a"},
		"what led to an error":      {fns: []func(*store.Tx) error{func(tx *store.Tx) error { _ = get(tx, "a"); return fail }}, want: "a"},
		"what led to a panic":       {fns: []func(*store.Tx) error{func(tx *store.Tx) error { _ = get(tx, "a"); panic("no") }}, want: "a"},
		"all":                       {fns: []func(*store.Tx) error{func(tx *store.Tx) error { _ = get(tx, "a"); tx.All(); return get(tx, "b") }}, all: true},
		"a type, and a key of it":   {fns: []func(*store.Tx) error{func(tx *store.Tx) error { tx.Of("T"); return get(tx, "a") }}, want: "a all T"},
		"a type, and all":           {fns: []func(*store.Tx) error{func(tx *store.Tx) error { tx.Of("T"); tx.All(); tx.Of("U"); return nil }}, all: true},
		"three":                     {fns: []func(*store.Tx) error{func(tx *store.Tx) error { return get(tx, "a", "b", "c") }}, want: "a b c"},
		"four of one":               {fns: []func(*store.Tx) error{func(tx *store.Tx) error { return get(tx, "a", "b", "c", "d", "e") }}, all: true},
		"four of two":               {fns: []func(*store.Tx) error{func(tx *store.Tx) error { return get(tx, "a", "b") }, func(tx *store.Tx) error { return get(tx, "c", "d") }}, all: true},
	} {
		t.Run(name, func(t *testing.T) {
			batch, none := base.NewBatch(time.Now(), 3), base.NewBatch(time.Now(), 0)
			for _, fn := range c.fns {
				for _, b := range []*store.Batch{batch, none} {
					tx := b.Begin()
					_ = tx.Run(fn)
					b.Add(tx)
				}
			}
			var got []string
			for _, k := range slices.SortedFunc(maps.Keys(batch.Reads().Keys), store.CompareKeys) {
				got = append(got, k.Name)
			}
			for kind := range batch.Reads().Types {
				got = append(got, "all "+string(kind))
			}
			if fmt.Sprint(got) != "["+c.want+"]" || batch.Reads().All != c.all {
				t.Errorf("read %v, all %t; want %s, %t", got, batch.Reads().All, c.want, c.all)
			}
			if r := none.Reads(); r.All || r.Keys != nil || r.Types != nil {
				t.Errorf("a batch that records nothing has %v", r)
			}
		})
	}
}
