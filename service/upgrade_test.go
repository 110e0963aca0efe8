package service_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
)

// TestUpgrade opens a store that lbd wrote before it refused unknown fields. It holds
// two clusters whose resources were pushed with misspelled fields, one of them with a
// RingHash without hash_function, and one in protobuf with a field that lbd does not
// know. What is stored stays in force; the same content is refused as a new push.
func TestUpgrade(t *testing.T) {
	dir := t.TempDir()
	unpack(t, "testdata/older.db.gz", filepath.Join(dir, "lbd.db"))
	s, _ := start(t, dir, nil)
	for _, cluster := range []string{"typos", "plain"} {
		got, err := pick(s, picks.Request{Cluster: cluster, Wait: 5 * time.Second})
		if err != nil || len(got.Picks) != 1 || got.Picks[0].Address != "10.0.0.1:8080" {
			t.Errorf("pick from %s: %+v, %v", cluster, got, err)
		}
	}
	state, err := s.Cluster(t.Context(), "typos", "", false)
	if err != nil || !strings.Contains(state.Policy, "ring_hash") || state.Error != "" {
		t.Errorf("the cluster is %+v, %v", state, err)
	}
	if _, err := s.Pushed(sources.Endpoints, "num", sources.Protobuf); err != nil {
		t.Error(err)
	}

	// What GET /v1/snapshot returns has no unknown field any more, and can be pushed.
	for _, f := range []sources.Format{sources.JSON, sources.YAML, sources.Protobuf} {
		stored, err := s.Snapshot(f)
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.PushSnapshot(t.Context(), &sources.SnapshotRequest{Body: stored.Body, Format: f, Replace: true, AllowEmpty: true, ChangeOptions: sources.ChangeOptions{DryRun: true}})
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		if !strings.Contains(fields(res.Warnings), "hash_function") || !strings.Contains(fields(res.Warnings), "max_connections") {
			t.Errorf("%s: the warnings are %v", f, res.Warnings)
		}
	}
	misspelled := []byte("endpoints: [{lb_endpionts: []}]")
	if _, err := s.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "typos", Body: misspelled, Format: sources.YAML}); code(err) != fault.InvalidResource {
		t.Errorf("a new push with a misspelled field: %v", err)
	}
}

// fields are the fields that problems are about.
func fields(problems []fault.Problem) string {
	var names []string
	for _, p := range problems {
		names = append(names, p.Field)
	}
	return strings.Join(names, " ")
}

// unpack writes what a gzip file holds to another file.
func unpack(t *testing.T, from, to string) {
	t.Helper()
	packed, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, body, 0o600); err != nil {
		t.Fatal(err)
	}
}
