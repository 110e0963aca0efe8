package ctl

import (
	"context"
	"net/http"
	"strconv"

	"github.com/alecthomas/kong"
)

type reconnectCommand struct {
	Cluster string `arg:"" help:"Name of the cluster." placeholder:"CLUSTER"`
}

// Run connects to endpoints, and prints a table with their number.
func (c *reconnectCommand) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	return o.with(app, func(s *session) error {
		var done struct {
			Endpoints int `json:"endpoints"`
		}
		answer, err := s.client.read(ctx, request{method: http.MethodPost, path: "/v1/clusters/" + segment(c.Cluster) + "/reconnect"}, &done)
		if err != nil {
			return err
		}
		t := newTable("CLUSTER", "RECONNECTING")
		t.add(c.Cluster, strconv.Itoa(done.Endpoints))
		return s.printTables(answer.body, t)
	})
}
