package service

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// FilesState is what the resource directory holds.
type FilesState struct {
	// Files are those with resources in use, and the bad ones, by name.
	Files []FileState `json:"files"`
}

// FileState is one file of the resource directory.
type FileState struct {
	File string `json:"file"`
	// Resources are those of the file that are known, in use or covered by
	// what was pushed.
	Resources []string `json:"resources"`
	// Error is why the file is bad; KeptLastGood tells whether what it held
	// before is in use.
	Error        string     `json:"error,omitempty"`
	Errors       []Problem  `json:"errors,omitempty"`
	Since        *time.Time `json:"since,omitempty"`
	KeptLastGood bool       `json:"kept_last_good,omitempty"`
	Warnings     []Problem  `json:"warnings,omitempty"`
	// Notes are what was filled in because it is absent in the file.
	Notes []Problem `json:"notes,omitempty"`
}

// FilesChanged lets the trees follow the resource directory. The watcher calls
// it, one call after another.
func (s *Service) FilesChanged(set files.Set) {
	before := s.files.Swap(&set)
	if before == nil {
		before = &files.Set{}
	}
	var updates []resolver.Update
	for key, r := range set.Resources {
		if old, ok := before.Resources[key]; !ok || !slices.Equal(old.Raw, r.Raw) {
			updates = append(updates, resolver.Update{Item: r.Item, Updated: r.Modified})
		}
	}
	for key := range before.Resources {
		if _, ok := set.Resources[key]; !ok {
			updates = append(updates, resolver.Update{Item: resource.Item{Key: key}})
		}
	}
	s.resolve(resource.SourceFile, updates, nil)
	s.tellFiles(before, &set)
}

// tellFiles remembers and logs the files that became bad or good.
func (s *Service) tellFiles(before, after *files.Set) {
	bad := func(set *files.Set) map[string]string {
		m := make(map[string]string, len(set.Bad))
		for _, b := range set.Bad {
			m[b.File] += b.Err.Error()
		}
		return m
	}
	was, is := bad(before), bad(after)
	for _, file := range slices.Sorted(maps.Keys(is)) {
		if was[file] == is[file] {
			continue
		}
		s.events.add(Event{Type: EventFileRefused, File: file, Error: is[file], Says: "a resource file was refused; what it held before stays"})
		s.options.Logger.Warn("resource file refused", "file", file, "error", is[file])
	}
	for _, file := range slices.Sorted(maps.Keys(was)) {
		if _, still := is[file]; still {
			continue
		}
		s.events.add(Event{Type: EventFileAccepted, File: file, Says: "a resource file is good again, or gone"})
		s.options.Logger.Info("resource file accepted", "file", file)
	}
}

// Files tells what the resource directory holds.
func (s *Service) Files() FilesState {
	byName := make(map[string]*FileState)
	get := func(name string) *FileState {
		if byName[name] == nil {
			byName[name] = &FileState{File: name, Resources: []string{}}
		}
		return byName[name]
	}
	if set := s.files.Load(); set != nil {
		for key, r := range set.Resources {
			f := get(r.File)
			f.Resources = append(f.Resources, key.String())
		}
		for name, warnings := range set.Warnings {
			get(name).Warnings = warnings
		}
		for name, notes := range set.Notes {
			get(name).Notes = notes
		}
		for _, b := range set.Bad {
			f := get(b.File)
			f.Error, f.KeptLastGood = b.Err.Error(), b.Kept
			f.Since = optional(b.Since)
			if invalid, ok := errors.AsType[*resource.InvalidError](b.Err); ok {
				f.Errors = append(f.Errors, invalid.Problems...)
			}
		}
	}
	out := FilesState{Files: []FileState{}}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		slices.Sort(byName[name].Resources)
		out.Files = append(out.Files, *byName[name])
	}
	return out
}
