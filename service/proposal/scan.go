package proposal

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// MaxHeldClusters limits how many clusters of a held change are listed.
const MaxHeldClusters = 20

// evaluation divides the changes of a scan into those that take effect and those that are
// held.
//
// It applies all of them and looks for losses. The files that cause one are held
// together. It looks again until there are no losses. A file that a resource moved out of
// is held with the file that it moved to.
type evaluation struct {
	files   *Files
	changes map[string]change
	groups  []group
}

// group is a set of changes that are held for the same losses.
type group struct {
	names  map[string]bool
	losses []fileLoss
}

// fileLoss is a loss of a change of files.
type fileLoss struct {
	reason   string
	clusters []string
	needs    []resource.Key // that the clusters depend on
}

// held is a held change with the versions that it would bring into use.
type held struct {
	files.Held

	changes map[string]change
}

func (e *evaluation) run() {
	for {
		from, to := union(e.files.inUse), union(e.versions())
		losses := e.losses(from, to)
		if len(losses) == 0 {
			return
		}
		open := e.open()
		for _, l := range losses {
			causes := e.causes(open, l.needs)
			if len(causes) == 0 {
				causes = open
			}
			e.hold(causes, l)
		}
		e.holdMoves()
	}
}

func (e *evaluation) isHeld(name string) bool {
	return slices.ContainsFunc(e.groups, func(g group) bool { return g.names[name] })
}

func (e *evaluation) open() []string {
	return slices.DeleteFunc(slices.Collect(maps.Keys(e.changes)), e.isHeld)
}

// versions returns the versions in use after the changes that are not held.
func (e *evaluation) versions() map[string]*files.Version {
	out := maps.Clone(e.files.inUse)
	for name, c := range e.changes {
		if e.isHeld(name) {
			continue
		}
		if out[name] = c.to; c.to == nil {
			delete(out, name)
		}
	}
	return out
}

// union returns the resources of versions. If several files have a resource, it is that
// of the first file by name. A Cluster that is rejected in all files has no value.
func union(versions map[string]*files.Version) map[resource.Key]resource.Item {
	out := map[resource.Key]resource.Item{}
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		for _, i := range versions[name].Items {
			if _, twice := out[i.Key]; !twice {
				out[i.Key] = i
			}
		}
	}
	for _, v := range versions {
		for _, r := range v.Rejected {
			if _, good := out[r.Key]; !good {
				out[r.Key] = resource.Item{Key: r.Key}
			}
		}
	}
	return out
}

// losses returns what a change of the files' resources takes away: whatever was pushed, because a deletion of that
// uncovers what the files have.
func (e *evaluation) losses(from, to map[resource.Key]resource.Item) []fileLoss {
	o := &e.files.options
	p := fromFiles(from, to)
	restored, uncovered := fromFiles(e.files.published, from), &resolver.Proposal{From: resource.SourcePush}
	for _, resources := range []map[resource.Key]resource.Item{from, to} {
		for key := range resources {
			if o.Pushed != nil && o.Pushed(key) {
				uncovered.Updates = append(uncovered.Updates, resource.Update{Item: resource.Item{Key: key}})
			}
		}
	}
	if len(p.Updates) == 0 {
		return nil
	}
	all := o.Guard.Losses(o.Evaluate(p, restored))
	if len(uncovered.Updates) > 0 {
		all = append(all, o.Guard.Losses(o.Evaluate(p, restored, uncovered))...)
	}
	slices.SortStableFunc(all, func(a, b Loss) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Cluster, b.Cluster)) })
	var out []fileLoss
	for i, l := range all {
		twice := i > 0 && l.Kind == all[i-1].Kind && l.Cluster == all[i-1].Cluster
		if !twice && l.Kind != Empty {
			out = append(out, fileLoss{l.Reason, []string{l.Cluster}, l.needs})
		}
	}
	if l, ok := e.removal(from, clusters(from), clusters(to)); ok {
		out = append(out, l)
	}
	return out
}

