package access

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
)

// checkInterval is how often files are checked for changes.
const checkInterval = time.Second

// others are the permissions of users other than the owner and the group to read
// and to write a file.
const others = 0o006

// ReadFile returns the content of a regular file of at most [MaxFileBytes].
func ReadFile(path string) ([]byte, error) {
	data, _, err := read(path)
	return data, err
}

// ReadSecret is ReadFile for a file that only its owner and group may read and write.
func ReadSecret(path string) ([]byte, error) {
	data, mode, err := read(path)
	if err == nil && mode&others != 0 {
		return nil, fmt.Errorf("%s: every user can read or write it (mode %04o): run chmod o-rwx on it, or set defaultMode of a Kubernetes volume to 0440", path, mode)
	}
	return data, err
}

func read(path string) (data []byte, mode fs.FileMode, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe would block
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = file.Close() }() // it was only read
	info, err := file.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	data, err = io.ReadAll(io.LimitReader(file, MaxFileBytes+1))
	if err == nil && len(data) > MaxFileBytes {
		err = fmt.Errorf("%s: larger than %d bytes", path, MaxFileBytes)
	}
	return data, info.Mode().Perm(), err
}

// failure is why the files are not in use.
type failure struct {
	err   error
	since time.Time
}

// EarlyError says that files are not yet valid: they are tried again without a change.
type EarlyError struct {
	Name string
	At   time.Time
}

func (e *EarlyError) Error() string {
	return fmt.Sprintf("%s is not valid before %s", e.Name, e.At.UTC().Format(time.RFC3339))
}

// ReloadOptions are the options of [Reload].
type ReloadOptions[T any] struct {
	// Name of the files in log messages: "identity file".
	Name string
	// Read reads the files. What it returns is compared with what it returned
	// before.
	Read func() ([][]byte, error)
	// Load makes the value of what Read returned.
	Load func([][]byte) (T, error)
	// Replace is called before successor takes the place of old.
	Replace func(old, successor T)
	// Invalid returns why a value is not valid at a time, such as an expired certificate; nil for always
	// valid. What it returns of the value in use is logged. May be nil.
	Invalid func(v T, now time.Time) error
	Logger  *slog.Logger
	// Transient reports whether an error of Read is a shortage of lbd's own, during
	// which the files count as unchanged.
	Transient func(error) bool
}

// A Reloading is a value made from files. It is made again when the files have
// changed and two checks have found the same, which takes 2 s at most; while they
// are invalid, the last valid value stays in use.
type Reloading[T any] struct {
	// fixed after Reload
	options ReloadOptions[T]
	closed  chan struct{}
	stopped sync.WaitGroup

	// of the goroutine that checks
	seen    [][]byte // what the value, or the error of Load, was made of
	changed [][]byte // what the last check found if it is not seen: it may be incomplete
	warned  string   // of the value in use

	value atomic.Pointer[T]
	err   atomic.Pointer[failure]
}

// Reload reads files, and checks them until Close is called. It returns an error
// if they are invalid now.
func Reload[T any](o ReloadOptions[T]) (*Reloading[T], error) {
	r := &Reloading[T]{options: o, closed: make(chan struct{})}
	contents, err := o.Read()
	if err != nil {
		return nil, err
	}
	v, err := o.Load(contents)
	if err != nil {
		return nil, err
	}
	r.seen = contents
	r.value.Store(&v)
	r.warn()
	r.stopped.Go(r.check)
	return r, nil
}

// Current returns the value of the last valid content.
func (r *Reloading[T]) Current() T { return *r.value.Load() }

// Err returns why the present content is not in use, and since when; or nil.
func (r *Reloading[T]) Err() (since time.Time, err error) {
	if f := r.err.Load(); f != nil {
		return f.since, f.err
	}
	return time.Time{}, nil
}

// Close ends the checks. The value stays. It must be called once.
func (r *Reloading[T]) Close() {
	close(r.closed)
	r.stopped.Wait()
}

func (r *Reloading[T]) check() {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-r.closed:
			return
		case <-ticker.C:
			r.reload()
			r.warn()
		}
	}
}

func (r *Reloading[T]) reload() {
	contents, err := r.options.Read()
	if err != nil {
		if r.options.Transient == nil || !r.options.Transient(err) {
			r.seen, r.changed = nil, nil // the same content counts as changed when it can be read again
			r.fail(err)
		}
		return
	}
	if r.seen != nil && slices.EqualFunc(contents, r.seen, bytes.Equal) {
		r.changed = nil
		return
	}
	if r.changed == nil || !slices.EqualFunc(contents, r.changed, bytes.Equal) {
		r.changed = contents
		return
	}
	r.seen, r.changed = contents, nil
	v, err := r.options.Load(contents)
	if err != nil {
		if _, early := errors.AsType[*EarlyError](err); early {
			r.seen = nil // try again
		}
		r.fail(err)
		return
	}
	if r.options.Replace != nil {
		r.options.Replace(r.Current(), v)
	}
	r.value.Store(&v)
	r.err.Store(nil)
	r.options.Logger.Info("reloaded files", "files", r.options.Name)
}

// warn logs once why the value in use is not valid.
func (r *Reloading[T]) warn() {
	if r.options.Invalid == nil {
		return
	}
	text := fault.Text(r.options.Invalid(r.Current(), time.Now()))
	if text != "" && text != r.warned {
		r.options.Logger.Warn("files in use are not valid", "files", r.options.Name, "error", text)
	}
	r.warned = text
}

// fail keeps the value, and logs err once.
func (r *Reloading[T]) fail(err error) {
	now := &failure{err: err, since: time.Now()}
	if old := r.err.Load(); old != nil {
		if old.err.Error() == err.Error() {
			return
		}
		now.since = old.since
	}
	r.err.Store(now)
	r.options.Logger.Error("files are invalid: their last valid version stays in use", "files", r.options.Name, "error", err)
}

// Open reads an identity file and reads it again when it changes. Callers that
// the new content removes or changes are revoked.
func Open(path string, logger *slog.Logger, transient func(error) bool) (*Reloading[*Identities], error) {
	return Reload(ReloadOptions[*Identities]{
		Name: "identity file",
		Read: func() ([][]byte, error) {
			data, err := ReadSecret(path)
			return [][]byte{data}, err
		},
		Load: func(contents [][]byte) (*Identities, error) {
			i, err := Parse(contents[0])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			return i, nil
		},
		Replace:   func(old, successor *Identities) { successor.replace(old) },
		Logger:    logger,
		Transient: transient,
	})
}
