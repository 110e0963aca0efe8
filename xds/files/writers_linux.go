package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// writers knows from notifications of the system which files of a directory programs write. fsnotify does not
// report that a writer has closed a file. One goroutine at a time uses it.
type writers struct {
	fd    int // of inotify; -1 for none
	files map[string]writing
	lost  bool // notifications were lost since all files were read
}

func newWriters() *writers { return &writers{fd: -1} }

func (w *writers) complete() bool { return w.fd >= 0 && !w.lost }

// watch forgets everything, and watches a directory from now on. Without notifications nothing is known.
func (w *writers) watch(dir string) {
	w.close()
	w.files, w.lost = map[string]writing{}, false
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return
	}
	w.fd = fd
	const mask = unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM
	if _, err := unix.InotifyAddWatch(fd, dir, mask); err != nil {
		w.close()
	}
}

// update reads the notifications so far.
func (w *writers) update() {
	var buffer [16 << 10]byte
	for w.fd >= 0 {
		n, err := unix.Read(w.fd, buffer[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		for b := buffer[:n]; len(b) >= unix.SizeofInotifyEvent; {
			mask, size := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[12:])
			name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size], []byte{0})
			w.event(mask, string(name))
			b = b[unix.SizeofInotifyEvent+size:]
		}
	}
}

func (w *writers) event(mask uint32, name string) {
	switch {
	case mask&unix.IN_Q_OVERFLOW != 0:
		clear(w.files)
		w.lost = true
	case mask&unix.IN_MODIFY != 0:
		w.files[name] = written
	case mask&unix.IN_MOVED_TO != 0:
		w.files[name] = moved
	case mask&unix.IN_CREATE != 0:
		w.files[name] = created
	case mask&unix.IN_CLOSE_WRITE == 0: // it is gone
		delete(w.files, name)
	case w.files[name] != moved:
		w.files[name] = closed
	}
}

func (w *writers) close() {
	if w.fd >= 0 {
		_ = unix.Close(w.fd)
	}
	w.fd = -1
}

// local are the file systems that refuse a lease only because of writers. Those of a network also refuse it
// with the same error if their server has not granted one.
var local = []int64{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.RAMFS_MAGIC,
	unix.OVERLAYFS_SUPER_MAGIC,
}

// hasWriter reports whether a program has an open file open for writing. The system answers only for files of
// lbd's own user, and only on local file systems: else known is false.
func hasWriter(f *os.File) (has, known bool) {
	conn, err := f.SyscallConn()
	if err != nil {
		return false, false
	}
	var lease error
	if conn.Control(func(fd uintptr) { // a lease for reading is refused while there are writers, who then wait for its end
		var on unix.Statfs_t
		if lease = unix.Fstatfs(int(fd), &on); lease != nil || !slices.Contains(local, int64(on.Type)) { //nolint:unconvert // 32 bits on some systems
			lease = unix.ENOTSUP
			return
		}
		if _, lease = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK); lease == nil {
			_, lease = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
		}
	}) != nil {
		return false, false
	}
	has = errors.Is(lease, syscall.EAGAIN)
	return has, has || lease == nil
}
