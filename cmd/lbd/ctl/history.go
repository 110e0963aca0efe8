package ctl

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

type historyCommand struct {
	Cluster string `help:"Only changes of the resources of this name (default all)" placeholder:"CLUSTER"`
	Limit   int    `help:"Maximum number of changes, 1 to 1000 (default ${default})" default:"20" placeholder:"N"`
	Before  uint64 `help:"Only changes of smaller indices (default all)" placeholder:"INDEX"`
}

// Run prints a table of changes.
func (h *historyCommand) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	q := parameters("cluster", h.Cluster, "limit", strconv.Itoa(h.Limit))
	if h.Before > 0 {
		q.Set("before", strconv.FormatUint(h.Before, 10))
	}
	return o.with(app, func(s *session) error {
		var list struct {
			Changes []struct {
				Index   uint64 `json:"index"`
				Time    string `json:"time"`
				Source  string `json:"source"`
				Caller  string `json:"caller"`
				Address string `json:"address"`
				Message string `json:"message"`
				Says    string `json:"says"`
			} `json:"changes"`
			Oldest uint64 `json:"oldest"`
			Next   uint64 `json:"next"`
		}
		answer, err := s.client.get(ctx, "/v1/history", q, &list)
		if err != nil {
			return err
		}
		t := newTable("INDEX", "TIME", "SOURCE", "CALLER", "MESSAGE", "CHANGE")
		for _, one := range list.Changes {
			t.add(strconv.FormatUint(one.Index, 10), clock(one.Time), one.Source, cmp.Or(one.Caller, one.Address), one.Message, one.Says)
		}
		if err := s.printTables(answer.body, t); err != nil {
			return err
		}
		if s.output == "table" && list.Next > 0 {
			s.notice("there are earlier changes: set --before=%d; the oldest index that can be restored is %d",
				list.Next, list.Oldest)
		}
		return nil
	})
}

type restoreCommand struct {
	Index      uint64 `arg:"" help:"Index of the history. To undo a change, restore the index before it."`
	Cluster    string `xor:"what" required:"" help:"Restore the Cluster and the ClusterLoadAssignment of this name" placeholder:"CLUSTER"`
	Resource   string `xor:"what" required:"" help:"Restore only this resource" placeholder:"TYPE/NAME"`
	All        bool   `xor:"what" required:"" help:"Restore everything"`
	AllowEmpty bool   `help:"Allow clusters without usable endpoints (default false)"`
	MaxRemoved *int   `help:"Maximum number of resources to remove (default no limit)" placeholder:"N"`
	Preview    bool   `help:"Only show what would change; exits with 1 if there is a difference (default false)"`
	changeFlags
}

// Run restores a resource, a cluster or everything.
func (r *restoreCommand) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	todo := r.change()
	if !r.Preview {
		return o.apply(ctx, app, r.changeFlags, todo)
	}
	return o.with(app, func(s *session) error { return s.showDifference(ctx, &todo) })
}

func (r *restoreCommand) change() change {
	todo := newChange(http.MethodPost, fmt.Sprintf("/v1/history/%d/restore", r.Index))
	todo.precondition = "/v1/snapshot"
	todo.query = parameters("cluster", r.Cluster, "resource", r.Resource, "all", ifSet(r.All), "allow_empty", ifSet(r.AllowEmpty))
	if r.MaxRemoved != nil {
		todo.query.Set("max_removed", strconv.Itoa(*r.MaxRemoved))
	}
	switch {
	case r.All:
		todo.what = "Restore everything"
	case r.Cluster != "":
		todo.what = "Restore the cluster " + r.Cluster
	default:
		todo.what = "Restore " + r.Resource
		todo.precondition = resourcePath(r.Resource)
		todo.mayBeAbsent = true
	}
	todo.what += fmt.Sprintf(" as of index %d", r.Index)
	return todo
}

// resourcePath returns the path of a resource that has one of its own.
func resourcePath(resource string) string {
	kind, name, _ := strings.Cut(resource, "/")
	switch kind {
	case "Cluster":
		return clusterPath(name, "config")
	case "ClusterLoadAssignment":
		return clusterPath(name, "endpoints")
	default:
		return ""
	}
}
