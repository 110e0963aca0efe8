package main

import (
	"github.com/alecthomas/kong"

	"github.com/lbd-dev/lbd/cmd/lbd/reference"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell: ${enum}."`
}

// Run prints the completions.
func (c *completionCommand) Run(app *kong.Kong) error {
	return reference.Completion(app.Stdout, app.Model, c.Shell)
}

type manCommand struct{}

// Run prints the manual page.
func (manCommand) Run(app *kong.Kong) error {
	return reference.Man(app.Stdout, app.Model, buildVersion())
}
