package proposal

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// FilesOptions are what NewFiles needs.
type FilesOptions struct {
	// Evaluate returns what a change of the files would do, as [Evaluate] does.
	Evaluate func(p *resolver.Proposal, earlier ...*resolver.Proposal) *Outcome
	Guard    Guard
	// MaxRemoved is how many clusters one change of the files may remove; nil is
	// half of those that the files provide, at least 1.
	MaxRemoved *int
	// Pushed reports whether a resource was pushed, and covers that of the files; nil if none was.
	Pushed func(resource.Key) bool
	// InUse are the versions of the files that are in use at the start, with the values of
	// their items, and Directory is their directory.
	InUse     map[string]*files.Version
	Directory files.Identity
}

// Files decides which versions of resource files are in use. Its methods must not be
// called concurrently.
type Files struct {
	options   FilesOptions
	inUse     map[string]*files.Version      // by file; never changed, but replaced
	published map[resource.Key]resource.Item // those of the last Outcome
	directory files.Identity                 // of the last scan that could read it
	scan      *files.Scan                    // the last one that could read the directory
	away      *files.Bad                     // why the directory cannot be read
	over      time.Time                      // since when there are too many files
	twice     map[string]time.Time           // since when a file has a resource of another file
	held      []held
}

// NewFiles returns a Files that has not seen a scan.
func NewFiles(o FilesOptions) *Files {
	f := &Files{options: o, inUse: map[string]*files.Version{}, directory: o.Directory, scan: &files.Scan{}}
	maps.Copy(f.inUse, o.InUse)
	return f
}

// FilesOutcome is the result of a scan or a permission.
type FilesOutcome struct {
	// Set is what the files provide from now on.
	Set files.Set
	// Changed are the files whose version in use changed; nil for those that were removed.
	Changed   map[string]*files.Version
	Directory files.Identity
}

// Scanned handles a scan that was made now: it brings the changes into use that pass the
// guard.
func (f *Files) Scanned(scan *files.Scan, now time.Time) FilesOutcome {
	if scan.Err != nil {
		since := now
		if f.away != nil {
			since = f.away.Since
		}
		f.away = &files.Bad{File: files.Directory, Err: scan.Err, Since: since, Kept: len(f.inUse) > 0}
		return f.outcome(nil, now)
	}
	f.away, f.scan = nil, scan
	before := f.inUse
	f.adopt()
	f.decide(now)
	return f.outcome(before, now)
}

// adopt replaces restored versions by the same content of this scan, which has warnings,
// too.
func (f *Files) adopt() {
	f.inUse = maps.Clone(f.inUse)
	for name, v := range f.inUse {
		seen := f.scan.Files[name]
		if !v.Restored || seen == nil || seen.Sum != v.Sum {
			continue
		}
		if now := versionOf(seen); now != nil && now.Partial == v.Partial {
			f.inUse[name] = now
		}
	}
}

// decide brings the changes of the last scan into use, except those that are held.
func (f *Files) decide(now time.Time) {
	changes := f.changes()
	vanished := f.vanished()
	e := evaluation{files: f, changes: changes}
	if vanished && len(changes) > 0 {
		e.hold(slices.Collect(maps.Keys(changes)), fileLoss{reason: vanishedReason})
	} else {
		e.run()
	}
	f.inUse = e.versions()
	f.held = e.heldChanges(f.held, now)
	if len(f.held) == 0 || !vanished {
		f.directory = f.scan.Identity
	}
}

const vanishedReason = "the directory is another one than before, and holds no resource files: is its file system mounted?"

// vanished reports whether an empty directory replaced the one that the versions in use
// were read from: an unmounted file system uncovers the mount point.
func (f *Files) vanished() bool {
	return len(f.scan.Files) == 0 && len(f.inUse) > 0 && f.directory != files.Identity{} && f.directory != f.scan.Identity
}

// change is a file whose last scan differs from the version in use: from is nil for a new
// file, to for a removed one.
type change struct{ from, to *files.Version }

// changes returns those of the last scan that are not in use, by file. A bad or unreadable
// file changes nothing while there is a last good version of it.
func (f *Files) changes() map[string]change {
	out := map[string]change{}
	for name, seen := range f.scan.Files {
		from := f.inUse[name]
		to := versionOf(seen)
		switch {
		case to == nil:
		case from == nil:
			out[name] = change{to: to}
		case to.Partial && (!from.Partial || len(to.Items) == 0):
		case from.Sum != to.Sum || from.Partial != to.Partial:
			out[name] = change{from, to}
		}
	}
	for name, from := range f.inUse {
		if f.scan.Files[name] == nil {
			out[name] = change{from: from}
		}
	}
	return out
}

// versionOf returns the version that a file would bring into use; nil for none.
func versionOf(seen *files.File) *files.Version {
	v := &files.Version{Sum: seen.Sum, Modified: seen.Modified}
	switch {
	case seen.Bundle != nil:
		v.Items, v.Warnings, v.Notes = seen.Bundle.Items, seen.Bundle.Warnings, seen.Bundle.Notes
	case seen.Valid != nil:
		v.Items, v.Rejected, v.Partial = seen.Valid.Items, seen.Valid.Rejected, true
	default:
		return nil
	}
	return v
}

