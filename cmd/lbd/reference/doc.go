// Package reference writes shell completions and the manual page of a command line from its kong
// model, so that they have exactly the commands and flags that it has.
package reference

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// command is a command of the model that can be completed.
type command struct {
	path     string // "lbd ctl get"
	node     *kong.Node
	children []*kong.Node
	flags    []*kong.Flag // those of its parents included
}

// commands returns all commands of a model, in the order of the model, the application first.
func commands(app *kong.Application) []command {
	var all []command
	var add func(node *kong.Node, path string)
	add = func(node *kong.Node, path string) {
		c := command{path: path, node: node}
		for _, group := range node.AllFlags(true) {
			c.flags = append(c.flags, group...)
		}
		for _, child := range node.Children {
			if child.Type == kong.CommandNode && !child.Hidden {
				c.children = append(c.children, child)
			}
		}
		if standard := node.DefaultCmd; standard != nil { // its flags need no command
			for _, flag := range standard.Flags {
				if !flag.Hidden && !slices.Contains(c.flags, flag) {
					c.flags = append(c.flags, flag)
				}
			}
		}
		all = append(all, c)
		for _, child := range c.children {
			add(child, path+" "+child.Name)
		}
	}
	add(app.Node, app.Name)
	return all
}

// spellings returns the forms of a flag: --output and -o.
func spellings(flag *kong.Flag) []string {
	forms := []string{"--" + flag.Name}
	if flag.Short != 0 {
		forms = append(forms, "-"+string(flag.Short))
	}
	return forms
}

func takesValue(flag *kong.Flag) bool { return !flag.IsBool() && !flag.IsCounter() }

// choices returns the values that an argument or a flag can have, if they are listed.
func choices(value *kong.Value) []string {
	if value.Enum == "" {
		return nil
	}
	var all []string
	for one := range strings.SplitSeq(value.Enum, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, one)
		}
	}
	return all
}

// isFile reports whether a flag or an argument is the name of a file or directory.
func isFile(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "file") || strings.HasPrefix(name, "dir")
}

// firstSentence returns the beginning of a help text, in one line.
func firstSentence(help string) string {
	help = strings.Join(strings.Fields(help), " ")
	if first, _, more := strings.Cut(help, ". "); more {
		return first
	}
	return strings.TrimSuffix(help, ".")
}
