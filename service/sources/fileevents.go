package sources

import (
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
)

// reportFiles logs and remembers what changed in the resource files: what is in
// use, what is bad, what is held.
func (s *Sources) reportFiles(before, after *files.Set) {
	s.reportChanged(before, after)
	s.reportBad(before, after)
	s.reportHeld(before, after)
	s.reportEmpty(before, after)
}

// reportChanged adds one event for all that came into use.
func (s *Sources) reportChanged(before, after *files.Set) {
	var vs difference.Versions
	from := map[string]bool{}
	for _, key := range slices.SortedFunc(maps.Keys(merged(before.Resources, after.Resources)), byResource) {
		was, is := before.Resources[key], after.Resources[key]
		if slices.Equal(was.Raw, is.Raw) {
			continue
		}
		was.Key, is.Key = key, key
		vs = append(vs, difference.Version{Before: was.Item, After: is.Item})
		for _, file := range []string{was.File, is.File} {
			if file != "" {
				from[file] = true
			}
		}
	}
	e := observe.Event{Type: observe.EventFileChanged}
	if len(from) == 1 {
		for e.File = range from {
		}
	}
	s.sourceChanged(e, vs)
}

func merged[V any](a, b map[resource.Key]V) map[resource.Key]V {
	out := maps.Clone(a)
	if out == nil {
		out = make(map[resource.Key]V, len(b))
	}
	maps.Copy(out, b)
	return out
}

func byResource(a, b resource.Key) int { return strings.Compare(a.String(), b.String()) }

// reportBad reports the files that became bad or good.
func (s *Sources) reportBad(before, after *files.Set) {
	type fault struct{ err, meanwhile string }
	bad := func(set *files.Set) map[string]fault {
		m := make(map[string]fault, len(set.Bad))
		for _, b := range set.Bad {
			f := m[b.File]
			if f.err != "" {
				f.err += "; "
			}
			f.err += b.Err.Error()
			f.meanwhile = meanwhile(b)
			m[b.File] = f
		}
		return m
	}
	was, is := bad(before), bad(after)
	for _, file := range slices.Sorted(maps.Keys(is)) {
		if was[file].err == is[file].err {
			continue
		}
		s.events.Add(observe.Event{Type: observe.EventFileRefused, File: file, Error: is[file].err, Says: "a resource file is bad: " + is[file].meanwhile})
		s.options.Logger.Error("resource file is bad", "file", file, "meanwhile", is[file].meanwhile, "error", is[file].err)
	}
	for _, file := range slices.Sorted(maps.Keys(was)) {
		if _, still := is[file]; still || isHeld(after, file) {
			continue
		}
		s.events.Add(observe.Event{Type: observe.EventFileAccepted, File: file, Says: "a resource file is good again, or gone"})
		s.options.Logger.Info("resource file accepted", "file", file)
	}
}

// isHeld reports whether a change of the file is held.
func isHeld(set *files.Set, file string) bool {
	return slices.ContainsFunc(set.Held, func(h files.Held) bool {
		return slices.ContainsFunc(h.Files, func(c files.FileChange) bool { return c.File == file })
	})
}

// reportHeld reports the changes that are held now, and were not.
func (s *Sources) reportHeld(before, after *files.Set) {
	for _, h := range after.Held {
		if slices.ContainsFunc(before.Held, func(b files.Held) bool { return b.Hash == h.Hash }) {
			continue
		}
		why := strings.Join(h.Reasons, "; ")
		e := observe.Event{
			Type: observe.EventChangeHeld, Hash: h.Hash, File: fileNames(h), Reason: why,
			Says: "a change of resource files is held, and the last good version stays in use: " + why,
		}
		if len(h.Clusters) == 1 {
			e.Cluster = h.Clusters[0]
		}
		s.events.Add(e)
		s.options.Logger.Error("a change of resource files is held: the last good version stays in use until the files are corrected or exactly this change is permitted",
			"files", fileNames(h), "reason", why, "hash", h.Hash, "permit", "POST "+PermitPath(h.Hash))
	}
	for _, h := range before.Held {
		if !slices.ContainsFunc(after.Held, func(a files.Held) bool { return a.Hash == h.Hash }) {
			s.options.Logger.Info("a change of resource files is not held any more", "files", fileNames(h), "hash", h.Hash)
		}
	}
}

// reportPermitted reports the operator's decision.
func (s *Sources) reportPermitted(h files.Held, by string) {
	s.events.Add(observe.Event{
		Type: observe.EventChangePermitted, Hash: h.Hash, File: fileNames(h), By: by,
		Says: "a held change of resource files was permitted: " + strings.Join(h.Reasons, "; "),
	})
	s.options.Logger.Warn("a held change of resource files was permitted", "files", fileNames(h), "hash", h.Hash, "by", by)
}

// reportEmpty logs the clusters that a file leaves without usable endpoints.
func (s *Sources) reportEmpty(before, after *files.Set) {
	for _, file := range slices.Sorted(maps.Keys(after.Empty)) {
		if slices.Equal(before.Empty[file], after.Empty[file]) {
			continue
		}
		for _, p := range after.Empty[file] {
			s.options.Logger.LogAttrs(s.draining, slog.LevelWarn, "a resource file has a cluster without usable endpoints",
				slog.String("file", file), slog.String("resource", p.Resource), slog.String("problem", p.String()))
		}
	}
}