// Permit brings a held change into use. ok is false if no such change is held.
func (f *Files) Permit(hash string, now time.Time) (o FilesOutcome, permitted files.Held, ok bool) {
	n := slices.IndexFunc(f.held, func(h held) bool { return h.Hash == hash })
	if n < 0 {
		return o, permitted, false
	}
	permitted = f.held[n].Held
	before := f.inUse
	f.inUse = maps.Clone(before)
	for name, c := range f.held[n].changes {
		if f.inUse[name] = c.to; c.to == nil {
			delete(f.inUse, name)
		}
	}
	f.decide(now)
	return f.outcome(before, now), permitted, true
}

// outcome returns the versions in use. before are the earlier ones; nil for the same.
func (f *Files) outcome(before map[string]*files.Version, now time.Time) FilesOutcome {
	o := FilesOutcome{Directory: f.directory, Changed: map[string]*files.Version{}}
	if before != nil {
		for name, v := range f.inUse {
			if before[name] != v {
				o.Changed[name] = v
			}
		}
		for name := range before {
			if f.inUse[name] == nil {
				o.Changed[name] = nil
			}
		}
	}
	o.Set, f.published = f.set(now), union(f.inUse)
	return o
}

// set returns the resources of the versions in use, and the bad files.
func (f *Files) set(now time.Time) files.Set {
	s := files.Set{
		Resources: map[resource.Key]files.Resource{}, Rejected: map[resource.Key]files.Rejected{},
		Warnings: map[string][]decode.Problem{}, Notes: map[string][]decode.Problem{}, Empty: map[string][]decode.Problem{}, Sums: map[string]string{},
		Waits: map[string]time.Time{},
	}
	for _, h := range f.held {
		s.Held = append(s.Held, h.Held)
	}
	f.addDirectory(&s, now)
	stillTwice := map[string]time.Time{}
	known := slices.AppendSeq(slices.Collect(maps.Keys(f.inUse)), maps.Keys(f.scan.Files))
	slices.Sort(known)
	for _, name := range slices.Compact(known) {
		v := f.inUse[name]
		if seen := f.scan.Files[name]; seen != nil && !seen.Waits.IsZero() {
			s.Waits[name] = seen.Waits
		}
		f.addBad(&s, name, v)
		if v == nil {
			continue
		}
		s.Sums[name], s.Warnings[name], s.Notes[name], s.Empty[name] = v.Sum, v.Warnings, v.Notes, Check(v.Items)
		if err := addResources(&s, name, v); err != nil {
			since := f.twice[name]
			if since.IsZero() {
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

func (f *Files) addDirectory(s *files.Set, now time.Time) {
	switch {
	case f.away != nil:
		s.Bad = append(s.Bad, *f.away)
	case f.scan.Over == nil:
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

func (f *Files) addBad(s *files.Set, name string, v *files.Version) {
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
			problems = append(problems, decode.Problem{Resource: i.Key.String(), Field: i.Field, Reason: "ignored: duplicate of the resource in " + first.File})
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

// Changes returns the updates that lead from the resources of one set to those of another, by name.
func Changes(before, after *files.Set) []resource.Update {
	is, was := updates(after), updates(before)
	var changed []resource.Update
	for key, u := range is {
		if old, ok := was[key]; !ok || !slices.Equal(old.Raw, u.Raw) || fault.Text(old.Err) != fault.Text(u.Err) {
			changed = append(changed, u)
		}
	}
	for key := range was {
		if _, ok := is[key]; !ok {
			changed = append(changed, resource.Update{Item: resource.Item{Key: key}})
		}
	}
	slices.SortFunc(changed, func(a, b resource.Update) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return changed
}

// updates returns what a set is to the resolver.
func updates(set *files.Set) map[resource.Key]resource.Update {
	out := make(map[resource.Key]resource.Update, len(set.Resources)+len(set.Rejected))
	for key, r := range set.Resources {
		out[key] = resource.Update{Item: r.Item, Updated: r.Modified}
	}
	for key, r := range set.Rejected {
		out[key] = resource.Update{Item: resource.Item{Key: key}, Err: r.Err, Updated: r.Modified}
	}
	return out
}

// Restore returns the versions of an archive with the values of their items, and with the
// warnings about rules that are newer than they. o are the options of the decoder,
// without name and format. An item that the decoder rejects now has no value.
func Restore(versions map[string]*files.Version, o decode.Options) map[string]*files.Version {
	o.Format, o.Stored = decode.FormatProtobuf, true
	out := make(map[string]*files.Version, len(versions))
	for name, v := range versions {
		decoded := *v
		decoded.Items = make([]resource.Item, len(v.Items))
		for i, item := range v.Items {
			o.Name = item.Key.Name
			var warnings []decode.Problem
			decoded.Items[i], warnings, _ = decode.Item(item, o)
			decoded.Warnings = append(decoded.Warnings, warnings...)
		}
		out[name] = &decoded
	}
	return out
}
