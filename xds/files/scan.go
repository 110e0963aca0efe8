package files

import (
	"maps"
	"time"

	"github.com/lbd-dev/lbd/xds/decode"
)

// Scan is what one reading of the directory found. It is shared by all who read
// it, and must not be changed.
type Scan struct {
	// Err is why the directory cannot be read; nothing else is set then.
	Err error
	// Over is that there are more files than are read; nil if there are not.
	Over error
	// Identity is the directory's file system and inode: another directory at the
	// same path, such as the one below a mount that is gone, has another.
	Identity Identity
	// Files are the resource files that are there, by name.
	Files map[string]*File
}

// Identity identifies a directory.
type Identity struct{ Device, Inode uint64 }

// File is a file as it was last read. It is never changed.
type File struct {
	// Sum is the SHA-256 sum, in hex, of the content; empty where the file could
	// not be read.
	Sum string
	// Modified is the time of the last modification when the content was first
	// seen.
	Modified time.Time
	// Bundle is the content; nil for a bad file.
	Bundle *decode.Bundle
	// Err is why the file is bad: a *decode.SyntaxError, a
	// *decode.InvalidError, or why it cannot be read. Since is when it first was.
	Err   error
	Since time.Time
	// Valid is what is valid of a bad file that can be read, each resource by
	// itself; nil for nothing.
	Valid *decode.Bundle
}

// same reports whether two scans found the same.
func (s *Scan) same(o *Scan) bool {
	return text(s.Err) == text(o.Err) && text(s.Over) == text(o.Over) && s.Identity == o.Identity && maps.Equal(s.Files, o.Files)
}
