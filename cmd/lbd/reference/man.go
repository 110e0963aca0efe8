package reference

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Man writes the manual page of a command line, section 1, in roff with the man macros.
func Man(w io.Writer, app *kong.Application, version string) error {
	var b strings.Builder
	all := commands(app)
	fmt.Fprintf(&b, ".TH %s 1 \"\" %s\n", roff(strings.ToUpper(app.Name)), macro(app.Name+" "+version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(app.Name), roff(firstSentence(app.Help)))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n[\\fICOMMAND\\fR] [\\fIFLAGS\\fR]\n", roff(app.Name))
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", roff(app.Help))
	b.WriteString(".SH COMMANDS\n")
	variables := map[string]string{}
	for _, c := range all {
		if c.node.Type == kong.ApplicationNode {
			b.WriteString("Flags of every command:\n")
		} else {
			fmt.Fprintf(&b, ".SS %s\n%s\n", macro(synopsis(c)), roff(c.node.Help))
			if c.node.Detail != "" {
				fmt.Fprintf(&b, ".PP\n%s\n", roff(c.node.Detail))
			}
			for _, argument := range c.node.Positional {
				fmt.Fprintf(&b, ".TP\n\\fI%s\\fR\n%s\n", roff(strings.ToUpper(argument.Name)), roff(argument.Help))
			}
		}
		for _, flag := range c.node.Flags {
			if flag.Hidden {
				continue
			}
			fmt.Fprintf(&b, ".TP\n%s\n%s\n", spelled(flag), roff(flag.Help))
			for _, v := range flag.Envs {
				variables[v] = strings.TrimPrefix(c.path+" --"+flag.Name, app.Name+" ")
				fmt.Fprintf(&b, "Variable: \\fB%s\\fR.\n", roff(v))
			}
		}
	}
	b.WriteString(".SH ENVIRONMENT\nFlags on the command line take precedence over these variables.\n")
	for _, v := range slices.Sorted(maps.Keys(variables)) {
		fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(v), roff(variables[v]))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// synopsis returns the form of a command: lbd ctl get endpoints CLUSTER.
func synopsis(c command) string {
	words := []string{c.path}
	for _, argument := range c.node.Positional {
		word := strings.ToUpper(argument.Name)
		if argument.IsCumulative() {
			word += "..."
		}
		if !argument.Required {
			word = "[" + word + "]"
		}
		words = append(words, word)
	}
	if len(c.children) > 0 {
		words = append(words, "COMMAND")
	}
	return strings.Join(words, " ")
}

// spelled returns the forms of a flag in bold, with its value in italics.
func spelled(flag *kong.Flag) string {
	forms := spellings(flag)
	slices.Reverse(forms)
	for i, form := range forms {
		forms[i] = `\fB` + roff(form) + `\fR`
	}
	line := strings.Join(forms, ", ")
	if takesValue(flag) {
		line += `=\fI` + roff(flag.FormatPlaceHolder()) + `\fR`
	}
	return line
}

// roff escapes a text. Hyphens of flags are minus signs, so that they can be copied.
func roff(s string) string {
	var b strings.Builder
	for i, r := range strings.TrimSpace(s) {
		switch {
		case i == 0 && (r == '.' || r == '\''):
			b.WriteString(`\&` + string(r))
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '\n':
			b.WriteString("\n.br\n")
		case r == '…':
			b.WriteString("...")
		case r > '~':
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// macro returns a text as one argument of a macro.
func macro(s string) string { return `"` + strings.ReplaceAll(roff(s), `"`, `""`) + `"` }
