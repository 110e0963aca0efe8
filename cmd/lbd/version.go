package main

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// version is set at build time for a release.
var version = ""

// versionFlag is --version, which works without a command and reads no configuration.
type versionFlag bool

// BeforeReset prints the version. kong calls it.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	fmt.Fprintln(app.Stdout, "lbd", buildVersion())
	app.Exit(0)
	return errors.New("version printed")
}

type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run() error {
	_, err := fmt.Println("lbd", buildVersion())
	return err
}

// buildVersion returns the version of the release, or the revision of the build.
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
