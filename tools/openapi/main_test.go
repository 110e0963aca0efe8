package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// root is the repository's.
const root = "../.."

func generate(t *testing.T) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "openapi.yaml")
	if err := run(root, out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestSameSourcesGiveTheSameBytes(t *testing.T) {
	first := generate(t)
	for range 5 {
		if !bytes.Equal(generate(t), first) {
			t.Fatal("another generation is another text")
		}
	}
}

func TestContractIsCompleted(t *testing.T) {
	text := generate(t)
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != version || doc.Info.License == nil || doc.Servers[0].URL != "/" {
		t.Errorf("openapi %s, license %v, servers %v", doc.OpenAPI, doc.Info.License, doc.Servers)
	}
	for name := range doc.Components.Schemas {
		if strings.Contains(name, ".") {
			t.Errorf("schema %s is named after its package", name)
		}
	}
	if choices := doc.Components.Schemas["PickOrPicks"].Value.OneOf; len(choices) != 2 {
		t.Errorf("a pick's answer is one of %d", len(choices))
	}
	event := doc.Components.Schemas["Event"].Value.Properties
	if of := event["type"].Value.AllOf; len(of) != 1 || of[0].Ref != refsPrefix+"EventType" || event["type"].Value.Enum != nil {
		t.Errorf("the type of an event is not documented exactly once: %+v", event["type"].Value)
	}
	if event["time"].Value.Format != "date-time" {
		t.Errorf("an event's time is %+v", event["time"].Value)
	}
	if file := doc.Components.Schemas["FileState"].Value.Properties["kept_last_good"].Value.Description; !strings.HasPrefix(file, "kept_last_good ") {
		t.Errorf("a field is called as in Go: %s", file)
	}
	if bytes.Contains(text, []byte("x-enum-varnames")) {
		t.Error("Go's names of constants are in the contract")
	}
	put := doc.Paths.Value("/v1/clusters/{name}/endpoints").Put
	for _, media := range []string{"application/json", "application/yaml", "application/x-protobuf"} {
		if put.RequestBody.Value.Content[media] == nil {
			t.Errorf("no %s can be pushed", media)
		}
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			check(t, method+" "+path, op)
		}
	}
}

// check checks that an operation's refusals are problems, those of readyz
// excepted: they are for people.
func check(t *testing.T, name string, op *openapi3.Operation) {
	t.Helper()
	if op.OperationID == "" || op.Summary == "" || len(op.Tags) == 0 {
		t.Errorf("%s has no ID, no summary or no tag", name)
	}
	for status, r := range op.Responses.Map() {
		if status < "400" || name == "GET /readyz" && status == "503" {
			continue
		}
		if len(r.Value.Content) != 1 || r.Value.Content[problemType] == nil {
			t.Errorf("%s: %s is no problem", name, status)
		}
	}
}

func TestDescribe(t *testing.T) {
	for _, c := range []struct{ property, comment, want string }{
		{"priority_in_use", "PriorityInUse is -1 where none is.", "priority_in_use is -1 where none is."},
		{"etag", "ETag is the\ncontent's hash.", "etag is the content's hash."},
		{"endpoints", "Endpoints are\tmany", "endpoints are many"},
		{"age", "since updated_at", "since updated_at"},
		{"x", "", ""},
	} {
		if got := describe(c.property, c.comment); got != c.want {
			t.Errorf("%s: %q, want %q", c.property, got, c.want)
		}
	}
}
