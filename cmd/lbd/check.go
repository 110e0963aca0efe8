package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/admission"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
)

// maxCheckBytes bounds a file that is checked: what a push may bring.
const maxCheckBytes = 64 << 20

type checkCommand struct {
	ConfigFile string   `name:"config" help:"Check a configuration file as well." placeholder:"FILE"`
	Lenient    bool     `name:"lenient-files" help:"Accept unknown fields with a warning, as serve does with this flag."`
	Strict     bool     `hidden:"" help:"The default since unknown fields are errors."`
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
		good, err := checkFile(os.Stdout, file, c.Lenient)
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
func checkFile(out io.Writer, file string, lenient bool) (good bool, err error) {
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
		Origin: resource.ByHand, Format: format, Lenient: lenient, Places: true, Bare: true, Custom: lb.Foreign,
		Name:         files.NameOf(file),
		Certificates: func(string) (roots, identity, ok bool) { return true, true, true }, // the bootstrap is the daemon's
	})
	list := func(kind string, problems []resource.Problem) {
		for _, p := range problems {
			at := file
			if p.Line > 0 {
				at = fmt.Sprintf("%s:%d:%d", file, p.Line, p.Column)
			}
			fmt.Fprintf(out, "%s: %s: %s: %s\n", at, kind, p.Resource, p)
		}
	}
	if invalid, ok := errors.AsType[*resource.InvalidError](err); ok {
		list("error", invalid.Problems)
		return false, nil
	}
	if err != nil {
		fmt.Fprintf(out, "%s: error: %v\n", file, err)
		return false, nil
	}
	list("warning", bundle.Warnings)
	list("note", bundle.Notes)
	if empty := admission.Check(bundle.Items); len(empty) > 0 {
		resource.Place(body, format, false, empty)
		list("error", empty)
		return false, nil
	}
	for _, i := range bundle.Items {
		fmt.Fprintf(out, "%s: good: %s", file, i.Key)
		summarize(out, i, bundle.Items)
	}
	return true, nil
}
