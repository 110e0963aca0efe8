package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

const (
	// maxPushBytes is the maximum size of a pushed file, as that of a snapshot.
	maxPushBytes = 64 << 20
	// maxMessageBytes is the maximum size of a message in the history.
	maxMessageBytes = 500
	// stdin is the name of standard input as a file.
	stdin = "-"
)

// changeFlags are the flags of a change.
type changeFlags struct {
	Yes     bool   `short:"y" help:"Do not ask for confirmation; required without a terminal (default false)"`
	Message string `short:"m" help:"Why the change is made, for the history, at most 500 bytes (default none)" placeholder:"TEXT"`
	// MaxShift is sent as it is.
	MaxShift string `help:"Refuse a change that moves more of the picks of a cluster, such as 20% (default no limit)" placeholder:"PERCENT"`
}

// fileFlags are the flags of a pushed file.
type fileFlags struct {
	Cluster    string `arg:"" help:"Name of the cluster."`
	File       string `arg:"" help:"File with the resource (JSON, YAML, protobuf, or a list of endpoints); - is standard input."`
	AllowEmpty bool   `help:"Allow a cluster without usable endpoints (default false)"`
	Lenient    bool   `help:"Accept unknown fields, with a warning (default false)"`
}

// change is a change of one resource, or a restore.
type change struct {
	request
	// what describes the change in a question, such as "Push the endpoints of orders".
	what string
	// precondition is the path whose ETag is the precondition. It is empty if there is none.
	precondition string
	// untagged is true if the resource has no ETag: the precondition is only whether it exists.
	untagged bool
	// canCreate is true if the request creates the resource if it is absent.
	canCreate bool
	// mayBeAbsent is true for a restore of a resource that may be absent: its API has no precondition
	// for that.
	mayBeAbsent bool
}

// ofFile returns the push of a file. part is that of the cluster, as in the paths of the API: endpoints
// or config.
func (f *fileFlags) ofFile(part string) (change, error) {
	body, err := readFile(f.File)
	if err != nil {
		return change{}, usage("read the resource: %w", err)
	}
	c := newChange(http.MethodPut, clusterPath(f.Cluster, part))
	c.query = parameters("allow_empty", ifSet(f.AllowEmpty))
	if f.Lenient {
		c.query.Set("strict", "false")
	}
	// The daemon recognizes the text forms, but not protobuf.
	if media := mediaTypes[filepath.Ext(f.File)]; media != "" {
		c.header.Set("Content-Type", media)
	}
	c.body, c.canCreate = body, true
	c.what = fmt.Sprintf("Push the %s of %s", part, f.Cluster)
	return c, nil
}

var mediaTypes = map[string]string{
	".json": "application/json", ".yaml": "application/yaml", ".yml": "application/yaml", ".pb": "application/x-protobuf",
}

// newChange returns a change whose precondition is about the changed resource itself.
func newChange(method, path string) change {
	return change{request: request{method: method, path: path, header: http.Header{}, query: url.Values{}}, precondition: path}
}

// clusterPath returns the path of a part of a cluster: endpoints, config or overlays.
func clusterPath(cluster, part string) string { return "/v1/clusters/" + segment(cluster) + "/" + part }

func readFile(name string) ([]byte, error) {
	if name == stdin {
		return readAll(os.Stdin, "standard input", maxPushBytes)
	}
	return readLimited(name, maxPushBytes, 0)
}

// pushAnswer is a PushAnswer of the contract.
type pushAnswer struct {
	Index   uint64 `json:"index"`
	Changes []struct {
		Resource   string `json:"resource"`
		Change     string `json:"change"`
		Difference string `json:"difference"`
	} `json:"changes"`
	Warnings []rule  `json:"warnings"`
	Notes    []rule  `json:"notes"`
	Effect   *effect `json:"effect"`
}

// preview sets the precondition of a change to the ETag of what there is, and returns what the change
// would do to it.
func (s *session) preview(ctx context.Context, c *change) (raw []byte, dry pushAnswer, err error) {
	if c.precondition != "" {
		if err := s.setPrecondition(ctx, c); err != nil {
			return nil, dry, err
		}
	}
	r := c.request
	r.query = url.Values{"dry_run": {"true"}}
	maps.Copy(r.query, c.query)
	answer, err := s.client.read(ctx, r, &dry)
	return answer.body, dry, err
}

func (s *session) setPrecondition(ctx context.Context, c *change) error {
	tag, err := s.etag(ctx, c.precondition, c.untagged)
	refused, isRefusal := errors.AsType[*refusal](err)
	absent := isRefusal && (refused.Code == "unknown_cluster" || refused.Code == "unknown_overlay")
	switch {
	case absent && c.canCreate:
		c.header.Set("If-None-Match", "*")
	case absent && c.mayBeAbsent:
	case err != nil:
		return err
	default:
		c.header.Set("If-Match", tag)
	}
	return nil
}

// etag returns the ETag of a resource or of the snapshot, or * if it has none. It does not read the body.
func (s *session) etag(ctx context.Context, path string, untagged bool) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.client.timeout, errNoResponse)
	defer cancel()
	r := request{method: http.MethodGet, path: path}
	answer, err := s.client.open(ctx, r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return "", s.client.refused(r, answer)
	}
	if untagged {
		return "*", nil
	}
	tag := answer.Header.Get("ETag")
	if tag == "" {
		return "", s.client.unexpected(answer)
	}
	return tag, nil
}

