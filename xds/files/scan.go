package files

import (
	"maps"
	"time"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Scan is the result of reading the directory. It is shared and immutable.
type Scan struct {
	Err  error // why the directory cannot be read; nothing else is set then
	Over error // that there are more files than are read; or nil
	// Identity is the directory's file system and inode: another directory at the
	// same path, such as the one below a mount that is gone, has another.
	Identity Identity
	Files    map[string]*File // by name
}

// Identity identifies a directory.
type Identity struct{ Device, Inode uint64 }

// File is a file when it was last read. It is immutable.
type File struct {
	Sum      string         // SHA-256, in hex, of the content; empty if it could not be read
	Modified time.Time      // the modification time when the content was first seen
	Bundle   *decode.Bundle // the content; nil for a bad file
	// Err is why the file is bad: a *decode.SyntaxError, a *decode.InvalidError, or why it
	// cannot be read. Since is the time of the first error.
	Err   error
	Since time.Time
	Valid *decode.Bundle // the valid resources of a bad file; nil for none
	// Waits is since when the file waits for its writer; zero if it does not. The rest is what was read before.
	Waits time.Time
}

func (s *Scan) same(o *Scan) bool {
	return text(s.Err) == text(o.Err) && text(s.Over) == text(o.Over) && s.Identity == o.Identity && maps.Equal(s.Files, o.Files)
}

// Set is the versions of the files that are in use. It is shared and immutable.
type Set struct {
	Resources map[resource.Key]Resource
	Rejected  map[resource.Key]Rejected // Clusters of bad files without a good version
	Bad       []Bad                     // files with contents that are not in use, by name
	Held      []Held                    // changes that wait for the operator's decision
	// Warnings and Notes are those of the accepted files, by File.
	Warnings, Notes map[string][]decode.Problem
	// Empty are the clusters without usable endpoints, by File: they had none before, or
	// the operator permitted it.
	Empty map[string][]decode.Problem
	Waits map[string]time.Time // since when files wait for their writers, by File
	Sums  map[string]string    // SHA-256 sums, in hex, of the contents in use, by File
}

// Resource is one resource in use.
type Resource struct {
	resource.Item
	File     string    // its name in the directory
	Modified time.Time // the modification time of the file when its content last changed
}

// Rejected is a Cluster that cannot be used.
type Rejected struct {
	Err      error // with the file and the field
	Modified time.Time
}

// Directory is the File of a Bad that is about the directory itself.
const Directory = "."

// Bad is one error of a file. A file can have two: its content is bad, and its content
// before has the same Key as another file.
type Bad struct {
	File string // its name in the directory, or Directory
	// Err is a *decode.SyntaxError, a *decode.InvalidError, or the system's when the file
	// was read.
	Err     error
	Since   time.Time // of the first error, whose text may have been another
	Kept    bool      // the content before is in use
	Partial bool      // the valid part is in use: there is no content before
	Twice   bool      // the error is that another file has the same Key
}

// Held is a change of one or more files that is not in use, because it would remove what
// works. The contents before stay in use until the operator permits exactly this change.
type Held struct {
	// Hash names the change: it covers the files' names and their contents before
	// and after.
	Hash string `json:"hash"`
	// Reasons are what the change would take away, a sentence each.
	Reasons []string `json:"reasons"`
	// Since is when the change was first seen.
	Since time.Time `json:"since"`
	// Clusters are those that would lose it: the first 20.
	Clusters []string `json:"clusters"`
	// Files can only be permitted together.
	Files []FileChange `json:"files"`
	// Differences describe the change: the first 20.
	Differences []string `json:"differences"`
}

// FileChange is the change of one file.
type FileChange struct {
	File   string `json:"file"`
	Change string `json:"change" enums:"added,modified,removed"`
	// SHA256 is the sum of the content that is not in use.
	SHA256 string `json:"sha256,omitempty"`
}
