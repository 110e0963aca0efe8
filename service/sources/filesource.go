package sources

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/admission"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// maxPermitted is how many decisions are remembered, so that one that is repeated
// gets the same answer.
const maxPermitted = 100

// FileArchive keeps the versions of resource files that are in use.
type FileArchive interface {
	// Load returns what is kept, and the directory that it was read from.
	Load() (map[string]*files.Version, files.Identity)
	// Save keeps versions; nil is to be forgotten. Without an error they are as
	// durable as the archive can make them.
	Save(versions map[string]*files.Version, id files.Identity) error
}

// fileSource is the path of resource files into use: what a scan finds passes the
// guard, is kept, and is applied.
type fileSource struct {
	archive FileArchive // fixed after FollowFiles

	mu        sync.Mutex // held from a scan or a decision until it is applied
	admission *admission.Files
	directory files.Identity // as it is kept
	permitted []Permission   // the newest last
}

// Permission is a decision of the operator.
type Permission struct {
	Hash string    `json:"hash"`
	At   time.Time `json:"permitted_at"`
	// By is who decided, and from where.
	By string `json:"by"`
	// Kept is false where the disk refused to keep the decision: a restart before it
	// can be written holds the change again.
	Kept bool `json:"kept"`
}

// FollowFiles prepares for scans of the resource directory, beginning with the
// versions that an archive kept. st has what was pushed. It is called once, before
// the first FilesScanned.
func (s *Sources) FollowFiles(archive FileArchive, st Store) {
	kept, id := archive.Load()
	decoding := decode.Options{
		Origin: decode.ByHand, Format: decode.FormatProtobuf, Stored: true,
		Policies: lb.PolicyConfig, Certificates: s.options.Bootstrap.Instances(),
	}
	s.fileSource = &fileSource{archive: archive, directory: id, admission: admission.NewFiles(admission.FilesOptions{
		Guard:      s.guard(),
		MaxRemoved: s.options.MaxRemoved,
		Pushed:     storeView(st.Snapshot, decoding),
		Configured: s.configuredByServer,
		Users:      s.usersOf,
		InUse:      admission.Restore(kept, decoding),
		Directory:  id,
	})}
}

// storeView is what a store holds.
func storeView(snapshot func() *store.Snapshot, o decode.Options) admission.View {
	return func(key resource.Key) (resource.Item, bool) {
		e, ok := snapshot().Get(key)
		if !ok {
			return resource.Item{}, false
		}
		o.Name, o.Secured = key.Name, isSecured(snapshot().Get, e)
		return admission.Decode(resource.Item{Key: key, Raw: e.Raw}, o), true
	}
}

// configuredByServer is the View of the clusters' configurations that a management
// server provides.
func (s *Sources) configuredByServer(key resource.Key) (resource.Item, bool) {
	if key.Type != Config {
		return resource.Item{}, false
	}
	m := s.targets.Hosted().Cluster(key.Name)
	if m == nil {
		return resource.Item{}, false
	}
	cc := m.ClusterConfig()
	if from := cc.ClusterFrom.Source; cc.Cluster == nil || from != resource.SourceADS && from != resource.SourceCache {
		return resource.Item{}, false
	}
	return resource.Item{Key: key, Cluster: cc.Cluster}, true
}

// usersOf are the clusters that take their endpoints from any of some assignments
// now.
func (s *Sources) usersOf(assignments map[string]bool) []string {
	if len(assignments) == 0 {
		return nil
	}
	var names []string
	for _, t := range s.targets.Hosted().Sorted() {
		for _, m := range t.View().Sorted() {
			if c := m.ClusterConfig().Cluster; c != nil && c.Type == resource.ClusterEDS && assignments[c.AssignmentName()] {
				names = append(names, m.Name)
			}
		}
	}
	return names
}

// FilesScanned takes a scan of the resource directory. The watcher calls it.
func (s *Sources) FilesScanned(scan *files.Scan) {
	f := s.fileSource
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.admission.Scanned(scan, time.Now())
	_ = f.save(o) // the archive's log has it; a file is in use whether or not it can be kept
	s.FilesChanged(o.Set)
}

// save keeps what changed. It is called under f.mu.
func (f *fileSource) save(o admission.Outcome) error {
	if len(o.Changed) == 0 && o.Directory == f.directory {
		return nil
	}
	err := f.archive.Save(o.Changed, o.Directory)
	if err == nil {
		f.directory = o.Directory
	}
	return err
}

// PermitPath is the path of the request that permits a held change.
func PermitPath(hash string) string { return "/v1/files/held/" + hash + "/permit" }

// PermitFiles brings a held change of resource files into use. When it returns, picks
// see it. It permits exactly the change of that hash, and only
// once: the same change is held again if it is made again. Permitting again what was
// permitted changes nothing. It fails with UnknownChange where no such change is
// held, nor was permitted lately.
func (s *Sources) PermitFiles(ctx context.Context, hash, by string) (Permission, error) {
	p, concerned, err := s.permitFiles(hash, by)
	if err != nil || concerned == nil {
		return p, err
	}
	if err := s.targets.Settle(context.WithoutCancel(ctx), concerned); err != nil {
		return p, fault.Errorf(fault.Internal, "the change is in use, and a tree rejected it: %v", err)
	}
	return p, nil
}

func (s *Sources) permitFiles(hash, by string) (Permission, []string, error) {
	f := s.fileSource
	if f == nil {
		return Permission{}, nil, unknownChange(hash)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	held := f.admission.Held()
	o, ok := f.admission.Permit(hash, time.Now())
	if !ok {
		for _, p := range f.permitted {
			if p.Hash == hash {
				return p, nil, nil
			}
		}
		return Permission{}, nil, unknownChange(hash)
	}
	p := Permission{Hash: hash, At: time.Now().UTC(), By: by, Kept: f.save(o) == nil}
	f.permitted = append(f.permitted, p)
	f.permitted = f.permitted[max(0, len(f.permitted)-maxPermitted):]
	for _, h := range held {
		if h.Hash == hash {
			s.reportPermitted(h, by)
		}
	}
	return p, s.FilesChanged(o.Set), nil
}

func unknownChange(hash string) *fault.Error {
	return fault.Errorf(fault.UnknownChange, "no change of the files with the hash %q is held; GET /v1/files lists those that are", hash)
}

// fileNames lists the files of a held change: the first few.
func fileNames(h files.Held) string {
	const most = 5
	var names []string
	for i, c := range h.Files {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(h.Files)-most))
			break
		}
		names = append(names, c.File)
	}
	return strings.Join(names, ", ")
}
