package sources

import (
	"slices"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
)

// hiddenError stands for an error of a file that may name resources out of a scope.
const hiddenError = "the file is invalid; lbd shows the error to callers that may see all clusters"

// Within returns the files that have resources, all of them in a scope, and no held changes: a
// change may have files with other resources. An error is shown if it is about resources in the
// scope.
func (f FilesState) Within(s *ledger.Scope) FilesState {
	if s.All() {
		return f
	}
	has := func(name string) bool { return s.Resource(difference.Change{Resource: name}.Key()) }
	visible := func(all []fault.Problem) []fault.Problem {
		return slices.DeleteFunc(slices.Clone(all), func(p fault.Problem) bool { return p.Resource == "" || !has(p.Resource) })
	}
	out := FilesState{Files: []FileState{}, Held: []files.Held{}, NotInForce: visible(f.NotInForce)}
	for _, file := range f.Files {
		if len(file.Resources) == 0 || slices.ContainsFunc(file.Resources, func(name string) bool { return !has(name) }) {
			continue
		}
		errors := visible(file.Errors)
		if file.Error != "" && (len(errors) == 0 || len(errors) < len(file.Errors)) {
			file.Error = hiddenError
		}
		file.Held, file.Errors, file.Warnings, file.Notes = "", errors, visible(file.Warnings), visible(file.Notes)
		out.Files = append(out.Files, file)
	}
	return out
}

// within returns the status as a caller of a scope sees it: its targets and their resources,
// without those of other clusters. Counts are of these.
func within(s *ledger.Scope, status client.Status) client.Status {
	if s.All() {
		return status
	}
	status.Targets = slices.DeleteFunc(slices.Clone(status.Targets), func(t client.TargetStatus) bool { return !s.Target(t.Target) })
	status.Resources = slices.DeleteFunc(slices.Clone(status.Resources), func(r client.ResourceStatus) bool {
		ofCluster := r.Key.Type == resource.TypeCluster || r.Key.Type == resource.TypeAssignment
		return !s.Target(r.Target) || ofCluster && !s.Cluster(r.Key.Name)
	})
	status.Unapplied = nil // their examples are resources, and their counts are of all
	status.Servers = slices.Clone(status.Servers)
	for i := range status.Servers {
		server := &status.Servers[i]
		preferred := map[string]bool{} // the servers up to this one
		for _, other := range status.Servers[:i+1] {
			preferred[other.URI] = preferred[other.URI] || other.Authority == server.Authority
		}
		server.Targets, server.Waiting = 0, 0
		for _, t := range status.Targets {
			switch {
			case t.Authority != server.Authority:
			case t.Server == server.URI:
				server.Targets++
			case t.Server != "" && !preferred[t.Server]:
				server.Waiting++
			}
		}
	}
	return status
}
