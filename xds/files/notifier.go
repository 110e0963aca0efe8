package files

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// notifier subscribes to the system's notifications of changes in a directory, and in its
// parent for those of the directory itself. One goroutine at a time uses it.
type notifier struct {
	logger *slog.Logger
	system *fsnotify.Watcher // nil if the system has no notifications
	events <-chan fsnotify.Event
	errors <-chan error
	dir    watched
	parent watched
	// writers watches the directory as well.
	writers *writers
}

type watched struct {
	path   string
	info   fs.FileInfo // of the watched directory, which another may replace; nil for none
	logged string      // the last logged error
}

func newNotifier(dir string, logger *slog.Logger) *notifier {
	n := &notifier{logger: logger, dir: watched{path: dir}, parent: watched{path: filepath.Dir(dir)}, writers: newWriters()}
	var err error
	if n.system, err = fsnotify.NewWatcher(); err != nil {
		n.system = nil
		logger.Warn("cannot be notified of changes of resource files: the directory is read every 30 s",
			"dir", dir, "error", err)
		return n
	}
	n.events, n.errors = n.system.Events, n.system.Errors
	return n
}

// arm watches the directories that exist and are not watched yet.
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
	_ = n.system.Remove(w.path) // fails if it is not watched
	w.info = nil
	if err != nil {
		return
	}
	if err := n.system.Add(w.path); err != nil {
		if w.logged != err.Error() {
			w.logged = err.Error()
			n.logger.Warn("cannot watch a directory of resource files: it is read every 30 s",
				"dir", w.path, "error", err)
		}
		return
	}
	if w.info, w.logged = info, ""; w == &n.dir {
		n.writers.watch(w.path)
	}
}

// watches reports whether the directory that now has the path is watched. The system
// stops watching one that is removed or renamed, and its successor may have its inode.
func (n *notifier) watches(w *watched, info fs.FileInfo) bool {
	return w.info != nil && os.SameFile(info, w.info) && slices.Contains(n.system.WatchList(), w.path)
}

// concerns reports whether an event may be about a change in the directory, or in its
// parent about another directory that replaces it.
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

func (n *notifier) close() {
	n.writers.close()
	if n.system != nil {
		_ = n.system.Close() // which always succeeds
	}
}
