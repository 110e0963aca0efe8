package ctl

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/alecthomas/kong"
)

type contextCommand struct {
	List   listContexts  `cmd:"" help:"List the contexts. An asterisk marks the current one."`
	Use    useContext    `cmd:"" help:"Make a context the current one, which commands use by default."`
	Set    setContext    `cmd:"" help:"Create or change a context. The first one becomes the current one."`
	Delete deleteContext `cmd:"" help:"Delete a context. The files that it names remain."`
}

type listContexts struct{}

// Run prints the contexts. Files are named, and their contents are never printed.
func (listContexts) Run(o *Options, app *kong.Kong) error {
	all, err := loadSettings()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return err
	}
	t := newTable("CURRENT", "NAME", "URL", "TOKEN FILE", "CA", "CERT", "KEY")
	for _, name := range slices.Sorted(maps.Keys(all.Contexts)) {
		e, mark := all.Contexts[name], ""
		if name == all.Current {
			mark = "*"
		}
		t.addNamed(name, mark, name, e.URL, e.TokenFile, e.CA, e.Cert, e.Key)
	}
	s := o.local(app)
	if err := s.printTables(raw, t); err != nil {
		return err
	}
	return s.written()
}

type useContext struct {
	Name string `arg:"" help:"Name of the context."`
}

// Run stores the name of the current context.
func (u *useContext) Run() error {
	return editContext(u.Name, func(all *settings) { all.Current = u.Name })
}

// editContext changes the configuration file, which must have a context of this name.
func editContext(name string, change func(*settings)) error {
	all, err := loadSettings()
	if err != nil {
		return err
	}
	if _, err := all.find(name); err != nil {
		return err
	}
	change(&all)
	return all.save()
}

type setContext struct {
	Name string `arg:"" help:"Name of the context. Its values are those of --url, --token-file, --ca, --cert and --key; those that are not on the command line stay as they are."`
}

// Run stores the flags that are on the command line. It ignores the environment, which may be that of
// another daemon.
func (s *setContext) Run(o *Options, command *kong.Context) error {
	if err := validName(s.Name); err != nil {
		return usage("%w", err)
	}
	all, err := loadSettings()
	if err != nil {
		return err
	}
	e := all.Contexts[s.Name]
	values := map[string]struct{ from, to *string }{
		"url": {&o.URL, &e.URL}, "token-file": {&o.TokenFile, &e.TokenFile},
		"ca": {&o.CA, &e.CA}, "cert": {&o.Cert, &e.Cert}, "key": {&o.Key, &e.Key},
	}
	for _, part := range command.Path {
		if part.Flag == nil {
			continue
		}
		v, ok := values[part.Flag.Name]
		if !ok {
			continue
		}
		*v.to = *v.from
		if part.Flag.Name != "url" && *v.to != "" {
			if *v.to, err = filepath.Abs(*v.to); err != nil {
				return fmt.Errorf("--%s: %w", part.Flag.Name, err)
			}
		}
	}
	if e.URL == "" {
		return usage("context %q: --url is required", s.Name)
	}
	if _, err := (Access{entry: e}).connection(); err != nil {
		return err
	}
	all.Contexts[s.Name] = e
	all.Current = cmp.Or(all.Current, s.Name)
	return all.save()
}

type deleteContext struct {
	Name string `arg:"" help:"Name of the context."`
}

// Run removes the context from the configuration file.
func (d *deleteContext) Run() error {
	return editContext(d.Name, func(all *settings) {
		delete(all.Contexts, d.Name)
		if all.Current == d.Name {
			all.Current = ""
		}
	})
}
