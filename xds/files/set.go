package files

import (
	"time"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Set is what the files provide at one moment: the versions of them that are in
// use. It is shared by all who read it, and must not be changed.
type Set struct {
	Resources map[resource.Key]Resource
	// Rejected are the Clusters that a bad file has and no file has a good version of.
	Rejected map[resource.Key]Rejected
	// Bad are the files that hold what is not in use, in the order of their
	// names.
	Bad []Bad
	// Held are the changes that wait for the operator's decision.
	Held []Held
	// Warnings and Notes are those of the files that were accepted, by File.
	Warnings, Notes map[string][]decode.Problem
	// Empty are the clusters without usable endpoints, by File: they had none
	// before, or the operator permitted it.
	Empty map[string][]decode.Problem
	// Sums are the SHA-256 sums, in hex, of the contents in use, by File.
	Sums map[string]string
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

// Rejected is a Cluster that cannot be used.
type Rejected struct {
	// Err names the file and the field.
	Err error
	// Modified is the time of the file's last modification.
	Modified time.Time
}

// Directory is the File of a Bad that is about the directory itself.
const Directory = "."

// Bad is one fault of a file. A file can have two: its content is bad, and of what
// it held before another file holds the same Key.
type Bad struct {
	// File is the name of the file in the directory, or Directory.
	File string
	// Err is a *decode.SyntaxError, a *decode.InvalidError, or what the
	// system said when the file was read.
	Err error
	// Since is when the fault was first seen; it may have changed its words
	// since then.
	Since time.Time
	// Kept is true where what the file held before is in use.
	Kept bool
	// Partial is true where no earlier content is known, and what is valid of the
	// file is in use.
	Partial bool
	// Twice is true where the fault is that another file holds the same Key.
	Twice bool
}

// Held is a change of one or more files that is not in use, because it would take
// away what works. What the files held before stays in use until the operator
// permits exactly this change.
type Held struct {
	// Hash names the change: it is computed from the files' names and from their
	// contents before and after.
	Hash string
	// Files are the changes that can only be permitted together, by name.
	Files []FileChange
	// Reasons say what the change would take away, a sentence each.
	Reasons []string
	// Clusters are those that would be without endpoints, or gone, by name.
	Clusters []string
	// Differences describe the change of each resource in words.
	Differences []string
	// Since is when the change was first seen.
	Since time.Time
}

// FileChange is the change of one file.
type FileChange struct {
	File string
	// Change is "added", "modified" or "removed".
	Change string
	// Sum is the SHA-256 sum, in hex, of the content that is not in use; empty for
	// a file that was removed.
	Sum string
}