// describe prints what a change does, or would do.
func (a pushAnswer) describe(w io.Writer) {
	for _, c := range a.Changes {
		fmt.Fprintln(w, escape(c.Resource+": "+cmp.Or(c.Difference, c.Change)))
	}
	if len(a.Changes) == 0 {
		fmt.Fprintln(w, "no difference")
	}
	for _, r := range a.Warnings {
		fmt.Fprintln(w, escape("warning: "+r.String()))
	}
	for _, r := range a.Notes {
		fmt.Fprintln(w, escape("note: "+r.String()))
	}
	if a.Effect != nil {
		a.Effect.describe(w)
	}
}

func (a pushAnswer) resources() []string {
	names := make([]string, len(a.Changes))
	for i, c := range a.Changes {
		names[i] = c.Resource
	}
	return names
}

// check checks the flags before a change is made of them.
func (f *changeFlags) check() error {
	if len(f.Message) > maxMessageBytes || !utf8.ValidString(f.Message) || strings.ContainsFunc(f.Message, unicode.IsControl) {
		return usage("--message must be at most %d bytes of UTF-8 in one line", maxMessageBytes) // as a header may have
	}
	return checkTerminal(f.Yes)
}

// checkTerminal returns an error if a change can neither be confirmed nor is confirmed by --yes.
func checkTerminal(yes bool) error {
	if !yes && !isTerminal(os.Stdin) {
		return usage("standard input is not a terminal, so the change cannot be confirmed: " +
			"set --yes to make it without confirmation")
	}
	return nil
}

// describe sets the message that the history shows, and the limit of what the change may move.
func (f *changeFlags) describe(r *request) {
	if f.Message != "" {
		r.header.Set("Lbd-Message", f.Message)
	}
	if f.MaxShift != "" {
		r.query.Set("max_shift", f.MaxShift)
	}
}

// apply shows what a change would do, asks for confirmation and makes the change. What the daemon has
// must still be what was shown.
func (o *Options) apply(ctx context.Context, app *kong.Kong, f changeFlags, todo change) error {
	if err := f.check(); err != nil {
		return err
	}
	return o.with(app, func(s *session) error {
		done, err := s.change(ctx, f, &todo)
		if err != nil {
			return err
		}
		return s.result(done.raw, done.pushAnswer, done.words)
	})
}

// changed is the answer to a change.
type changed struct {
	pushAnswer

	raw []byte // as JSON
	// words is the result as text.
	words string
}

// change shows what a change would do, asks for confirmation and makes the change.
func (s *session) change(ctx context.Context, f changeFlags, todo *change) (changed, error) {
	raw, dry, err := s.preview(ctx, todo)
	if err != nil {
		return changed{}, err
	}
	dry.describe(s.stderr)
	if len(dry.Changes) == 0 {
		return changed{dry, raw, "nothing to change"}, nil
	}
	if !f.Yes {
		if err := s.confirm(ctx, fmt.Sprintf("%s at %s?", todo.what, s.client.name())); err != nil {
			return changed{}, err
		}
	}
	f.describe(&todo.request)
	var done changed
	answer, err := s.client.read(ctx, todo.request, &done.pushAnswer)
	done.raw, done.words = answer.body, fmt.Sprintf("done, at index %d", done.Index)
	return done, err
}

// result prints the answer to a change.
func (s *session) result(raw []byte, a pushAnswer, words string) error {
	if s.output == "table" {
		fmt.Fprintln(s.stdout, words)
		return nil
	}
	return s.print(raw, a.resources())
}

type pushCommand struct {
	Endpoints pushPart `cmd:"" help:"Push the endpoints of a cluster: a ClusterLoadAssignment (EDS) or a list."`
	Config    pushPart `cmd:"" help:"Push the config of a cluster: a Cluster (CDS)."`
}

type pushPart struct {
	fileFlags
	changeFlags
}

// Run pushes the part of a cluster that is the name of the command.
func (p *pushPart) Run(ctx context.Context, o *Options, app *kong.Kong, command *kong.Context) error {
	todo, err := p.ofFile(command.Selected().Name)
	if err != nil {
		return err
	}
	return o.apply(ctx, app, p.changeFlags, todo)
}

type diffCommand struct {
	Endpoints diffPart `cmd:"" help:"Compare a file with the pushed endpoints of a cluster."`
	Config    diffPart `cmd:"" help:"Compare a file with the pushed config of a cluster."`
}

type diffPart struct {
	fileFlags
}

// Run prints what a push would change. The request has a precondition, since a daemon may require it.
func (d *diffPart) Run(ctx context.Context, o *Options, app *kong.Kong, command *kong.Context) error {
	todo, err := d.ofFile(command.Selected().Name)
	if err != nil {
		return err
	}
	return o.with(app, func(s *session) error { return s.showDifference(ctx, &todo) })
}

// showDifference prints what a change would do. The error is errNegative if it would do something.
func (s *session) showDifference(ctx context.Context, todo *change) error {
	raw, dry, err := s.preview(ctx, todo)
	if err != nil {
		return err
	}
	if s.output == "table" {
		dry.describe(s.stdout)
	} else if err := s.print(raw, dry.resources()); err != nil {
		return err
	}
	if len(dry.Changes) > 0 {
		return errNegative
	}
	return nil
}

type deleteCommand struct {
	Endpoints deletePart `cmd:"" help:"Delete the pushed endpoints of a cluster."`
	Config    deletePart `cmd:"" help:"Delete the pushed config of a cluster."`
}

type deletePart struct {
	Cluster string `arg:"" help:"Name of the cluster."`
	changeFlags
}

// Run deletes the part of a cluster that is the name of the command.
func (d *deletePart) Run(ctx context.Context, o *Options, app *kong.Kong, command *kong.Context) error {
	part := command.Selected().Name
	todo := newChange(http.MethodDelete, clusterPath(d.Cluster, part))
	todo.what = fmt.Sprintf("Delete the pushed %s of %s", part, d.Cluster)
	return o.apply(ctx, app, d.changeFlags, todo)
}