// fromFiles returns the change of the files' resources from one state to another. A rejected resource has no Raw.
func fromFiles(from, to map[resource.Key]resource.Item) *resolver.Proposal {
	p := &resolver.Proposal{From: resource.SourceFile}
	for key, i := range to {
		was, exists := from[key]
		if exists && bytes.Equal(was.Raw, i.Raw) {
			continue
		}
		u := resource.Update{Item: i}
		if i.Raw == nil {
			u.Err = fmt.Errorf("%s is rejected", key)
		}
		p.Updates = append(p.Updates, u)
	}
	for key := range from {
		if _, exists := to[key]; !exists {
			p.Updates = append(p.Updates, resource.Update{Item: resource.Item{Key: key}})
		}
	}
	return p
}

// removal returns the loss of more clusters than one change may remove.
func (e *evaluation) removal(from map[resource.Key]resource.Item, was, is map[string]bool) (l fileLoss, ok bool) {
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if is[name] {
			continue
		}
		l.clusters = append(l.clusters, name)
		cluster, assignment := resource.Key{Type: resource.TypeCluster, Name: name}, resource.Key{Type: resource.TypeAssignment, Name: name}
		if c := from[cluster].Cluster; c != nil {
			assignment.Name = c.AssignmentName()
		}
		l.needs = append(l.needs, cluster, assignment)
	}
	most := max(1, len(was)/2)
	if e.files.options.MaxRemoved != nil {
		most = *e.files.options.MaxRemoved
	}
	l.reason = fmt.Sprintf("removes %d of %d clusters, limit %d (--max-removed)", len(l.clusters), len(was), most)
	return l, len(l.clusters) > most
}

// clusters returns the clusters of resources: each Cluster, and each assignment that no
// Cluster refers to.
func clusters(resources map[resource.Key]resource.Item) map[string]bool {
	out, used := map[string]bool{}, map[string]bool{}
	for key, i := range resources {
		if key.Type == resource.TypeCluster {
			out[key.Name] = true
			if i.Cluster != nil {
				used[i.Cluster.AssignmentName()] = true
			}
		}
	}
	for key := range resources {
		if key.Type == resource.TypeAssignment && !used[key.Name] {
			out[key.Name] = true
		}
	}
	return out
}

// causes returns those of some files whose changes concern any of some resources.
func (e *evaluation) causes(open []string, of []resource.Key) []string {
	keys := make(map[resource.Key]bool, len(of))
	for _, key := range of {
		keys[key] = true
	}
	return slices.DeleteFunc(slices.Clone(open), func(name string) bool {
		return !slices.ContainsFunc(e.changes[name].resources(), func(v difference.Version) bool { return keys[v.After.Key] })
	})
}

// resources returns the resources that differ. Those that do not exist, before or after,
// and Clusters that are rejected now have no Raw.
func (c change) resources() difference.Versions {
	var out difference.Versions
	was := map[resource.Key]resource.Item{}
	for _, i := range items(c.from) {
		was[i.Key] = i
	}
	for _, i := range items(c.to) {
		if old, ok := was[i.Key]; !ok || !bytes.Equal(old.Raw, i.Raw) {
			out = append(out, difference.Version{Before: old, After: i})
		}
		delete(was, i.Key)
	}
	if c.to != nil {
		for _, r := range c.to.Rejected {
			out = append(out, difference.Version{Before: was[r.Key], After: resource.Item{Key: r.Key}})
			delete(was, r.Key)
		}
	}
	for _, i := range items(c.from) { // in the order of the file
		if _, gone := was[i.Key]; gone {
			out = append(out, difference.Version{Before: i, After: resource.Item{Key: i.Key}})
		}
	}
	return out
}

// items returns the resources of a version, which may be nil.
func items(v *files.Version) []resource.Item {
	if v == nil {
		return nil
	}
	return v.Items
}

