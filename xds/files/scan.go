package files

import (
	"maps"
	"time"

	"github.com/lbd-dev/lbd/xds/decode"
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
}

// same reports whether two scans found the same.
func (s *Scan) same(o *Scan) bool {
	return text(s.Err) == text(o.Err) && text(s.Over) == text(o.Over) && s.Identity == o.Identity && maps.Equal(s.Files, o.Files)
}
