package main

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// version is set when a release is built.
var version = ""

// versionFlag is --version, which needs no command and reads no configuration.
type versionFlag bool

// BeforeReset prints the version. kong calls it.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	fmt.Fprintln(app.Stdout, "lbd", buildVersion())
	app.Exit(0)
	return errors.New("the version is printed")
}

type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run() error {
	_, err := fmt.Println("lbd", buildVersion())
	return err
}

// buildVersion is the release's version, or the revision that was built.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}
