package ctl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

type watchCommand struct {
	Cluster string   `arg:"" optional:"" help:"Only events of this cluster (default all)."`
	Target  string   `help:"Only events of the tree of this target (default all)" placeholder:"TARGET"`
	Type    []string `help:"Only events of this type, such as pushed; repeatable, or separated by commas (default all)" placeholder:"TYPE"`
	Last    int      `help:"Number of past events to begin with, 0 to 1000 (default ${default})" default:"0" placeholder:"N"`
}

// Run prints events until it is interrupted.
func (w *watchCommand) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	q := parameters("cluster", w.Cluster, "target", w.Target, "last", strconv.Itoa(w.Last))
	for _, t := range w.Type {
		q.Add("type", t)
	}
	return o.with(app, func(s *session) error {
		f := follower{client: s.client, path: "/v1/events/watch", query: q, handle: s.printEvent}
		f.lost = func(err error, pause time.Duration) {
			s.notice("connection lost: %s; reconnecting in %v", firstLine(err), pause)
		}
		return f.run(ctx)
	})
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// printEvent prints an event of the daemon: one line, or one YAML document.
func (s *session) printEvent(of event) error {
	if of.name == "resync" {
		s.notice("events were missed: the daemon has restarted, or no longer has them")
	}
	if of.name != "event" {
		return nil
	}
	var e struct {
		ID      uint64 `json:"id"`
		Time    string `json:"time"`
		Type    string `json:"type"`
		Cluster string `json:"cluster"`
		Target  string `json:"target"`
		Says    string `json:"says"`
	}
	if err := decode(of.data, &e); err != nil {
		return err
	}
	switch s.output {
	case "json":
		var line bytes.Buffer
		if err := json.Compact(&line, of.data); err != nil {
			return err
		}
		fmt.Fprintf(s.stdout, "%s\n", escapeJSON(line.Bytes()))
	case "yaml":
		fmt.Fprintln(s.stdout, "---")
		return s.print(of.data, nil)
	case "name":
		fmt.Fprintln(s.stdout, e.ID)
	default:
		line := clock(e.Time) + "  " + e.Type
		if about := cmp.Or(e.Cluster, e.Target); about != "" {
			line += "  " + about
		}
		fmt.Fprintln(s.stdout, escape(line+": "+e.Says))
	}
	return s.written()
}
