package sources

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/proposal"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// maxPermissions limits how many permissions are remembered, so that a repeated request
// gets the same answer.
const maxPermissions = 100

// FileArchive keeps the versions of resource files that are in use.
type FileArchive interface {
	// Load returns the versions, and the directory that they were read from.
	Load() (map[string]*files.Version, files.Identity)
	// Save saves versions, and deletes the files whose version is nil. Without an error
	// they are as durable as the archive can make them.
	Save(versions map[string]*files.Version, id files.Identity) error
}

// resourceFiles owns the resource directory: what a scan finds passes the guard, is
// archived, and is published.
type resourceFiles struct {
	*publisher
	archive FileArchive               // nil without a resource directory; fixed after Start
	inUse   atomic.Pointer[files.Set] // nil before the first scan

	mu          sync.Mutex // held from a scan or a permission until it is published
	proposals   *proposal.Files
	directory   files.Identity // in the archive
	permissions []Permission   // the newest last
}

// Permission is an operator's permission of a held change.
type Permission struct {
	Hash string    `json:"hash"`
	At   time.Time `json:"permitted_at"`
	// By is who decided, and from where.
	By string `json:"by"`
	// Kept is false if the permission could not be written to disk: a restart before it
	// can be written holds the change again.
	Kept bool `json:"kept"`
	// NotInForce is true if picks do not use all of it yet: GET /v1/files has what.
	NotInForce bool `json:"not_in_force,omitempty"`
}

// follow prepares for scans of the resource directory, beginning with the
// versions of an archive. st has the pushed resources, and unpublished returns what the resolver does not have
// of them yet. It is called once, before the first call of scanned.
func (f *resourceFiles) follow(archive FileArchive, st store.Store, unpublished func(store.Store) []*resolver.Proposal) {
	kept, id := archive.Load()
	guard := f.guard()
	guard.Picked = f.picked
	f.archive, f.directory = archive, id
	f.proposals = proposal.NewFiles(proposal.FilesOptions{
		Evaluate: func(is *resolver.Proposal, earlier ...*resolver.Proposal) (o *proposal.Outcome) {
			earlier = append(unpublished(st), earlier...)
			f.withResolver(func(r *resolver.Resolver) { o = proposal.Evaluate(r, is, earlier...) })
			return o
		},
		Guard:      guard,
		MaxRemoved: f.MaxRemoved,
		Pushed: func(key resource.Key) bool {
			_, ok := st.Snapshot().Get(key)
			return ok
		},
		InUse:     proposal.Restore(kept, f.decoding(Protobuf)),
		Directory: id,
	})
}

// picked reports whether a cluster has had picks in RecentSpan, or ever if its history is shorter.
func (f *resourceFiles) picked(cluster string) bool {
	var recent observe.Recent
	if f.Recent != nil {
		recent = f.Recent(cluster, RecentSpan)
	}
	if recent.Picks > 0 || recent.Over > RecentSpan/2 {
		return recent.Picks > 0
	}
	for t := range f.Ledger.Hosted().All() {
		if m := t.View().Clusters.Get(cluster); m != nil {
			for _, n := range m.Results() {
				if n > 0 {
					return true
				}
			}
		}
	}
	return false
}

// set returns what the files provide; nothing before the first scan. It must not be changed.
func (f *resourceFiles) set() *files.Set {
	if set := f.inUse.Load(); set != nil {
		return set
	}
	return &files.Set{}
}

// has reports whether a file has a resource that is not rejected.
func (f *resourceFiles) has(key resource.Key) bool {
	_, ok := f.set().Resources[key]
	return ok
}

// scanned handles a scan of the resource directory. The watcher calls it.
func (f *resourceFiles) scanned(scan *files.Scan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deciding.Lock()
	o := f.proposals.Scanned(scan, time.Now())
	f.FilesChanged(o.Set)
	f.deciding.Unlock()
	_ = f.save(o) // the archive logs it; a file is in use whether or not it can be archived
}

// save archives what changed. The caller holds f.mu.
func (f *resourceFiles) save(o proposal.FilesOutcome) error {
	if len(o.Changed) == 0 && o.Directory == f.directory {
		return nil
	}
	err := f.archive.Save(o.Changed, o.Directory)
	if err == nil {
		f.directory = o.Directory
	}
	return err
}

// FilesChanged publishes what the resource files provide. It returns the targets with
// new configs. It must not be called concurrently.
func (f *resourceFiles) FilesChanged(set files.Set) (affected []string) {
	before := f.set()
	f.inUse.Store(&set)
	affected, vs := f.publish(&resolver.Proposal{From: resource.SourceFile, Updates: proposal.Changes(before, &set)})
	f.report(before, &set, vs)
	return affected
}

// PermitPath is the path of the request that permits a held change.
func PermitPath(hash string) string { return "/v1/files/held/" + hash + "/permit" }

// PermitFiles brings a held change of resource files into use. When it returns, picks
// see it, unless NotInForce says that they do not yet. It permits exactly the change with that hash, and only once: if the same change
// is made again, it is held again. To permit it twice changes nothing. PermitFiles fails
// with UnknownChange if no such change is held, or was permitted lately.
func (f *resourceFiles) PermitFiles(ctx context.Context, hash, by string) (Permission, error) {
	p, affected, err := f.permit(hash, by)
	if err != nil || affected == nil {
		return p, err
	}
	if err := f.Ledger.Settle(context.WithoutCancel(ctx), affected); err != nil {
		return p, fault.Errorf(fault.Internal, "the change is in use, and a tree rejected it: %v", err)
	}
	p.NotInForce = len(f.notInForce()) > 0
	return p, nil
}

func (f *resourceFiles) permit(hash, by string) (p Permission, affected []string, err error) {
	unknown := fault.Errorf(fault.UnknownChange, "no change of the files with the hash %q is held; GET /v1/files lists those that are", hash)
	if f.archive == nil {
		return p, nil, unknown
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deciding.Lock()
	o, held, ok := f.proposals.Permit(hash, time.Now())
	if ok {
		f.reportPermitted(held, by)
		affected = f.FilesChanged(o.Set)
	}
	f.deciding.Unlock()
	if !ok {
		n := slices.IndexFunc(f.permissions, func(p Permission) bool { return p.Hash == hash })
		if n < 0 {
			return p, nil, unknown
		}
		return f.permissions[n], nil, nil
	}
	p = Permission{Hash: hash, At: time.Now().UTC(), By: by, Kept: f.save(o) == nil}
	f.permissions = append(f.permissions, p)
	f.permissions = f.permissions[max(0, len(f.permissions)-maxPermissions):]
	return p, affected, nil
}

// report logs what changed in the resource files, and adds events: the resources in
// use, bad files, held changes.
func (f *resourceFiles) report(before, after *files.Set, vs difference.Versions) {
	f.reportChanged(before, after, vs)
	f.reportBad(before, after)
	f.reportHeld(before, after)
	for _, file := range slices.Sorted(maps.Keys(after.Waits)) {
		if before.Waits[file].IsZero() {
			f.Logger.Info("resource file is not read yet: a program may still write it", "file", file, "since", after.Waits[file])
		}
	}
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
	f.addChanges(changelog.FromFile, e, vs)
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

func newlyHeld(before, after *files.Set) []files.Held {
	return slices.DeleteFunc(slices.Clone(after.Held), func(h files.Held) bool {
		return slices.ContainsFunc(before.Held, func(b files.Held) bool { return b.Hash == h.Hash })
	})
}

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
	return difference.Few(names, maxListedNames)
}
