package file

import (
	"errors"
	"fmt"
)

// ErrInUse is returned by Open while another process, or another Store of this
// one, has the directory open.
var ErrInUse = errors.New("data directory is in use by another lbd")

// damagedInfix is in the names of damaged files, between the file's own name and the
// time at which it was set aside.
const damagedInfix = ".damaged-"

// DamagedError is returned by Open for a file that is not as it was written. The file was
// set aside. Every further Open returns it too, until the damaged file is moved away or
// there is another file: a restart must not begin empty without a decision.
type DamagedError struct {
	Path     string // of the file before
	SetAside string // its path now; empty if it could not be renamed
	// Intact is a file with the commits before the damage; empty if there is none. It may
	// have older values of what later commits changed.
	Intact string
	// Reason is what is wrong with it, and why it could not be renamed; nil if an earlier
	// Open set it aside.
	Reason error
}

func (e *DamagedError) Error() string {
	switch {
	case e.SetAside == "":
		return fmt.Sprintf("%s is damaged and could not be set aside: %v; move it away to begin empty, or restore a backup in its place", e.Path, e.Reason)
	case e.Reason == nil:
		return fmt.Sprintf("%s was damaged and is kept as %s; restore a backup as %[1]s, or move every %[1]s%[3]s* away to begin empty", e.Path, e.SetAside, damagedInfix)
	}
	older := ""
	if e.Intact != "" {
		older = fmt.Sprintf(" or %s, which holds what was stored before the damaged part,", e.Intact)
	}
	return fmt.Sprintf("%s is damaged: %v; it was kept as %s; restore a backup%s as %[1]s, or move every %[1]s%[5]s* away to begin empty",
		e.Path, e.Reason, e.SetAside, older, damagedInfix)
}

func (e *DamagedError) Unwrap() error { return e.Reason }

// SchemaError is returned by Open for a file of another version of lbd, which it did not change.
type SchemaError struct {
	Path             string
	Found, Supported uint32 // schema version of the file, and the supported one
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("%s has schema version %d, this lbd knows %d: run the lbd that wrote it, or give this one another data directory", e.Path, e.Found, e.Supported)
}
