package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/proposal"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
)

// maxCheckBytes is the maximum size of a checked file, as of a pushed snapshot.
const maxCheckBytes = 64 << 20

type checkCommand struct {
	ConfigFile string   `name:"config" help:"Configuration file to validate as well (default none)" placeholder:"FILE"`
	Lenient    bool     `name:"lenient-files" help:"Accept unknown fields in resource files, with a warning (default false: they make the file invalid)"`
	Strict     bool     `hidden:"" help:"Has no effect: unknown fields are errors by default"`
	Files      []string `arg:"" optional:"" help:"xDS resource files (.json, .yaml, .yml, .pb, or .txt for a list of endpoints), as for a push or for --resources."`
}

// errBad reports that check found errors, which it has printed.
var errBad = errors.New("check failed")

// Run validates each file as a push, and prints how picks would use its resources.
func (c *checkCommand) Run() error {
	if c.ConfigFile == "" && len(c.Files) == 0 {
		return errors.New("set resource files, or --config FILE")
	}
	bad := false
	if c.ConfigFile != "" {
		if _, _, err := parse(new(cli), []string{"serve", "--config", c.ConfigFile}); err != nil {
			fmt.Printf("%s: %v\n", c.ConfigFile, err)
			bad = true
		} else {
			fmt.Printf("%s: good\n", c.ConfigFile)
		}
	}
	all := make([]checkedFile, len(c.Files))
	for i, path := range c.Files {
		all[i].path = path
		all[i].read(c.Lenient)
	}
	for i := range all {
		bad = !all[i].print(os.Stdout, all) || bad
	}
	if bad {
		return errBad
	}
	return nil
}

// checkedFile is a file, and what is in it.
type checkedFile struct {
	path      string
	body      []byte
	format    decode.Format
	err       error           // of reading the file
	providers map[string]bool // named in the file; the bootstrap of the daemon configures them
	bundle    *decode.Bundle
	invalid   error
}

func (f *checkedFile) read(lenient bool) {
	var ok bool
	if f.format, ok = files.FormatOf(f.path); !ok {
		f.err = errors.New("unknown format: the name must end in " + files.Extensions)
		return
	}
	info, err := os.Stat(f.path)
	if err == nil && info.Size() > maxCheckBytes {
		err = fmt.Errorf("larger than %d bytes", maxCheckBytes)
	}
	if err == nil {
		f.body, err = os.ReadFile(f.path)
	}
	if f.err = err; err != nil {
		return
	}
	f.providers = make(map[string]bool)
	f.bundle, f.invalid = decode.All(f.body, decode.Options{
		Origin: decode.ByHand, Format: f.format, Lenient: lenient, Places: true, Bare: true, Policies: lb.PolicyTraits,
		Name: files.NameOf(f.path), Fleet: true, // whether the daemon has a fleet is not known
		Certificates: func(name string) (roots, identity, ok bool) {
			f.providers[name] = true
			return true, true, true
		},
	})
}

// warnings returns those about the file among others, whose Clusters may choose the policies for its endpoints.
func (f *checkedFile) warnings(among []checkedFile) []decode.Problem {
	return decode.JudgeWeights(f.bundle.Warnings, lb.PolicyTraits, func(assignment string) (out []*resource.Cluster) {
		for i := range among {
			if b := among[i].bundle; b != nil && f.bundle.ClustersOf(assignment) == nil {
				out = append(out, b.ClustersOf(assignment)...)
			}
		}
		return out
	})
}

// print prints the errors of a file, or how picks would use its resources.
func (f *checkedFile) print(out io.Writer, among []checkedFile) (good bool) {
	file := f.path
	if f.err != nil {
		fmt.Fprintf(out, "%s: %v\n", file, f.err)
		return false
	}
	list := func(kind string, problems []decode.Problem) {
		for _, p := range problems {
			at := file
			if p.Line > 0 {
				at = fmt.Sprintf("%s:%d:%d", file, p.Line, p.Column)
			}
			fmt.Fprintf(out, "%s: %s: %s: %s\n", at, kind, p.Resource, p)
		}
	}
	if invalid, ok := errors.AsType[*decode.InvalidError](f.invalid); ok {
		list("error", invalid.Problems)
		return false
	}
	if f.invalid != nil {
		fmt.Fprintf(out, "%s: error: %v\n", file, f.invalid)
		return false
	}
	bundle := f.bundle
	list("warning", f.warnings(among))
	list("note", bundle.Notes)
	for _, name := range slices.Sorted(maps.Keys(f.providers)) {
		fmt.Fprintf(out, "%s: note: not checked: the daemon's bootstrap must have the certificate provider instance %q\n", file, name)
	}
	if empty := proposal.Check(bundle.Items); len(empty) > 0 {
		decode.Place(f.body, f.format, false, empty)
		list("error", empty)
		return false
	}
	for _, i := range bundle.Items {
		fmt.Fprintf(out, "%s: good: %s", file, i.Key)
		summarize(out, i, bundle.Items)
	}
	return true
}

