package reference

import (
	"fmt"
	"io"
	"strings"
)

// Shells are the shells with completions.
var Shells = []string{"bash", "zsh", "fish"}

// scripts call lbd complete with the words of the command line up to the cursor. A line with a colon stands for files.
var scripts = map[string]string{
	"bash": `_NAME() {
	mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" complete bash "${COMP_WORDS[@]:0:COMP_CWORD+1}" 2>/dev/null </dev/null)
	if [[ ${COMPREPLY[0]-} == : ]]; then
		mapfile -t COMPREPLY < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]#=}")
	fi
}
complete -F _NAME NAME
`,
	"zsh": `_NAME() {
	local -a all
	all=("${(@f)$("${words[1]}" complete zsh "${(@)words[1,CURRENT]}" 2>/dev/null </dev/null)}")
	[[ $PREFIX == --*=* ]] && compset -P '*='
	if [[ ${all[1]} == : ]]; then
		_files
	elif [[ -n ${all[1]} ]]; then
		_describe value all
	fi
}
if [[ ${funcstack[1]} == _NAME ]]; then
	_NAME
else
	compdef _NAME NAME
fi
`,
	"fish": `function __NAME_complete
    set -l words (commandline -opc)
    set -l all ($words[1] complete fish $words (commandline -ct) 2>/dev/null </dev/null)
    if test "$all[1]" = :
        __fish_complete_path (string replace -r '^--[^=]*=' '' -- (commandline -ct))
    else
        printf '%s\n' $all
    end
end
complete -c NAME -f -a '(__NAME_complete)'
`,
}

// Completion writes the completions of a command line for one of Shells.
func Completion(w io.Writer, name, shell string) error {
	script, ok := scripts[shell]
	if !ok {
		return fmt.Errorf("shell %q: must be one of %s", shell, strings.Join(Shells, ", "))
	}
	head, load := "", "source <("+name+" completion "+shell+")"
	switch shell {
	case "zsh":
		head = "#compdef " + name + "\n"
	case "fish":
		load = name + " completion fish | source"
	}
	_, err := fmt.Fprintf(w, "%s# Completions of %s for %s. To load them: %s\n\n%s", head, name, shell, load, strings.ReplaceAll(script, "NAME", name))
	return err
}