// hold holds the changes of files, together with the groups that have any of them.
func (e *evaluation) hold(names []string, l fileLoss) {
	merged := group{names: map[string]bool{}, losses: []fileLoss{l}}
	for _, name := range names {
		merged.names[name] = true
	}
	e.groups = slices.DeleteFunc(e.groups, func(g group) bool {
		shared := slices.ContainsFunc(names, func(name string) bool { return g.names[name] })
		if shared {
			maps.Copy(merged.names, g.names)
			merged.losses = append(g.losses, merged.losses...)
		}
		return shared
	})
	e.groups = append(e.groups, merged)
}

// holdMoves holds each change that takes a resource out of a file which a held
// change puts into another: in use alone, it would remove the resource.
func (e *evaluation) holdMoves() {
	for again := true; again; {
		again = false
		for n := range e.groups {
			gained := e.gained(e.groups[n])
			for _, name := range e.open() {
				if loses(e.changes[name], gained) {
					e.groups[n].names[name] = true
					again = true
				}
			}
		}
	}
}

func (e *evaluation) gained(g group) map[resource.Key]bool {
	out := map[resource.Key]bool{}
	for name := range g.names {
		c := e.changes[name]
		for _, i := range items(c.to) {
			out[i.Key] = true
		}
		for _, i := range items(c.from) {
			delete(out, i.Key)
		}
	}
	return out
}

func loses(c change, keys map[resource.Key]bool) bool {
	return slices.ContainsFunc(items(c.from), func(i resource.Item) bool {
		return keys[i.Key] && !slices.ContainsFunc(items(c.to), func(o resource.Item) bool { return o.Key == i.Key })
	})
}

// heldChanges returns the held changes, the oldest first. Those that were held before keep
// their time.
func (e *evaluation) heldChanges(before []held, now time.Time) []held {
	var out []held
	for _, g := range e.groups {
		h := e.heldChange(g)
		h.Since = now.UTC()
		if n := slices.IndexFunc(before, func(b held) bool { return b.Hash == h.Hash }); n >= 0 {
			h.Since = before[n].Since
		}
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b held) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Files[0].File, b.Files[0].File))
	})
	return out
}

func (e *evaluation) heldChange(g group) held {
	h := held{Held: files.Held{Clusters: []string{}}, changes: map[string]change{}}
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(g.names)) {
		c := e.changes[name]
		h.changes[name] = c
		fc := files.FileChange{File: name, Change: "modified", SHA256: sumOf(c.to)}
		switch {
		case c.from == nil:
			fc.Change = "added"
		case c.to == nil:
			fc.Change = "removed"
		}
		h.Files = append(h.Files, fc)
		fmt.Fprintf(sum, "%q %s %s\n", name, sumOf(c.from), sumOf(c.to))
	}
	h.Hash = hex.EncodeToString(sum.Sum(nil)[:16])
	for _, l := range g.losses {
		h.Reasons = append(h.Reasons, l.reason)
		h.Clusters = append(h.Clusters, l.clusters...)
	}
	slices.Sort(h.Clusters)
	h.Reasons, h.Clusters, h.Differences = limited(h.Reasons), limited(slices.Compact(h.Clusters)), differences(h.changes)
	return h
}

func differences(changes map[string]change) []string {
	out := []string{}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		for _, v := range changes[name].resources() {
			if says := v.Sentence(); says != "" {
				out = append(out, name+": "+says)
			}
		}
	}
	return limited(out)
}

// limited returns the first MaxHeldClusters of a list, and how many more there are.
func limited(list []string) []string {
	if n := len(list) - MaxHeldClusters; n > 0 {
		return append(list[:MaxHeldClusters:MaxHeldClusters], fmt.Sprintf("and %d more", n))
	}
	return list
}

func sumOf(v *files.Version) string {
	switch {
	case v == nil:
		return "-"
	case v.Partial:
		return v.Sum + " partial"
	default:
		return v.Sum
	}
}
