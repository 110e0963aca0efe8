package reference

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Candidates are what the last word of a command line can be.
type Candidates struct {
	// Begins is what there is of it: the last word, or the value in --flag=value.
	Begins string
	// Words are commands, flags or values, each with a sentence about it, which may be empty.
	Words [][2]string
	// Files means that it is the name of a file.
	Files bool
	// Names are the arguments with which lbd prints the names of a running daemon that it can be; nil for none.
	Names []string
}

// names are the commands of lbd ctl that print the names which an argument or a flag can have.
var names = map[string]string{
	"cluster": "get clusters", "target": "get targets", "endpoint": "get endpoints", "id": "overlays list", "context": "context list",
}

// access are the flags that say which daemon to ask.
var access = []string{"context", "url", "token-file", "ca", "cert", "key"}

// Complete returns the candidates for the last of the words of a command line, the first of which is that of the application.
func Complete(app *kong.Application, words []string) Candidates {
	all, last := commands(app), len(words)-1
	c, place := all[0], (*kong.Value)(nil)
	var arguments, to []string
	var out Candidates
	for i, word := range words[1:] {
		form, value, valued := strings.Cut(word, "=")
		if place != nil { // the word is the value of this flag
			form, value, valued = "--"+place.Name, word, true
		}
		at := slices.IndexFunc(c.flags, func(f *kong.Flag) bool { return takesValue(f) && slices.Contains(spellings(f), form) })
		child := slices.IndexFunc(all, func(other command) bool { return other.path == c.path+" "+word })
		place, out.Begins = nil, value
		switch {
		case at >= 0 && (i+1 == last) == valued:
			place = c.flags[at].Value
		case at >= 0 && valued && slices.Contains(access, c.flags[at].Name):
			to = append(to, "--"+c.flags[at].Name+"="+value)
		case at >= 0 && valued:
		case i+1 == last:
			out.Begins = word
		case child >= 0:
			c = all[child]
		default:
			arguments = append(arguments, word)
		}
	}
	var kind string
	switch positional := c.node.Positional; {
	case place != nil && place.Flag != nil:
		kind = place.Flag.PlaceHolder
	case strings.HasPrefix(out.Begins, "-"):
		for _, flag := range c.flags {
			for _, form := range spellings(flag) {
				out.Words = append(out.Words, [2]string{form, firstSentence(flag.Help)})
			}
		}
		return out
	case len(c.children) > 0:
		for _, child := range c.children {
			out.Words = append(out.Words, [2]string{child.Name, firstSentence(child.Help)})
		}
		return out
	case len(arguments) < len(positional) || len(positional) > 0 && positional[len(positional)-1].IsCumulative():
		place = positional[min(len(arguments), len(positional)-1)]
		kind = place.Name
	default:
		return out
	}
	for _, choice := range choices(place) {
		out.Words = append(out.Words, [2]string{choice})
	}
	out.Files = isFile(kind)
	if len(out.Words) == 0 && !out.Files {
		out.Names = c.names(place, to, arguments)
	}
	return out
}

// names returns the arguments with which lbd prints the names that a flag or an argument of a command of lbd ctl can have.
func (c command) names(place *kong.Value, to, arguments []string) []string {
	name := place.Name
	if name == "name" && strings.Contains(c.path, " ctl context ") {
		name = "context"
	}
	ask := strings.Fields(names[name])
	switch {
	case len(ask) == 0 || !strings.Contains(c.path+" ", " ctl ") && c.node.Name != "doctor":
		return nil
	case name == "endpoint" || name == "id":
		if len(arguments) == 0 {
			return nil
		}
		ask = append(ask, arguments[0])
	}
	return slices.Concat([]string{"ctl"}, to, ask, []string{"--output=name", "--timeout=800ms"})
}
