package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
)

// maxCheckBytes bounds a file that is checked: what a push may bring.
const maxCheckBytes = 64 << 20

type checkCommand struct {
	ConfigFile string   `name:"config" help:"Check a configuration file as well." placeholder:"FILE"`
	Strict     bool     `help:"Take unknown fields for errors."`
	Files      []string `arg:"" optional:"" help:"xDS resource files: JSON, YAML or protobuf (.pb), as they would be pushed or read from --resources."`
}

// errBad ends a check that found something; what it found is printed already.
var errBad = errors.New("something is wrong with what was checked")

// Run judges each file as a push would be, and says what picks would do with
// what is accepted.
func (c *checkCommand) Run() error {
	if c.ConfigFile == "" && len(c.Files) == 0 {
		return errors.New("nothing to check: name resource files, or --config FILE")
	}
	bad := false
	if c.ConfigFile != "" {
		if err := checkConfig(c.ConfigFile); err != nil {
			fmt.Printf("%s: %v\n", c.ConfigFile, err)
			bad = true
		} else {
			fmt.Printf("%s: good\n", c.ConfigFile)
		}
	}
	for _, file := range c.Files {
		good, err := checkFile(os.Stdout, file, c.Strict)
		if err != nil {
			fmt.Printf("%s: %v\n", file, err)
		}
		bad = bad || !good
	}
	if bad {
		return errBad
	}
	return nil
}

// checkConfig reads a configuration as serve would, and starts nothing.
func checkConfig(path string) error {
	var c cli
	_, _, err := parse(&c, []string{"serve", "--config", path})
	return err
}

// checkFile judges one file. The error is one of reading it.
func checkFile(out io.Writer, file string, strict bool) (good bool, err error) {
	format, ok := files.FormatOf(file)
	if !ok {
		return false, errors.New("the name tells no format: it should end in .json, .yaml, .yml or .pb")
	}
	info, err := os.Stat(file)
	if err != nil {
		return false, err
	}
	if info.Size() > maxCheckBytes {
		return false, fmt.Errorf("is larger than %d bytes", maxCheckBytes)
	}
	body, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	bundle, err := resource.DecodeBundle(body, resource.Options{
		Origin: resource.ByHand, Format: format, Strict: strict, Bare: true, Custom: lb.Foreign,
	})
	locate := func(field string) string {
		if line, column := resource.Locate(body, format, field); line > 0 {
			return fmt.Sprintf("%s:%d:%d", file, line, column)
		}
		return file
	}
	if invalid, ok := errors.AsType[*resource.InvalidError](err); ok {
		for _, p := range invalid.Problems {
			fmt.Fprintf(out, "%s: error: %s: %s\n", locate(p.Field), p.Resource, p)
		}
		return false, nil
	}
	if err != nil {
		fmt.Fprintf(out, "%s: error: %v\n", file, err)
		return false, nil
	}
	for _, p := range bundle.Warnings {
		fmt.Fprintf(out, "%s: warning: %s: %s\n", locate(p.Field), p.Resource, p)
	}
	for _, i := range bundle.Items {
		fmt.Fprintf(out, "%s: good: %s", file, i.Key)
		summarize(out, i)
	}
	return true, nil
}

// summarize says what picks would do with a resource.
func summarize(out io.Writer, i resource.Item) {
	if c := i.Cluster; c != nil {
		fmt.Fprintf(out, ": %s, endpoints of %q, at most %d requests in flight\n", c.Type, c.AssignmentName(), c.MaxRequests)
		return
	}
	a := i.Assignment
	fmt.Fprintf(out, ": %d usable endpoints\n", a.Usable())
	for _, d := range a.Drops {
		fmt.Fprintf(out, "  drops %.4g %% as %q\n", float64(d.PerMillion)/1e4, d.Category)
	}
	localities := slices.Clone(a.Localities)
	slices.SortStableFunc(localities, func(x, y *resource.LocalityEndpoints) int { return cmp.Compare(x.Priority, y.Priority) })
	sums := make(map[uint32]uint64)
	for _, l := range localities {
		if usableOf(l) > 0 {
			sums[l.Priority] += uint64(l.Weight)
		}
	}
	for _, l := range localities {
		n := usableOf(l)
		if n == 0 {
			fmt.Fprintf(out, "  priority %d, locality %s: no usable endpoint\n", l.Priority, l.ID)
			continue
		}
		share := 100 * float64(l.Weight) / float64(sums[l.Priority])
		fmt.Fprintf(out, "  priority %d, locality %s: weight %d, %.4g %% of the picks, %d endpoints with %.4g %% each%s\n",
			l.Priority, l.ID, l.Weight, share, n, share/float64(n), whenUsed(l.Priority))
	}
}

func usableOf(l *resource.LocalityEndpoints) int {
	n := 0
	for _, e := range l.Endpoints {
		if e.Usable() {
			n++
		}
	}
	return n
}

func whenUsed(priority uint32) string {
	if priority == 0 {
		return ""
	}
	return ", while every higher priority fails"
}
