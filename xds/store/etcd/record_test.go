package etcd

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var begin = time.Date(2026, 11, 20, 12, 0, 0, 7, time.UTC)

func TestKeys(t *testing.T) {
	l := layout("a/b/")
	for _, key := range []resource.Key{{Type: "T", Name: ""}, {Type: "T/U", Name: "/"}, {Type: "T", Name: "a%2Fb\x00\xff é"}} {
		got, err := l.key(l.entry(key))
		if err != nil || got != key {
			t.Errorf("%v is %s, which is %v, %v", key, l.entry(key), got, err)
		}
	}
	for _, bad := range []string{"", "T", "T/%zz", "T/a/b", "/name", "T/%61", "T%00/a"} {
		if got, err := l.key(l.resource() + bad); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}

func TestFormat(t *testing.T) {
	good := format{Version: 1, Fleet: "00ff", Base: 7}
	if got, err := decodeFormat([]byte(good.encode())); err != nil || got != good {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{``, `{}`, `{"version":1}`, `{"version":0,"fleet":"00"}`, `{"version":1,"fleet":"no"}`, `{"version":1,"fleet":"00","base":9223372036854775808}`} {
		if got, err := decodeFormat([]byte(bad)); err == nil || errors.Is(err, store.ErrNewer) {
			t.Errorf("%s is %v, %v", bad, got, err)
		}
	}
	if _, err := decodeFormat([]byte(`{"version":2,"fleet":"00"}`)); !errors.Is(err, store.ErrNewer) {
		t.Errorf("a newer format: %v", err)
	}
}

// records are one of each kind.
func records() []record {
	return []record{
		{updated: begin, raw: []byte{}},
		{updated: begin, revision: 1 << 40, raw: []byte("content")},
		{updated: begin, revision: -1 << 40, raw: []byte("of another store")},
		{updated: begin, blob: &reference{id: "w-1-2", size: maxBlob, sum: 7}},
	}
}

func TestRecords(t *testing.T) {
	for _, want := range records() {
		value := want.encode("key")
		got, err := decodeRecord("key", value)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v came back as %+v, %v", want, got, err)
		}
		if _, err := decodeRecord("other", value); !errors.Is(err, errDamaged) {
			t.Errorf("the record of another key: %v", err)
		}
		for at := 1; at < len(value); at++ {
			bad := bytes.Clone(value)
			bad[at] ^= 1
			if _, err := decodeRecord("key", bad); !errors.Is(err, errDamaged) {
				t.Errorf("a flipped bit in byte %d: %v", at, err)
			}
			if _, err := decodeRecord("key", value[:at]); !errors.Is(err, errDamaged) {
				t.Errorf("truncated to %d: %v", at, err)
			}
		}
		newer := bytes.Clone(value)
		newer[0]++
		if _, err := decodeRecord("key", newer); !errors.Is(err, store.ErrNewer) {
			t.Errorf("a newer version: %v", err)
		}
	}
	ref := reference{id: "w-1-0", size: 5, sum: 9}
	if got, err := decodePending("p", encodePending("p", ref)); err != nil || got != ref {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := decodeWriter("w", encodeWriter("w", 1<<50)); err != nil || got != 1<<50 {
		t.Errorf("got %v, %v", got, err)
	}
}

// FuzzRecord decodes any bytes as each kind of value. What is accepted is encoded as the same.
func FuzzRecord(f *testing.F) {
	for _, r := range records() {
		f.Add("key", r.encode("key")[sealSize:], true)
		f.Add("key", encodeBatch([]change{{"a", r.encode("a")}, {"b", nil}}), false)
	}
	f.Add("key", encodePending("key", reference{id: "a", size: 1}), false)
	f.Add("key", encodeWriter("key", 5)[sealSize:], true)
	f.Fuzz(func(t *testing.T, key string, value []byte, sealed bool) {
		batch := value
		if sealed {
			value = seal(key, value)
		}
		if r, err := decodeRecord(key, value); err == nil {
			again, err := decodeRecord(key, r.encode(key))
			if err != nil || !reflect.DeepEqual(again, r) {
				t.Errorf("%+v came back as %+v, %v", r, again, err)
			}
		}
		if r, err := decodePending(key, value); err == nil {
			if again, err := decodePending(key, encodePending(key, r)); err != nil || again != r {
				t.Errorf("%+v came back as %+v, %v", r, again, err)
			}
		}
		_, _ = decodeWriter(key, value)
		if _, err := decodeFormat(value); err == nil && len(value) == 0 {
			t.Error("an empty format")
		}
		if changes, err := decodeBatch(batch); err == nil {
			if again, err := decodeBatch(encodeBatch(changes)); err != nil || !reflect.DeepEqual(again, changes) {
				t.Errorf("%v came back as %v, %v", changes, again, err)
			}
		}
		if k, err := layout("p/").key(key); err == nil && store.CheckKey(k) != nil {
			t.Errorf("%q is %v", key, k)
		}
	})
}
