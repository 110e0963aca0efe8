package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/lbd-dev/lbd/cmd/lbd/reference"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell: ${enum}."`
}

// Run prints the completions.
func (c *completionCommand) Run(app *kong.Kong) error {
	return reference.Completion(app.Stdout, app.Model.Name, c.Shell)
}

// completeCommand is what the completions of a shell call, with words as the shell divides them.
type completeCommand struct {
	Shell string   `arg:"" enum:"bash,zsh,fish"`
	Words []string `arg:"" passthrough:"" help:"Words of the command line up to the cursor."`
}

var (
	// divided is where bash divides words. It replaces the last part only.
	divided = regexp.MustCompile("\n?([:=])\n?")
	// harmless is a name that no shell expands, and that is no flag: names are the words of others.
	harmless = regexp.MustCompile(`^[\w./:@%+,\[\]][\w./:@%+,\[\]-]*$`)
)

// Run prints what the last word can be, with descriptions, or a colon if it is a file.
func (c *completeCommand) Run(ctx context.Context, app *kong.Kong) error {
	last := c.Words[len(c.Words)-1]
	if c.Shell == "bash" {
		c.Words = strings.Split(divided.ReplaceAllString(strings.Join(c.Words, "\n"), "$1"), "\n")
	}
	can := reference.Complete(app.Model, c.Words)
	var out strings.Builder
	if can.Names != nil {
		run(ctx, can.Names, kong.Writers(&out, io.Discard)) // without a daemon, there are none
		for name := range strings.Lines(out.String()) {
			if name = strings.TrimSpace(name); harmless.MatchString(name) {
				can.Words = append(can.Words, [2]string{name})
			}
		}
		out.Reset()
	}
	if can.Files {
		out.WriteString(":\n")
	}
	for _, word := range can.Words {
		rest, found := strings.CutPrefix(word[0], can.Begins)
		switch {
		case !found:
		case c.Shell == "zsh":
			fmt.Fprintln(&out, strings.ReplaceAll(word[0], ":", `\:`)+":"+word[1])
		case c.Shell == "fish":
			fmt.Fprintln(&out, last+rest+"\t"+word[1])
		default:
			fmt.Fprintln(&out, strings.TrimLeft(last, ":=")+rest)
		}
	}
	_, err := io.WriteString(app.Stdout, out.String())
	return err
}

type manCommand struct{}

// Run prints the manual page.
func (manCommand) Run(app *kong.Kong) error {
	return reference.Man(app.Stdout, app.Model, buildVersion())
}
