package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// unpack writes what a gzip file holds to another file.
func unpack(t *testing.T, from, to string) {
	t.Helper()
	packed, err := os.ReadFile(from)
	noError(t, err)
	z, err := gzip.NewReader(bytes.NewReader(packed))
	noError(t, err)
	body, err := io.ReadAll(z)
	noError(t, err)
	noError(t, os.MkdirAll(filepath.Dir(to), 0o750))
	writeFile(t, to, body)
}

// resourcesOf are the resources of a snapshot, decoded.
func resourcesOf(t *testing.T, snapshot []byte) any {
	t.Helper()
	var s struct {
		Resources []any `json:"resources"`
	}
	noError(t, json.Unmarshal(snapshot, &s))
	return s.Resources
}

// TestDataOfAnEarlierVersion starts lbd on a data directory of a version that stored bbolt
// files (5dee868). Nothing that was pushed is missing, also after a push, kill -9 and a
// restart, and the old files are kept.
func TestDataOfAnEarlierVersion(t *testing.T) {
	data := t.TempDir()
	files := map[string]string{"lbd.db": "lbd.db.gz", "last-known-good/lbd.db": "last-known-good.db.gz"}
	for to, from := range files {
		unpack(t, filepath.Join("testdata/bbolt", from), filepath.Join(data, to))
	}
	before, err := os.ReadFile(filepath.Join(data, "lbd.db"))
	noError(t, err)
	snapshot, err := os.ReadFile("testdata/bbolt/snapshot.json") // as that version answered GET /v1/snapshot
	noError(t, err)
	want := resourcesOf(t, snapshot)
	p := startProcess(t, "--data="+data, "--connect=none")
	get := func(path string) string { return do(t, "GET", p.url+path, "").body }
	for range 2 {
		if got := resourcesOf(t, []byte(get("/v1/snapshot"))); !reflect.DeepEqual(got, want) {
			t.Errorf("the snapshot is %v, want %v", got, want)
		}
		expect(t, 200, "GET", p.url+"/v1/targets/hosted", "")
		expectPick(t, p.url, "cluster=payments", "10.1.0.1:80")
		if a := do(t, "PUT", p.url+"/v1/clusters/later/endpoints", envoyFile("later", "10.9.0.1:80")); a.status/100 != 2 {
			t.Fatalf("a push: %+v", a)
		}
		want = resourcesOf(t, []byte(get("/v1/snapshot")))
		p.kill(t)
		p = startProcess(t, "--data="+data, "--connect=none")
	}
	old, err := os.ReadFile(filepath.Join(data, "lbd.db.migrated"))
	if err != nil || string(old) != string(before) {
		t.Errorf("the old file is not kept: %v", err)
	}
	if n := kept(t, data); n != 7 {
		t.Errorf("%d resources of the management server, want 7", n)
	}
}
