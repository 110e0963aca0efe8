package store

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed answers an Update of a store that was closed.
	ErrClosed = errors.New("store is closed")

	// ErrInUse is Open's answer while another process (or another Store of this
	// one) has the directory open.
	ErrInUse = errors.New("data directory is in use by another lbd")

	// ErrCannotWrite answers an Update whose writes did not reach the disk: no
	// space, a quota, an I/O error, a file that was removed (*[LostError]). Nothing of it is in the snapshot. A later
	// Update may succeed.
	ErrCannotWrite = errors.New("cannot write to the data directory")

	// ErrInvalidKey answers a Put whose key has no type, a type with a NUL byte,
	// or more than [MaxKeySize] bytes.
	ErrInvalidKey = errors.New("invalid key")

	// ErrTooLarge answers a Put of more than [MaxValueSize] bytes.
	ErrTooLarge = errors.New("value too large")
)

// DamagedError is Open's answer to a file that is not as it was written. The
// file was set aside. It is the answer to every further Open, for as long as what
// was set aside lies there and there is no other file: nobody who starts lbd again
// and again is to begin empty unawares.
type DamagedError struct {
	// Path is where the file was.
	Path string
	// SetAside is where it is now; empty if it could not be renamed.
	SetAside string
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
	default:
		return fmt.Sprintf("%s is damaged: %v; it was kept as %s; restore a backup as %[1]s, or move every %[1]s%[4]s* away to begin empty", e.Path, e.Reason, e.SetAside, damagedInfix)
	}
}

func (e *DamagedError) Unwrap() error { return e.Reason }

// SchemaError is Open's answer to a file that a newer lbd wrote. The file was
// not touched.
type SchemaError struct {
	Path string
	// Found is the file's schema version, Supported the newest that is understood.
	Found, Supported uint32
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("%s has schema version %d, this lbd knows %d: run the lbd that wrote it, or give this one another data directory", e.Path, e.Found, e.Supported)
}

// PanicError answers an Update whose function panicked. Its writes are rolled
// back.
type PanicError struct {
	Value any
	// Stack is the panicking goroutine's, as of runtime/debug.Stack.
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("store update panicked: %v", e.Value) }
