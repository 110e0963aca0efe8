package access

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/test/must"
)

var noError = must.NoError

// fixture is an identity file that is open. Its methods run in a synctest bubble.
type fixture struct {
	t    *testing.T
	path string
	log  bytes.Buffer
	file *Reloading[*Identities]
}

func open(t *testing.T, content string) *fixture {
	t.Helper()
	f := &fixture{t: t, path: filepath.Join(t.TempDir(), "identities.yaml")}
	f.write(content, 0o640)
	var err error
	if f.file, err = Open(f.path, slog.New(slog.NewTextHandler(&f.log, nil)), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.file.Close)
	return f
}

func (f *fixture) write(content string, mode os.FileMode) {
	f.t.Helper()
	next := f.path + ".next"
	noError(f.t, errors.Join(os.WriteFile(next, []byte(content), mode), os.Chmod(next, mode), os.Rename(next, f.path)))
}

// check lets the file be checked until a change is in use.
func (f *fixture) check() {
	time.Sleep(2 * checkInterval)
	synctest.Wait()
}

const (
	webEntry = "{name: web, roles: [pick], sha256: " + hash + "}"
	ciEntry  = "{name: ci, roles: [push], uid: 7}"
)

func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t, "tokens: ["+webEntry+"]\nunix_peers: ["+ciEntry+"]")
		web, err := f.file.Current().Token("secret", time.Now())
		noError(t, err)
		ci, err := f.file.Current().Peer(7, 7, time.Now())
		noError(t, err)
		f.write("tokens: ["+webEntry+"]\nunix_peers: ["+strings.Replace(ciEntry, "push", "read", 1)+"]", 0o640)
		f.check()
		if again, err := f.file.Current().Token("secret", time.Now()); again != web || err != nil || revoked(web) {
			t.Errorf("an entry that did not change has caller %p (%v), revoked %v; want %p", again, err, revoked(web), web)
		}
		if again, err := f.file.Current().Peer(7, 7, time.Now()); err != nil || again.Roles != Read || !revoked(ci) || revoked(again) {
			t.Errorf("a changed entry has roles %v (%v), the old caller is revoked: %v", again.Roles, err, revoked(ci))
		}
		f.write("unix_peers: ["+ciEntry+"]", 0o640)
		f.check()
		if _, err := f.file.Current().Token("secret", time.Now()); !errors.Is(err, ErrUnknownToken) || !revoked(web) {
			t.Errorf("a removed entry: %v, revoked %v", err, revoked(web))
		}
	})
}

func TestReloadKeepsTheLastValidVersion(t *testing.T) {
	valid := "tokens: [" + webEntry + "]"
	for name, spoil := range map[string]struct {
		do   func(*fixture)
		want string
	}{
		"invalid":        {func(f *fixture) { f.write("tokens: [{}]", 0o640) }, "tokens[0]"},
		"world-readable": {func(f *fixture) { f.write(valid, 0o644) }, "every user can read or write it (mode 0644)"},
		"world-writable": {func(f *fixture) { f.write(valid, 0o602) }, "every user can read or write it (mode 0602)"},
		"a named pipe":   {func(f *fixture) { _ = errors.Join(os.Remove(f.path), syscall.Mkfifo(f.path, 0o600)) }, "not a regular file"},
		"removed":        {func(f *fixture) { _ = os.Remove(f.path) }, "no such file"},
		"a directory":    {func(f *fixture) { _ = errors.Join(os.Remove(f.path), os.Mkdir(f.path, 0o700)) }, "not a regular file"},
		"too large":      {func(f *fixture) { f.write(strings.Repeat("#", MaxFileBytes+1), 0o640) }, "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				f := open(t, valid)
				spoil.do(f)
				f.check()
				f.check()
				web, err := f.file.Current().Token("secret", time.Now())
				if err != nil || revoked(web) {
					t.Errorf("the token is not valid any more: %v", err)
				}
				since, err := f.file.Err()
				if !contains(err, spoil.want) || since.Before(start.Add(checkInterval)) || since.After(start.Add(2*checkInterval)) {
					t.Errorf("Err() = %v since %v; want %q", err, since, spoil.want)
				}
				if n := strings.Count(f.log.String(), "level=ERROR"); n != 1 {
					t.Errorf("%d errors are logged; want 1: %s", n, f.log.String())
				}
				_ = os.Remove(f.path) // a directory
				f.write(valid, 0o640)
				f.check()
				if _, err := f.file.Err(); err != nil {
					t.Errorf("Err() = %v after the repair", err)
				}
				if revoked(web) {
					t.Error("the repair revoked the caller")
				}
			})
		})
	}
}

// What is being written is read only when it is complete: two checks find the same.
func TestReloadWaitsForTheWholeFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := "unix_peers: [" + ciEntry + "]\ntokens: [" + webEntry + "]"
		f := open(t, whole)
		web, err := f.file.Current().Token("secret", time.Now())
		noError(t, err)
		first, _, _ := strings.Cut(whole, "\n")
		f.write(first, 0o640)
		time.Sleep(checkInterval)
		synctest.Wait()
		f.write(whole+"\n", 0o640)
		f.check()
		if again, err := f.file.Current().Token("secret", time.Now()); again != web || err != nil || revoked(web) {
			t.Errorf("a part of the file was in use: %v, revoked %v", err, revoked(web))
		}
	})
}

func TestReloadDuringAShortage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lacking := errors.New("too many open files")
		var fail atomic.Bool
		r, err := Reload(ReloadOptions[int]{
			Read: func() ([][]byte, error) {
				if fail.Load() {
					return nil, lacking
				}
				return nil, nil
			},
			Load:      func([][]byte) (int, error) { return 1, nil },
			Logger:    slog.New(slog.DiscardHandler),
			Transient: func(err error) bool { return errors.Is(err, lacking) },
		})
		noError(t, err)
		defer r.Close()
		fail.Store(true)
		time.Sleep(checkInterval)
		synctest.Wait()
		if _, err := r.Err(); err != nil || r.Current() != 1 {
			t.Errorf("Err() = %v", err)
		}
	})
}

func TestOpenRejects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "identities.yaml")
	if _, err := Open(path, slog.New(slog.DiscardHandler), nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	noError(t, os.WriteFile(path, []byte("tokens: [{}]"), 0o600))
	if _, err := Open(path, slog.New(slog.DiscardHandler), nil); !contains(err, path+": line 1: tokens[0]") {
		t.Error(err)
	}
}

func revoked(c *Caller) bool {
	select {
	case <-c.Revoked():
		return true
	default:
		return false
	}
}
