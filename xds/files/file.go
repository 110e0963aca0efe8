package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/decode"
)

// Limits of the directory.
const (
	// MaxFiles is the most files that are read: those first by name.
	MaxFiles = 1000
	// maxListed is the number of files, by name, after which those that were never read are only counted.
	maxListed = 2 * MaxFiles
	// MaxFileBytes is the largest file that is read.
	MaxFileBytes = 32 << 20
)

// FormatOf returns the format of a file by the extension of its name, in any case. ok is
// false for other names: such a file is not read.
func FormatOf(name string) (f decode.Format, ok bool) {
	f, ok = formats[strings.ToLower(filepath.Ext(name))]
	return f, ok
}

// NameOf returns the name of a ClusterLoadAssignment or a Cluster without a name that is a
// file of its own: that of the file, without the extension.
func NameOf(path string) string {
	name := filepath.Base(path)
	return strings.TrimSuffix(name, filepath.Ext(name))
}

// Extensions are those of the formats, for messages.
const Extensions = ".json, .yaml, .yml, .pb or .txt"

var formats = map[string]decode.Format{
	".json": decode.FormatJSON,
	".yaml": decode.FormatYAML,
	".yml":  decode.FormatYAML,
	".pb":   decode.FormatProtobuf,
	".txt":  decode.FormatText,
}

type file struct {
	*budget
	decoding decode.Options // without the format and the name

	stamp fs.FileInfo // when the file was last read; nil if it could not be
	tried fs.FileInfo // when it could not be read; nil if it could
	fresh bool        // it was modified so shortly before that a later change may not change stamp
	short bool        // it could not be read because lbd lacks a resource

	seen       fs.FileInfo // by the last look
	seenAt     time.Time   // when a look first saw that
	waitsSince time.Time   // for its writer; zero if it does not wait

	state *File // when it was last read
}

// budget limits how much is decoded at a time.
type budget struct {
	ctx   context.Context // ends when the watcher is closed
	turns *overload.Turns
}

// memoryFactor is about how many times its size a file takes when it is decoded and in a balancer tree.
const memoryFactor = 10

// freshness is the coarsest resolution of the modification times of file systems.
const freshness = 2 * time.Second

// read reads and validates the file if it may have changed; info is the current one.
func (f *file) read(path string, info fs.FileInfo, k *look) {
	now := k.now
	if f.unchanged(info) || k.again && f.tried != nil && sameFile(f.tried, info) {
		return
	}
	was := f.short
	body, stamp, release, err := f.load(path)
	defer release() // what was decoded is data by then, and all files are read before any is in use
	_, f.short = overload.Of(err)
	if f.short = f.short || errors.As(err, new(*overload.MemoryError)); f.short && (was || f.stamp != nil) {
		return // keep the state, and read again later
	}
	if err != nil {
		f.fail(err, now)
		if !f.short {
			f.tried = info
		}
		return
	}
	turn, err := f.turns.BeginSized(f.ctx, overload.SourceWork, path, len(body))
	if err != nil {
		return // the watcher is closed
	}
	defer turn.End()
	f.stamp, f.tried, f.fresh = stamp, nil, now.Sub(stamp.ModTime()) < freshness
	sum := sha256.Sum256(body)
	state := &File{Sum: hex.EncodeToString(sum[:]), Modified: stamp.ModTime()}
	if f.state != nil && f.state.Sum == state.Sum {
		return
	}
	o := f.decoding
	o.Format, _ = FormatOf(path) // a listing has no others
	o.Name = NameOf(path)
	o.Pause = turn.Pause
	state.Bundle, state.Err = decode.All(body, o)
	if errors.As(state.Err, new(*decode.StoppedError)) && f.ctx.Err() != nil {
		return // the watcher is closed
	}
	if state.Err != nil {
		o.Lenient = true
		state.Valid = decode.Valid(body, o)
		state.Since = f.badSince(now)
	}
	f.state = state
}

// unchanged reports whether the file is certainly the one that was read.
func (f *file) unchanged(info fs.FileInfo) bool {
	return f.stamp != nil && !f.fresh && sameFile(f.stamp, info)
}

func (f *file) fail(err error, now time.Time) {
	f.stamp, f.tried = nil, nil
	if f.state != nil && f.state.Sum == "" && text(f.state.Err) == text(err) {
		return
	}
	f.state = &File{Err: err, Since: f.badSince(now)}
}

func (f *file) badSince(now time.Time) time.Time {
	if f.state != nil && f.state.Err != nil {
		return f.state.Since
	}
	return now
}

// load reads a file, after it has reserved the memory for it until release.
func (f *file) load(path string) (_ []byte, _ fs.FileInfo, release func(), _ error) {
	release = func() {}
	// The regular file may have become a pipe, on which open must not wait.
	in, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, release, err
	}
	defer func() { _ = in.Close() }() // nothing was written
	info, err := in.Stat()
	if err != nil {
		return nil, nil, release, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, release, &fs.PathError{Op: "read", Path: path, Err: errors.New("is not a regular file")}
	}
	var body bytes.Buffer
	if info.Size() <= MaxFileBytes {
		if release, err = f.turns.ReserveSource(path, int(info.Size()), memoryFactor); err != nil {
			return nil, nil, release, err
		}
		body.Grow(int(info.Size()) + bytes.MinRead)
		_, err = body.ReadFrom(io.LimitReader(in, MaxFileBytes+1))
	}
	if max(info.Size(), int64(body.Len())) > MaxFileBytes {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("is larger than %d bytes", MaxFileBytes)}
	}
	return body.Bytes(), info, release, err
}

// sameFile reports whether two infos of a file show no difference.
func sameFile(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
