package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// drainStep is the maximum time of one request that waits for a drain: the time between two reports of its
// progress.
const drainStep = time.Second

type drainCommand struct {
	subject
	Wait time.Duration `help:"Maximum time to wait until the endpoints have no requests in flight; exits with 1 if some are left (default 0s)" placeholder:"DURATION"`
	ID   string        `name:"id" help:"ID of the overlay (default derived from the endpoint or the locality)" placeholder:"ID"`
	overlayFlags
}

// Run drains an endpoint or a locality.
func (d *drainCommand) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	where, err := d.locality()
	if err != nil {
		return err
	}
	if d.Wait < 0 {
		return usage("--wait must not be negative: %v", d.Wait)
	}
	id := cmp.Or(d.ID, d.overlayID(drainKind, where))
	todo, err := d.change(d.Cluster, id, newOverlay{Kind: drainKind, Endpoint: d.Endpoint, Locality: where})
	if err != nil {
		return err
	}
	todo.what = fmt.Sprintf("Drain %s of %s", d.says(where), d.Cluster)
	if err := checkTerminal(d.Yes); err != nil {
		return err
	}
	return o.with(app, func(s *session) error {
		done, err := s.change(ctx, changeFlags{Yes: d.Yes}, &todo)
		if err != nil {
			return err
		}
		if d.Wait == 0 {
			return s.result(done.raw, done.pushAnswer, done.words)
		}
		return s.await(ctx, done, todo.path, d.Wait)
	})
}

// await waits until a drain is complete. It shows the progress, and prints the result.
func (s *session) await(ctx context.Context, done changed, path string, wait time.Duration) error {
	var state overlayState
	var answer response
	shown := int64(-1)
	for until := time.Now().Add(wait); ; {
		step := min(max(time.Until(until), 0), drainStep)
		r := request{method: http.MethodGet, path: path, query: parameters("wait", step.String()), wait: step}
		var err error
		if answer, err = s.client.read(ctx, r, &state); err != nil {
			return err
		}
		if state.InFlight == nil || *state.InFlight == 0 || step == 0 {
			break
		}
		if *state.InFlight != shown {
			shown = *state.InFlight
			fmt.Fprintf(s.stderr, "%d in flight left\n", shown)
		}
	}
	raw, err := withOverlay(done.raw, answer.body)
	if err != nil {
		return err
	}
	empty := state.InFlight == nil || *state.InFlight == 0
	if empty {
		done.words += "; nothing is in flight"
	}
	if err := s.result(raw, done.pushAnswer, done.words); err != nil || empty {
		return err
	}
	return &failure{exitNegative, fmt.Errorf("%d in flight left after %v: the drain stays in effect, and the same command waits again",
		*state.InFlight, wait)}
}

// withOverlay returns the answer to a change with the overlay as it is now.
func withOverlay(raw, overlay []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := decode(raw, &fields); err != nil {
		return nil, err
	}
	fields["overlay"] = overlay
	return json.Marshal(fields)
}

type undrainCommand struct {
	subject
	changeFlags
}

// Run deletes the overlays that drain or disable an endpoint or a locality.
func (u *undrainCommand) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	where, err := u.locality()
	if err != nil {
		return err
	}
	if err := u.check(); err != nil {
		return err
	}
	return o.with(app, func(s *session) error {
		list, _, err := s.client.overlays(ctx, clusterPath(u.Cluster, "overlays"))
		if err != nil {
			return err
		}
		list = slices.DeleteFunc(list, func(one overlayState) bool { return !u.isDrained(one, where) })
		if len(list) == 0 {
			return u.nothing(ctx, s, where)
		}
		if err := u.delete(ctx, s, list, where); err != nil {
			return err
		}
		return u.stillOut(ctx, s)
	})
}

// isDrained reports whether an overlay drains or disables exactly the subject.
func (s *subject) isDrained(o overlayState, where *locality) bool {
	if o.Kind != drainKind && o.Kind != disableKind {
		return false
	}
	if where != nil {
		return o.Locality != nil && *o.Locality == *where
	}
	return o.Endpoint == s.Endpoint
}