// summarize prints how picks would use a resource of a file.
func summarize(out io.Writer, i resource.Item, among []resource.Item) {
	switch {
	case i.Listener != nil:
		summarizeListener(out, i.Listener, among)
	case i.Routes != nil:
		fmt.Fprintf(out, ": virtual hosts: %d\n", len(i.Routes.VirtualHosts))
		for _, h := range i.Routes.VirtualHosts {
			summarizeVirtualHost(out, h)
		}
	case i.Cluster != nil:
		c := i.Cluster
		fmt.Fprintf(out, ": %s, endpoints of %q, at most %d requests in flight\n", c.Type, c.AssignmentName(), c.MaxRequests)
	case i.Assignment != nil:
		summarizeAssignment(out, i.Assignment)
	}
}

func summarizeListener(out io.Writer, l *resource.Listener, among []resource.Item) {
	fmt.Fprintf(out, ": target xds:///%s, ", l.Name)
	routes := l.Routes
	if routes != nil {
		fmt.Fprintln(out, "routes of its own")
	} else {
		n := slices.IndexFunc(among, func(i resource.Item) bool { return i.Routes != nil && i.Routes.Name == l.RouteName })
		if n < 0 {
			fmt.Fprintf(out, "routes of RouteConfiguration %q, which is not in this file\n", l.RouteName)
			return
		}
		fmt.Fprintf(out, "routes of RouteConfiguration %q\n", l.RouteName)
		routes = among[n].Routes
	}
	if h := routes.VirtualHost(l.Name); h != nil {
		summarizeVirtualHost(out, h)
	} else {
		fmt.Fprintf(out, "  no virtual host for %q: picks fail\n", l.Name)
	}
}

func summarizeVirtualHost(out io.Writer, h *resource.VirtualHost) {
	fmt.Fprintf(out, "  virtual host %q, for %s\n", h.Name, strings.Join(h.Domains, ", "))
	for _, r := range h.Routes {
		fmt.Fprintf(out, "    %s: %s\n", r.Match.Words(), whereTo(r))
	}
}

func whereTo(r *resource.Route) string {
	if len(r.Clusters) == 0 {
		return "no cluster, picks fail (" + r.Unsupported + ")"
	}
	clusters := make([]string, len(r.Clusters))
	for i, c := range r.Clusters {
		clusters[i] = fmt.Sprintf("%.4g %% to cluster %s", 100*float64(c.Weight)/float64(r.TotalWeight), c.Name)
	}
	return strings.Join(clusters, ", ")
}

// summarizeAssignment prints the share of the picks of each endpoint.
func summarizeAssignment(out io.Writer, a *resource.Assignment) {
	fmt.Fprintf(out, ": %d usable endpoints\n", a.Usable())
	for _, d := range a.Drops {
		fmt.Fprintf(out, "  drops %.4g %% as %q\n", float64(d.PerMillion)/1e4, d.Category)
	}
	localities := slices.Clone(a.Localities)
	slices.SortStableFunc(localities, func(x, y *resource.LocalityEndpoints) int { return cmp.Compare(x.Priority, y.Priority) })
	sums := make(map[uint32]uint64)
	for _, l := range localities {
		if l.Usable() > 0 {
			sums[l.Priority] += uint64(l.Weight)
		}
	}
	for _, l := range localities {
		n := l.Usable()
		if n == 0 {
			fmt.Fprintf(out, "  priority %d, locality %s: no usable endpoint\n", l.Priority, l.ID)
			continue
		}
		share := 100 * float64(l.Weight) / float64(sums[l.Priority])
		fmt.Fprintf(out, "  priority %d, locality %s: weight %d, %.4g %% of the picks, %d endpoints with %.4g %% each%s\n",
			l.Priority, l.ID, l.Weight, share, n, share/float64(n), whenUsed(l.Priority))
	}
}

func whenUsed(priority uint32) string {
	if priority == 0 {
		return ""
	}
	return ", while every higher priority fails"
}
