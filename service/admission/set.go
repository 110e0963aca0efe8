package admission

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
)

// set returns the resources of the versions in use, and the bad files.
func (f *Files) set(now time.Time) files.Set {
	s := files.Set{
		Resources: map[resource.Key]files.Resource{}, Rejected: map[resource.Key]files.Rejected{}, Held: f.Held(),
		Warnings: map[string][]decode.Problem{}, Notes: map[string][]decode.Problem{}, Empty: map[string][]decode.Problem{}, Sums: map[string]string{},
	}
	f.addDirectory(&s, now)
	known := map[string]bool{}
	for name := range f.inUse {
		known[name] = true
	}
	if f.scan != nil {
		for name := range f.scan.Files {
			known[name] = true
		}
	}
	stillTwice := map[string]time.Time{}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		v := f.inUse[name]
		f.addBad(&s, name, v)
		if v == nil {
			continue
		}
		s.Sums[name] = v.Sum
		if len(v.Warnings) > 0 {
			s.Warnings[name] = v.Warnings
		}
		if len(v.Notes) > 0 {
			s.Notes[name] = v.Notes
		}
		if empty := Check(v.Items); len(empty) > 0 {
			s.Empty[name] = empty
		}
		if err := addResources(&s, name, v); err != nil {
			since, ok := f.twice[name]
			if !ok {
				since = now
			}
			stillTwice[name] = since
			s.Bad = append(s.Bad, files.Bad{File: name, Err: err, Since: since, Twice: true})
		}
	}
	f.twice = stillTwice
	f.addRejected(&s)
	return s
}

// addDirectory adds the faults of the directory itself.
func (f *Files) addDirectory(s *files.Set, now time.Time) {
	switch {
	case f.away != nil:
		s.Bad = append(s.Bad, *f.away)
	case f.scan == nil || f.scan.Over == nil:
		f.over = time.Time{}
	default:
		if f.over.IsZero() {
			f.over = now
		}
		kept := slices.ContainsFunc(slices.Collect(maps.Keys(f.inUse)), func(name string) bool {
			seen := f.scan.Files[name]
			return seen != nil && seen.Sum == ""
		})
		s.Bad = append(s.Bad, files.Bad{File: files.Directory, Err: f.scan.Over, Since: f.over, Kept: kept})
	}
}

// addBad adds why the file of that name is bad, if it is.
func (f *Files) addBad(s *files.Set, name string, v *files.Version) {
	if f.scan == nil {
		return
	}
	seen := f.scan.Files[name]
	if seen == nil || seen.Err == nil {
		return
	}
	partial := v != nil && v.Partial && v.Sum == seen.Sum
	s.Bad = append(s.Bad, files.Bad{File: name, Err: seen.Err, Since: seen.Since, Kept: v != nil && !partial, Partial: partial && len(v.Items) > 0})
}

// addRejected adds the Clusters that have only rejected versions.
func (f *Files) addRejected(s *files.Set) {
	for _, name := range slices.Sorted(maps.Keys(f.inUse)) {
		v := f.inUse[name]
		for _, r := range v.Rejected {
			_, good := s.Resources[r.Key]
			if _, twice := s.Rejected[r.Key]; good || twice {
				continue
			}
			s.Rejected[r.Key] = files.Rejected{Err: fmt.Errorf("%s of the file %s is rejected: %s", r.Key, name, r.Why), Modified: v.Modified}
		}
	}
}

// addResources adds the resources of a version, and rejects those that another file has.
func addResources(s *files.Set, name string, v *files.Version) error {
	var problems []decode.Problem
	more := 0
	for _, i := range v.Items {
		first, twice := s.Resources[i.Key]
		switch {
		case !twice:
			s.Resources[i.Key] = files.Resource{Item: i, File: name, Modified: v.Modified}
		case len(problems) == decode.MaxProblems:
			more++
		default:
			problems = append(problems, decode.Problem{
				Resource: i.Key.String(),
				Field:    i.Field,
				Reason:   fmt.Sprintf("ignored: duplicate of the resource in %s", first.File),
			})
		}
	}
	if more > 0 {
		problems = append(problems, decode.Problem{Resource: problems[0].Resource, Reason: fmt.Sprintf("and %d more like these", more)})
	}
	if problems == nil {
		return nil
	}
	return &decode.InvalidError{Problems: problems}
}
