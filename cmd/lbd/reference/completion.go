package reference

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Shells are the shells with completions.
var Shells = []string{"bash", "zsh", "fish"}

// Completion writes the completions of a command line for one of Shells.
func Completion(w io.Writer, app *kong.Application, shell string) error {
	scripts := map[string]func(string, []command) string{"bash": bash, "zsh": zsh, "fish": fish}
	script, ok := scripts[shell]
	if !ok {
		return fmt.Errorf("shell %q: must be one of %s", shell, strings.Join(Shells, ", "))
	}
	_, err := io.WriteString(w, script(app.Name, commands(app)))
	return err
}

// quote returns a word for any of the shells.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// posix is how bash or zsh completes. Both have the same functions, of cases for the path of a command.
type posix struct {
	path string // the variable with the path of the command
	// described returns a word, and its description if the shell shows one.
	described func(form, help string) string
	array     func(words []string) string
	list      func(words []string) string // the action that completes one of these words
	files     string                      // the action that completes the name of a file
}

// words writes the case that sets the subcommands and the flags of a command.
func (p *posix) words(b *strings.Builder, all []command) {
	fmt.Fprintf(b, "\tcase %s in\n", p.path)
	for _, c := range all {
		var names, flags, valued []string
		for _, child := range c.children {
			names = append(names, p.described(child.Name, child.Help))
		}
		for _, flag := range c.flags {
			for _, form := range spellings(flag) {
				flags = append(flags, p.described(form, flag.Help))
				if takesValue(flag) {
					valued = append(valued, form)
				}
			}
		}
		fmt.Fprintf(b, "\t%s)\n\t\tcommands=%s\n\t\tflags=%s\n\t\tvalued=%s\n\t\t;;\n", quote(c.path), p.array(names), p.array(flags), p.array(valued))
	}
	b.WriteString("\tesac\n")
}

// values writes the case for flags that take a value: what completes it.
func (p *posix) values(b *strings.Builder, all []command) {
	fmt.Fprintf(b, "\tif [[ -n $flag ]]; then\n\tcase %s in\n", p.path)
	for _, c := range all {
		fmt.Fprintf(b, "\t%s)\n\t\tcase $flag in\n", quote(c.path))
		for _, flag := range c.flags {
			if !takesValue(flag) {
				continue
			}
			action := ":"
			switch {
			case choices(flag.Value) != nil:
				action = p.list(choices(flag.Value))
			case isFile(flag.PlaceHolder):
				action = p.files
			}
			fmt.Fprintf(b, "\t\t%s) %s; return ;;\n", strings.Join(spellings(flag), " | "), action)
		}
		b.WriteString("\t\tesac\n\t\t;;\n")
	}
	b.WriteString("\tesac\n\tfi\n")
}

// arguments writes the case for commands with positional arguments that can be completed.
func (p *posix) arguments(b *strings.Builder, all []command) {
	fmt.Fprintf(b, "\tcase %s in\n", p.path)
	for _, c := range all {
		if action := argument(c, p.list, p.files); action != "" {
			fmt.Fprintf(b, "\t%s) %s ;;\n", quote(c.path), action)
		}
	}
	b.WriteString("\tesac\n")
}

// argument returns what completes the positional arguments of a command.
func argument(c command, list func([]string) string, files string) string {
	for _, value := range c.node.Positional {
		if all := choices(value); all != nil {
			return list(all)
		}
		if isFile(value.Name) {
			return files
		}
	}
	return ""
}

func bash(name string, all []command) string {
	p := posix{
		path:      "$path",
		described: func(form, _ string) string { return form },
		array:     func(words []string) string { return quote(strings.Join(words, " ")) },
		list: func(words []string) string {
			return "mapfile -t COMPREPLY < <(compgen -W " + quote(strings.Join(words, " ")) + ` -- "$current")`
		},
		files: `mapfile -t COMPREPLY < <(compgen -f -- "$current")`,
	}
	function := "_" + name + "_words"
	var b strings.Builder
	fmt.Fprintf(&b, "# Completions of %[1]s for bash. To load them: source <(%[1]s completion bash)\n\n", name)
	fmt.Fprintf(&b, "%s() {\n", function)
	p.words(&b, all)
	fmt.Fprintf(&b, "}\n\n_%s() {\n", name)
	fmt.Fprintf(&b, `	local path=%s current=${COMP_WORDS[COMP_CWORD]} flag='' word commands flags valued i
	COMPREPLY=()
	%s
	for ((i = 1; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if [[ $word == = ]]; then
			continue
		elif [[ -n $flag ]]; then
			flag=''
		elif [[ " $valued " == *" $word "* ]]; then
			flag=$word
		elif [[ " $commands " == *" $word "* ]]; then
			path+=" $word"
			%s
		fi
	done
	[[ $current == = ]] && current=''
`, quote(name), function, function)
	p.values(&b, all)
	b.WriteString("\tif [[ $current == -* ]]; then\n\t\tmapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$current\")\n\t\treturn\n\tfi\n")
	b.WriteString("\tif [[ -n $commands ]]; then\n\t\tmapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$current\")\n\t\treturn\n\tfi\n")
	p.arguments(&b, all)
	fmt.Fprintf(&b, "}\n\ncomplete -F _%s %s\n", name, name)
	return b.String()
}

