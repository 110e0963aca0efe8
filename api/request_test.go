package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/lbd-dev/lbd/service"
)

// asked takes down what a Pusher and Snapshots are asked.
type asked struct {
	Pusher
	push     *service.PushRequest
	delete   *service.DeleteRequest
	snapshot *service.SnapshotRequest
}

func (a *asked) Snapshot(service.Format) (*service.Stored, error) { return &service.Stored{}, nil }

func (a *asked) PushSnapshot(_ context.Context, r *service.SnapshotRequest) (*service.PushResult, error) {
	a.snapshot = r
	return &service.PushResult{}, nil
}

func (a *asked) Push(_ context.Context, r *service.PushRequest) (*service.PushResult, error) {
	a.push = r
	return &service.PushResult{}, nil
}

func (a *asked) Delete(_ context.Context, r *service.DeleteRequest) (*service.PushResult, error) {
	a.delete = r
	return &service.PushResult{}, nil
}

// Everything that a request says reaches the service.
func TestChangesAreAskedForAsTheRequestSays(t *testing.T) {
	var a asked
	e := &resources{service: &a}
	mux := chi.NewRouter()
	all := &snapshots{service: &a}
	mux.HandleFunc("/snapshot", func(w http.ResponseWriter, r *http.Request) {
		change := all.put
		if r.Method == http.MethodPost {
			change = all.post
		}
		if err := change(w, r); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("/{name}", func(w http.ResponseWriter, r *http.Request) {
		change := e.putConfig
		if r.Method == http.MethodDelete {
			change = e.deleteConfig
		}
		if err := change(w, r); err != nil {
			t.Error(err)
		}
	})
	send := func(method, target, body string) {
		r := httptest.NewRequest(method, target, strings.NewReader(body))
		r.RemoteAddr = "192.0.2.1:7"
		r.Header.Set("Content-Type", "text/yaml")
		r.Header.Set("If-Match", `"one-pb", two`)
		mux.ServeHTTP(httptest.NewRecorder(), r)
	}
	match := service.Precondition{IfMatch: []string{"one", "two"}}
	send("PUT", "/a%2Fb?dry_run&allow_empty&strict", "type: EDS")
	if want := (&service.PushRequest{
		Kind: service.Config, Cluster: "a/b", Body: []byte("type: EDS"), Format: service.YAML,
		Strict: true, DryRun: true, AllowEmpty: true, Precondition: match, From: "192.0.2.1:7",
	}); !reflect.DeepEqual(a.push, want) {
		t.Errorf("put: got %+v, want %+v", a.push, want)
	}
	send("DELETE", "/a%2Fb?dry_run=1", "")
	if want := (&service.DeleteRequest{
		Kind: service.Config, Cluster: "a/b", DryRun: true, Precondition: match, From: "192.0.2.1:7",
	}); !reflect.DeepEqual(a.delete, want) {
		t.Errorf("delete: got %+v, want %+v", a.delete, want)
	}
	for query, want := range map[string]*service.SnapshotRequest{
		"PUT":                                 {Replace: true, MaxRemoved: -1},
		"PUT dry_run&max_removed=7":           {Replace: true, MaxRemoved: 7, DryRun: true},
		"PUT strict&max_removed=0":            {Replace: true, Strict: true},
		"POST":                                {},
		"POST allow_empty&strict&dry_run":     {AllowEmpty: true, Strict: true, DryRun: true},
		"PUT allow_empty&max_removed=1000000": {Replace: true, AllowEmpty: true, MaxRemoved: MaxRemoved},
	} {
		method, query, _ := strings.Cut(query, " ")
		want.Body, want.Format, want.Precondition, want.From = []byte("resources: []"), service.YAML, match, "192.0.2.1:7"
		send(method, "/snapshot?"+query, "resources: []")
		if !reflect.DeepEqual(a.snapshot, want) {
			t.Errorf("%s %s: got %+v, want %+v", method, query, a.snapshot, want)
		}
	}
}
