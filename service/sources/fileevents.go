package sources

import (
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/files"
)

// report logs what changed in the resource files, and adds events: the resources in
// use, bad files, held changes.
func (f *resourceFiles) report(before, after *files.Set, vs difference.Versions) {
	f.reportChanged(before, after, vs)
	f.reportBad(before, after)
	f.reportHeld(before, after)
	f.reportEmpty(before, after)
}

// reportChanged adds one event for all resources that changed.
func (f *resourceFiles) reportChanged(before, after *files.Set, vs difference.Versions) {
	from := map[string]bool{}
	for _, v := range vs {
		from[before.Resources[v.After.Key].File] = true
		from[after.Resources[v.After.Key].File] = true
	}
	delete(from, "") // of a resource that is added or removed
	e := observe.Event{Type: observe.EventFileChanged}
	if len(from) == 1 {
		for e.File = range from {
		}
	}
	f.addChanges(e, vs)
}

// badFile is what is wrong with a file, and which of its resources are in use.
type badFile struct{ err, inUse string }

func badFiles(set *files.Set) map[string]badFile {
	out := make(map[string]badFile, len(set.Bad))
	for _, b := range set.Bad {
		is := badFile{b.Err.Error(), inUse(b)}
		if first, twice := out[b.File]; twice {
			is.err = first.err + "; " + is.err
		}
		out[b.File] = is
	}
	return out
}

// inUse describes which content of a bad file is in use.
func inUse(b files.Bad) string {
	switch {
	case b.Kept:
		return "its last good content stays in use"
	case b.Partial:
		return "no earlier content is known: its valid resources are in use"
	case b.Twice:
		return "the other file's is in use"
	default:
		return "none of its resources are in use"
	}
}

// reportBad reports the files that became bad or good.
func (f *resourceFiles) reportBad(before, after *files.Set) {
	was, is := badFiles(before), badFiles(after)
	for _, file := range slices.Sorted(maps.Keys(is)) {
		if bad := is[file]; was[file].err != bad.err {
			f.Events.Add(observe.Event{Type: observe.EventFileRefused, File: file, Error: bad.err, Says: "a resource file is bad: " + bad.inUse})
			f.Logger.Error("resource file is bad", "file", file, "meanwhile", bad.inUse, "error", bad.err)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(was)) {
		if _, still := is[file]; !still && !isHeld(after, file) {
			f.Events.Add(observe.Event{Type: observe.EventFileAccepted, File: file, Says: "a resource file is good again, or was removed"})
			f.Logger.Info("resource file accepted", "file", file)
		}
	}
}

// isHeld reports whether a change of the file is held.
func isHeld(set *files.Set, file string) bool {
	return slices.ContainsFunc(set.Held, func(h files.Held) bool {
		return slices.ContainsFunc(h.Files, func(c files.FileChange) bool { return c.File == file })
	})
}

// reportHeld reports the changes that are held now and were not, or the reverse.
func (f *resourceFiles) reportHeld(before, after *files.Set) {
	for _, h := range newlyHeld(before, after) {
		why := strings.Join(h.Reasons, "; ")
		e := observe.Event{
			Type: observe.EventChangeHeld, Hash: h.Hash, File: fileNames(h), Reason: why,
			Says: "a change of resource files is held, and the last good version stays in use: " + why,
		}
		if len(h.Clusters) == 1 {
			e.Cluster = h.Clusters[0]
		}
		f.Events.Add(e)
		f.Logger.Error("a change of resource files is held: the last good version stays in use until the files are corrected or exactly this change is permitted",
			"files", fileNames(h), "reason", why, "hash", h.Hash, "permit", "POST "+PermitPath(h.Hash))
	}
	for _, h := range newlyHeld(after, before) {
		f.Logger.Info("a change of resource files is no longer held", "files", fileNames(h), "hash", h.Hash)
	}
}

// newlyHeld returns the changes that are held after and not before.
func newlyHeld(before, after *files.Set) []files.Held {
	return slices.DeleteFunc(slices.Clone(after.Held), func(h files.Held) bool {
		return slices.ContainsFunc(before.Held, func(b files.Held) bool { return b.Hash == h.Hash })
	})
}

// reportPermitted reports an operator's permission.
func (f *resourceFiles) reportPermitted(h files.Held, by string) {
	f.Events.Add(observe.Event{
		Type: observe.EventChangePermitted, Hash: h.Hash, File: fileNames(h), By: by,
		Says: "a held change of resource files was permitted: " + strings.Join(h.Reasons, "; "),
	})
	f.Logger.Warn("a held change of resource files was permitted", "files", fileNames(h), "hash", h.Hash, "by", by)
}

// reportEmpty logs the clusters that a file leaves without usable endpoints.
func (f *resourceFiles) reportEmpty(before, after *files.Set) {
	for _, file := range slices.Sorted(maps.Keys(after.Empty)) {
		if slices.Equal(before.Empty[file], after.Empty[file]) {
			continue
		}
		for _, p := range after.Empty[file] {
			f.Logger.LogAttrs(f.Draining, slog.LevelWarn, "a resource file has a cluster without usable endpoints",
				slog.String("file", file), slog.String("resource", p.Resource), slog.String("problem", p.String()))
		}
	}
}

// fileNames lists the first few files of a held change.
func fileNames(h files.Held) string {
	names := make([]string, len(h.Files))
	for i, c := range h.Files {
		names[i] = c.File
	}
	return few(names)
}
