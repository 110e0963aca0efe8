package files

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// notifier has the system tell of changes in a directory, and of the directory's
// own coming and going by way of its parent. It is used by one goroutine at a
// time.
type notifier struct {
	logger *slog.Logger
	// system is nil where there is none to tell.
	system *fsnotify.Watcher
	dir    watched
	parent watched
}

// watched is a directory that the system tells of.
type watched struct {
	path string
	// info is the directory that is watched, nil for none: another may come to
	// have the path.
	info fs.FileInfo
	// complaint is why it could not be watched, as it was logged.
	complaint string
}

func newNotifier(dir string, logger *slog.Logger) *notifier {
	n := &notifier{logger: logger, dir: watched{path: dir}, parent: watched{path: filepath.Dir(dir)}}
	var err error
	if n.system, err = fsnotify.NewWatcher(); err != nil {
		n.system = nil
		logger.Warn("the system tells of no changes of resource files: they are looked at from time to time",
			"dir", dir, "error", err)
	}
	return n
}

// arm watches what is not watched, and is there.
func (n *notifier) arm() {
	if n.system == nil {
		return
	}
	n.watch(&n.parent)
	n.watch(&n.dir)
}

func (n *notifier) watch(w *watched) {
	info, err := os.Stat(w.path)
	if err == nil && n.watches(w, info) {
		return
	}
	_ = n.system.Remove(w.path) // which fails where nothing is watched any more
	w.info = nil
	if err != nil {
		return
	}
	if err := n.system.Add(w.path); err != nil {
		if w.complaint != err.Error() {
			w.complaint = err.Error()
			n.logger.Warn("a directory of resource files cannot be watched: it is looked at from time to time",
				"dir", w.path, "error", err)
		}
		return
	}
	w.info, w.complaint = info, ""
}

// watches reports whether the directory that has the path now is watched. The
// system stops of itself when one is removed or renamed, and one that comes after
// it may be the same by its inode.
func (n *notifier) watches(w *watched, info fs.FileInfo) bool {
	return w.info != nil && os.SameFile(info, w.info) && slices.Contains(n.system.WatchList(), w.path)
}

// concerns reports whether an event may be of a change in the directory. Of what
// happens beside it, only that matters which makes its path lead to another.
func (n *notifier) concerns(e fsnotify.Event) bool {
	if e.Name == n.dir.path || filepath.Dir(e.Name) == n.dir.path {
		return true
	}
	info, err := os.Stat(n.dir.path)
	if err != nil {
		return n.dir.info != nil
	}
	return !n.watches(&n.dir, info)
}

func (n *notifier) events() <-chan fsnotify.Event {
	if n.system == nil {
		return nil
	}
	return n.system.Events
}

func (n *notifier) errors() <-chan error {
	if n.system == nil {
		return nil
	}
	return n.system.Errors
}

func (n *notifier) close() {
	if n.system != nil {
		_ = n.system.Close() // which always succeeds
	}
}