func zsh(name string, all []command) string {
	p := posix{
		path: "$command_path",
		described: func(form, help string) string {
			return quote(strings.ReplaceAll(form, ":", `\:`) + ":" + firstSentence(help))
		},
		array: func(words []string) string { return "(" + strings.Join(words, " ") + ")" },
		list:  func(words []string) string { return "compadd -- " + strings.Join(words, " ") },
		files: "_files",
	}
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %[1]s\n# Completions of %[1]s for zsh. To load them: source <(%[1]s completion zsh)\n\n_%[1]s_words() {\n", name)
	p.words(&b, all)
	fmt.Fprintf(&b, `}

_%[1]s() {
	local command_path=%[2]s flag='' word i
	local -a commands flags valued
	_%[1]s_words
	for ((i = 2; i < CURRENT; i++)); do
		word=${words[i]}
		if [[ -n $flag ]]; then
			flag=''
		elif ((${valued[(Ie)$word]})); then
			flag=$word
		elif [[ -n ${commands[(r)$word:*]} ]]; then
			command_path+=" $word"
			_%[1]s_words
		fi
	done
	if [[ -z $flag && $PREFIX == --*=* ]]; then
		flag=${PREFIX%%%%=*}
		compset -P '*='
	fi
`, name, quote(name))
	p.values(&b, all)
	b.WriteString("\tif [[ $PREFIX == -* ]]; then\n\t\t_describe flag flags\n\t\treturn\n\tfi\n")
	b.WriteString("\tif ((${#commands})); then\n\t\t_describe command commands\n\t\treturn\n\tfi\n")
	p.arguments(&b, all)
	fmt.Fprintf(&b, "}\n\nif [[ ${funcstack[1]} == _%[1]s ]]; then\n\t_%[1]s\nelse\n\tcompdef _%[1]s %[1]s\nfi\n", name)
	return b.String()
}

func fish(name string, all []command) string {
	quote := func(s string) string { // fish has other rules
		return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
	}
	var b strings.Builder
	var paths, valued []string
	for _, c := range all {
		paths = append(paths, quote(c.path))
		for _, flag := range c.flags {
			if takesValue(flag) {
				for _, form := range spellings(flag) {
					valued = append(valued, quote(c.path+" "+form))
				}
			}
		}
	}
	fmt.Fprintf(&b, `# Completions of %[1]s for fish. To load them: %[1]s completion fish | source

set -g __%[1]s_commands %[2]s
set -g __%[1]s_valued %[3]s

function __%[1]s_at
    set -l path %[1]s
    set -l value no
    for word in (commandline -opc)[2..]
        if test $value = yes
            set value no
        else if contains -- "$path $word" $__%[1]s_valued
            set value yes
        else if contains -- "$path $word" $__%[1]s_commands
            set path "$path $word"
        end
    end
    test "$path" = "$argv[1]"
end

complete -c %[1]s -f
`, name, strings.Join(paths, " "), strings.Join(valued, " "))
	for _, c := range all {
		at := fmt.Sprintf("complete -c %s -n %s", name, quote("__"+name+"_at "+quote(c.path)))
		for _, child := range c.children {
			fmt.Fprintf(&b, "%s -a %s -d %s\n", at, quote(child.Name), quote(firstSentence(child.Help)))
		}
		for _, flag := range c.flags {
			fmt.Fprintf(&b, "%s -l %s", at, flag.Name)
			if flag.Short != 0 {
				fmt.Fprintf(&b, " -s %c", flag.Short)
			}
			switch {
			case !takesValue(flag):
			case choices(flag.Value) != nil:
				fmt.Fprintf(&b, " -x -a %s", quote(strings.Join(choices(flag.Value), " ")))
			case isFile(flag.PlaceHolder):
				b.WriteString(" -r -F")
			default:
				b.WriteString(" -x")
			}
			fmt.Fprintf(&b, " -d %s\n", quote(firstSentence(flag.Help)))
		}
		list := func(words []string) string { return "-a " + quote(strings.Join(words, " ")) }
		if action := argument(c, list, "-F"); action != "" && len(c.children) == 0 {
			fmt.Fprintf(&b, "%s %s\n", at, action)
		}
	}
	return b.String()
}