// delete deletes overlays after a confirmation, and prints their IDs.
func (u *undrainCommand) delete(ctx context.Context, s *session, list []overlayState, where *locality) error {
	for _, one := range list {
		fmt.Fprintln(s.stderr, escape(fmt.Sprintf("Overlay/%s/%s: %s", u.Cluster, one.ID, one.Says)))
	}
	if !u.Yes {
		const question = "Delete %s, so that %s of %s gets picks again, at %s?"
		what := strconv.Itoa(len(list)) + " overlays"
		if len(list) == 1 {
			what = "this overlay"
		}
		if err := s.confirm(ctx, fmt.Sprintf(question, what, u.says(where), u.Cluster, s.client.name())); err != nil {
			return err
		}
	}
	answers := make([]json.RawMessage, 0, len(list))
	var all pushAnswer
	for _, one := range list {
		todo := ofOverlay(http.MethodDelete, u.Cluster, one.ID)
		todo.header.Set("If-Match", "*")
		u.describe(&todo.request)
		var done pushAnswer
		answer, err := s.client.read(ctx, todo.request, &done)
		if err != nil {
			return err
		}
		all.Index, all.Changes = done.Index, append(all.Changes, done.Changes...)
		answers = append(answers, answer.body)
	}
	raw := []byte(answers[0])
	if len(answers) > 1 {
		var err error
		if raw, err = json.Marshal(map[string][]json.RawMessage{"answers": answers}); err != nil {
			return err
		}
	}
	ids := make([]string, len(list))
	for i, one := range list {
		ids[i] = one.ID
	}
	return s.result(raw, all, fmt.Sprintf("deleted %s, at index %d", escape(strings.Join(ids, ", ")), all.Index))
}

// nothing is the answer if there is no overlay to delete.
func (u *undrainCommand) nothing(ctx context.Context, s *session, where *locality) error {
	if err := u.stillOut(ctx, s); err != nil {
		return err
	}
	return &failure{exitNegative, fmt.Errorf("no overlay of %s drains or disables the %s: lbd ctl overlays lists the overlays",
		escape(u.Cluster), escape(u.says(where)))}
}

// stillOut says which other overlays take the endpoint out of use, of its locality for instance.
func (u *undrainCommand) stillOut(ctx context.Context, s *session) error {
	if u.Endpoint == "" {
		return nil
	}
	var state clusterState
	if _, err := s.client.get(ctx, "/v1/clusters/"+segment(u.Cluster), nil, &state); err != nil {
		return err
	}
	_, endpoints, err := flatten(state)
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		if e.Address == u.Endpoint && e.Overlay != "" {
			s.notice("%s is out of use by the overlay %s: lbd ctl overlays delete removes it", e.Address, e.Overlay)
		}
	}
	return nil
}

type weightCommand struct {
	subject
	Factor string `arg:"" optional:"" help:"Factor: 0, or 0.001 to 10. With --locality, it is the only argument after the cluster."`
	ID     string `name:"id" help:"ID of the overlay (default derived from the endpoint or the locality)" placeholder:"ID"`
	overlayFlags
}

// Run multiplies the weight of an endpoint or a locality.
func (w *weightCommand) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	if w.Locality != "" && w.Factor == "" { // weight CLUSTER FACTOR
		w.Endpoint, w.Factor = "", w.Endpoint
	}
	where, err := w.locality()
	if err != nil {
		return err
	}
	if w.Factor == "" {
		return usage("FACTOR is required: 0, or 0.001 to 10")
	}
	factor, err := strconv.ParseFloat(w.Factor, 64)
	if err != nil {
		return usage("FACTOR %q: must be a number, 0 or 0.001 to 10", w.Factor)
	}
	todo, err := w.change(w.Cluster, cmp.Or(w.ID, w.overlayID(weightKind, where)),
		newOverlay{Kind: weightKind, Endpoint: w.Endpoint, Locality: where, Factor: &factor})
	if err != nil {
		return err
	}
	todo.what = fmt.Sprintf("Multiply the weight of %s of %s by %s", w.says(where), w.Cluster, w.Factor)
	return o.apply(ctx, app, changeFlags{Yes: w.Yes}, todo)
}
