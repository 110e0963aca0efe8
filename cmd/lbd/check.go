package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/admission"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
)

// maxCheckBytes is the maximum size of a checked file, as of a pushed snapshot.
const maxCheckBytes = 64 << 20

type checkCommand struct {
	ConfigFile string   `name:"config" help:"Configuration file to validate as well (default none)" placeholder:"FILE"`
	Lenient    bool     `name:"lenient-files" help:"Accept unknown fields in resource files, with a warning (default false: they make the file invalid)"`
	Strict     bool     `hidden:"" help:"Has no effect: unknown fields are errors by default"`
	Files      []string `arg:"" optional:"" help:"xDS resource files (.json, .yaml, .yml, .pb), as for a push or for --resources."`
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

// checkConfig validates a configuration file.
func checkConfig(path string) error {
	var c cli
	_, _, err := parse(&c, []string{"serve", "--config", path})
	return err
}

// checkFile validates one file. The error is one of reading the file.
func checkFile(out io.Writer, file string, lenient bool) (good bool, err error) {
	format, ok := files.FormatOf(file)
	if !ok {
		return false, errors.New("unknown format: the name must end in .json, .yaml, .yml or .pb")
	}
	info, err := os.Stat(file)
	if err != nil {
		return false, err
	}
	if info.Size() > maxCheckBytes {
		return false, fmt.Errorf("larger than %d bytes", maxCheckBytes)
	}
	body, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	providers := make(map[string]bool) // named in the file; the bootstrap of the daemon configures them
	bundle, err := decode.All(body, decode.Options{
		Origin: decode.ByHand, Format: format, Lenient: lenient, Places: true, Bare: true, Policies: lb.PolicyConfig,
		Name: files.NameOf(file),
		Certificates: func(name string) (roots, identity, ok bool) {
			providers[name] = true
			return true, true, true
		},
	})
	list := func(kind string, problems []decode.Problem) {
		for _, p := range problems {
			at := file
			if p.Line > 0 {
				at = fmt.Sprintf("%s:%d:%d", file, p.Line, p.Column)
			}
			fmt.Fprintf(out, "%s: %s: %s: %s\n", at, kind, p.Resource, p)
		}
	}
	if invalid, ok := errors.AsType[*decode.InvalidError](err); ok {
		list("error", invalid.Problems)
		return false, nil
	}
	if err != nil {
		fmt.Fprintf(out, "%s: error: %v\n", file, err)
		return false, nil
	}
	list("warning", bundle.Warnings)
	list("note", bundle.Notes)
	for _, name := range slices.Sorted(maps.Keys(providers)) {
		fmt.Fprintf(out, "%s: note: not checked: the daemon's bootstrap must have the certificate provider instance %q\n", file, name)
	}
	if empty := admission.Check(bundle.Items); len(empty) > 0 {
		decode.Place(body, format, false, empty)
		list("error", empty)
		return false, nil
	}
	for _, i := range bundle.Items {
		fmt.Fprintf(out, "%s: good: %s", file, i.Key)
		summarize(out, i, bundle.Items)
	}
	return true, nil
}
