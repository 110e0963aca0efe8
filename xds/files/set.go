package files

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Set is what the directory holds, at one moment. It is shared by all who read
// it, and must not be changed.
type Set struct {
	Resources map[resource.Key]Resource
	// Bad are the files that hold what is not in use, in the order of their
	// names.
	Bad []Bad
	// Warnings and Notes are those of the files that were accepted, by File.
	Warnings, Notes map[string][]resource.Problem
}

// Resource is one resource in use.
type Resource struct {
	resource.Item
	// File is the name of the file in the directory.
	File string
	// Modified is the time of the file's last modification when its content
	// was last seen to be another.
	Modified time.Time
}

// Directory is the File of a Bad that is about the directory itself.
const Directory = "."

// Bad is one fault of a file. A file can have two: its content is bad, and of what
// it held before another file holds the same Key.
type Bad struct {
	// File is the name of the file in the directory, or Directory.
	File string
	// Err is a *resource.SyntaxError, a *resource.InvalidError, or what the
	// system said when the file was read.
	Err error
	// Since is when the fault was first seen; it may have changed its words
	// since then.
	Since time.Time
	// Kept is true where what the file held before is in use.
	Kept bool

	twice bool // it is about a Key that another file holds
}

// build makes the Set of what the files hold. prev is the one before.
func build(files map[string]*file, directory *Bad, prev *Set, now time.Time) *Set {
	s := &Set{Resources: map[resource.Key]Resource{}, Warnings: map[string][]resource.Problem{}, Notes: map[string][]resource.Problem{}}
	if directory != nil {
		s.Bad = append(s.Bad, *directory)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		if f.err != nil {
			s.Bad = append(s.Bad, Bad{File: name, Err: f.err, Since: f.since, Kept: f.good != nil})
		}
		if f.good == nil {
			continue
		}
		if f.err == nil && len(f.good.Warnings) > 0 {
			s.Warnings[name] = f.good.Warnings
		}
		if f.err == nil && len(f.good.Notes) > 0 {
			s.Notes[name] = f.good.Notes
		}
		if twice := s.add(name, f); twice != nil {
			s.Bad = append(s.Bad, Bad{File: name, Err: twice, Since: prev.twiceSince(name, now), twice: true})
		}
	}
	return s
}

// add adds what a file holds, and refuses what is there already.
func (s *Set) add(name string, f *file) error {
	var problems []resource.Problem
	more := 0
	for _, i := range f.good.Items {
		first, twice := s.Resources[i.Key]
		switch {
		case !twice:
			s.Resources[i.Key] = Resource{Item: i, File: name, Modified: f.modified}
		case len(problems) == resource.MaxProblems:
			more++
		default:
			problems = append(problems, resource.Problem{
				Resource: i.Key.String(),
				Field:    i.Field,
				Reason:   fmt.Sprintf("is not used: %s, which comes first by name, holds it too", first.File),
			})
		}
	}
	if more > 0 {
		problems = append(problems, resource.Problem{
			Resource: problems[0].Resource,
			Reason:   fmt.Sprintf("and %d more like these", more),
		})
	}
	if problems == nil {
		return nil
	}
	return &resource.InvalidError{Problems: problems}
}

// twiceSince is when a file was first seen to hold what another holds.
func (s *Set) twiceSince(name string, now time.Time) time.Time {
	for _, b := range s.Bad {
		if b.twice && b.File == name {
			return b.Since
		}
	}
	return now
}

// same reports whether two sets hold the same.
func (s *Set) same(o *Set) bool {
	return maps.EqualFunc(s.Resources, o.Resources, func(a, b Resource) bool {
		return a.File == b.File && a.Modified.Equal(b.Modified) && string(a.Raw) == string(b.Raw)
	}) && slices.EqualFunc(s.Bad, o.Bad, func(a, b Bad) bool {
		return a.File == b.File && a.Kept == b.Kept && a.Err.Error() == b.Err.Error()
	}) && reflect.DeepEqual(s.Warnings, o.Warnings) && reflect.DeepEqual(s.Notes, o.Notes)
}
