package store

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed is returned by Update after Close.
	ErrClosed = errors.New("store is closed")

	// ErrInUse is returned by Open while another process, or another Store of this
	// one, has the directory open.
	ErrInUse = errors.New("data directory is in use by another lbd")

	// ErrCannotWrite is returned by Update if its writes did not reach the disk: no
	// space, a quota, an I/O error, a file that was removed (*[LostError]). Nothing of
	// it is in the snapshot. A later Update may succeed.
	ErrCannotWrite = errors.New("cannot write to the data directory")

	// ErrInvalidKey is returned by Put if the key has no type, a type with a NUL byte,
	// or more than [MaxKeySize] bytes.
	ErrInvalidKey = errors.New("invalid key")

	// ErrTooLarge is returned by Put for more than [MaxValueSize] bytes.
	ErrTooLarge = errors.New("value too large")
)

// damagedInfix is in the names of damaged files, between the file's own name and the
// time at which it was set aside.
const damagedInfix = ".damaged-"

// DamagedError is returned by Open for a file that is not as it was written. The
// file was set aside. It is the answer to every further Open, for as long as what
// was set aside lies there and there is no other file: nobody who starts lbd again
// and again is to begin empty unawares.
type DamagedError struct {
	// Path is where the file was.
	Path string
	// SetAside is where it is now; empty if it could not be renamed.
	SetAside string
	// Intact is a file with what the commits before the damage made; empty if there
	// is none. It has older values of what later commits changed, if any did.
	Intact string
	// Reason is what is wrong with it, and why it could not be renamed; nil if it
	// was set aside by an earlier Open.
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

// SchemaError is returned by Open for a file that a newer lbd wrote. The file was
// not touched.
type SchemaError struct {
	Path string
	// Found is the file's schema version, Supported the newest that is understood.
	Found, Supported uint32
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("%s has schema version %d, this lbd knows %d: run the lbd that wrote it, or give this one another data directory", e.Path, e.Found, e.Supported)
}

// PanicError is returned by Update if its function panicked. Its writes are rolled
// back.
type PanicError struct {
	Value any
	// Stack is the panicking goroutine's, as of runtime/debug.Stack.
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("store update panicked: %v", e.Value) }
