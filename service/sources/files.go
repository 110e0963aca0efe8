package sources

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
)

// FileCondition is the condition of a resource file.
type FileCondition string

// The conditions of files.
const (
	FileGood FileCondition = "good"
	// FileBad: the file is invalid, cannot be read, or is covered by another.
	FileBad FileCondition = "bad"
	// FileHeld: the file is good, and its change waits for the operator's decision.
	FileHeld FileCondition = "held"
)

// FilesState is the state of the resource directory.
type FilesState struct {
	// Files are those with resources in use, and the bad, held and waiting ones, by name.
	Files []FileState `json:"files"`
	// Held are the changes that wait for the operator's decision, the oldest first.
	Held []files.Held `json:"held"`
	// NotInForce are resources that were changed or removed, also by a push, and that picks do not use as they are
	// now: until all that they lead to is known.
	NotInForce []fault.Problem `json:"not_in_force,omitempty"`
}

// FileState is one file of the resource directory.
type FileState struct {
	File string `json:"file"`
	// State is bad if the file is invalid, cannot be read or is covered by another, and
	// held if its change waits for a decision.
	State FileCondition `json:"state" enums:"good,bad,held"`
	// Resources are those of the file that are known, in use or covered by
	// what was pushed.
	Resources []string `json:"resources"`
	// SHA256 is the sum of the content in use.
	SHA256 string `json:"sha256,omitempty"`
	// Held is the hash of the change that holds the file.
	Held string `json:"held,omitempty"`
	// Error is why the file is bad.
	Error  string          `json:"error,omitempty"`
	Errors []fault.Problem `json:"errors,omitempty"`
	Since  *time.Time      `json:"since,omitempty"`
	// WaitingSince is since when a change of the file waits: a program has the file open for
	// writing, or may not have finished it.
	WaitingSince *time.Time `json:"waiting_since,omitempty"`
	// KeptLastGood is true if the earlier content of the bad file is in use.
	KeptLastGood bool `json:"kept_last_good,omitempty"`
	// Partial is true if the valid resources of the bad file are in use, because no
	// earlier content is known.
	Partial  bool            `json:"partial,omitempty"`
	Warnings []fault.Problem `json:"warnings,omitempty"`
	// Notes are the values that were filled in because they are absent in the file.
	Notes []fault.Problem `json:"notes,omitempty"`
}

// Files returns the state of the resource directory.
func (f *resourceFiles) Files() FilesState {
	byName := make(map[string]*FileState)
	get := func(name string) *FileState {
		if byName[name] == nil {
			byName[name] = &FileState{File: name, State: FileGood, Resources: []string{}}
		}
		return byName[name]
	}
	set := f.set()
	out := FilesState{Files: []FileState{}, Held: append([]files.Held{}, set.Held...), NotInForce: f.notInForce()}
	for key, r := range set.Resources {
		file := get(r.File)
		file.Resources = append(file.Resources, key.String())
	}
	for name, sum := range set.Sums {
		file := get(name)
		file.SHA256, file.Notes = sum, set.Notes[name]
		file.Warnings = slices.Concat(set.Empty[name], f.judged(set.Warnings[name], nil))
	}
	for _, h := range set.Held {
		for _, c := range h.Files {
			file := get(c.File)
			file.State, file.Held = FileHeld, h.Hash
		}
	}
	for name, since := range set.Waits {
		get(name).WaitingSince = observe.Optional(since)
	}
	for _, b := range set.Bad {
		get(b.File).addBad(b)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		slices.Sort(byName[name].Resources)
		out.Files = append(out.Files, *byName[name])
	}
	return out
}

func (f *FileState) addBad(b files.Bad) {
	f.State, f.Error, f.KeptLastGood, f.Partial = FileBad, b.Err.Error(), b.Kept, b.Partial
	f.Since = observe.Optional(b.Since)
	if invalid, ok := errors.AsType[*decode.InvalidError](b.Err); ok {
		f.Errors = append(f.Errors, invalid.Problems...)
	}
}
