package files

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/decode"
)

// Options are Open's.
type Options struct {
	// Logger logs ignored files and errors of watching; nil for none.
	Logger *slog.Logger
	// OnScan is called with the first Scan, before Open returns, and with each that
	// differs from the one before, from one goroutine at a time. It must not call
	// Close. May be nil.
	OnScan func(*Scan)
	// MayBeAway lets Open succeed while the directory cannot be read.
	MayBeAway bool
	// Policies knows the load balancing policies and validates their configs; nil means
	// that none is available by its gRPC name.
	Policies decode.Policies
	// Lenient accepts unknown fields of JSON and YAML with a warning. Without it a
	// file that has one is bad.
	Lenient bool
	// Certificates describes the bootstrap's certificate providers; nil means that
	// there is no bootstrap.
	Certificates decode.CertificateProviders
	// Fleet is true for a daemon that shares its store with others.
	Fleet bool
	// Turns is the budget of decoding; nil for none.
	Turns *overload.Turns
}

// Watcher watches a directory of resource files. Its methods are safe for concurrent use.
type Watcher struct {
	// fixed after Open
	logger *slog.Logger
	onScan func(*Scan)
	timing timing
	quit   context.Context // ends with Close
	end    context.CancelFunc
	quiet  chan struct{} // closed when the goroutine has ended

	// the goroutine's only
	directory directory
	notify    *notifier
	last      listing         // that was read last
	ignored   map[string]bool // files that were logged
	current   *Scan
}

// Open reads the files of a directory, calls OnScan with their resources, and watches them
// from then on. It reads files whose names end in .json, .yaml, .yml, .pb or .txt and do not
// begin with a dot, not those in subdirectories; it follows symlinks. Each file is a
// bundle, or one resource without an envelope, as decode.All takes it.
//
// A change is read when the directory has not changed for 100 ms, at most a second after
// the change, except that of a file which may be unfinished ([file.waits]). Without
// notifications (network file systems, targets of symlinks elsewhere) a change is found
// within 30 s.
//
// The error is that the directory cannot be read. The Scan reports bad files.
func Open(dir string, o Options) (*Watcher, error) {
	return open(dir, o, defaultTiming)
}

func open(dir string, o Options, t timing) (*Watcher, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open directory of resources: %w", err)
	}
	w := &Watcher{
		logger: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		onScan: o.OnScan,
		timing: t,
		quiet:  make(chan struct{}),
		directory: directory{
			decoding: decode.Options{
				Origin: decode.ByHand, Lenient: o.Lenient, Places: true, Bare: true,
				Policies: o.Policies, Certificates: o.Certificates, Fleet: o.Fleet,
			},
			path:  path,
			files: map[string]*file{},
		},
		ignored: map[string]bool{},
	}
	w.quit, w.end = context.WithCancel(context.Background())
	w.directory.budget = &budget{w.quit, o.Turns}
	w.notify = newNotifier(path, w.logger)
	seen := w.list()
	if seen.err != nil && !o.MayBeAway {
		w.end()
		w.notify.close()
		return nil, fmt.Errorf("open directory of resources: %w", seen.err)
	}
	k := &look{timing: t, now: time.Now(), first: true}
	waiting := w.directory.waiting(seen, k)
	w.read(seen, k, waiting)
	go w.watch(len(waiting) > 0 || w.directory.short())
	return w, nil
}

// Close ends the watching. After it OnScan is not called any more.
func (w *Watcher) Close() error {
	w.end()
	<-w.quiet
	return nil
}

// watch reads what changes. It looks again soon if the first look has found files that wait, or lacked a resource.
func (w *Watcher) watch(again bool) {
	defer close(w.quiet)
	defer w.notify.close()
	rescan := time.NewTicker(w.timing.rescan)
	defer rescan.Stop()
	due := time.NewTimer(w.timing.quiet)
	if !again {
		due.Stop()
	}
	defer due.Stop()

	u := debounce{timing: w.timing}
	for {
		var unnotified *listing
		select {
		case <-w.quit.Done():
			return
		case e := <-w.notify.events:
			if !w.notify.concerns(e) {
				continue
			}
		case err := <-w.notify.errors:
			w.logger.Warn("watching resource files: changes may have been missed", "dir", w.directory.path, "error", err)
		case <-rescan.C:
			seen := w.list()
			if seen.same(w.last) && !w.directory.fresh() {
				continue
			}
			unnotified = &seen
		case now := <-due.C:
			w.notify.writers.update()
			seen := w.list()
			k := w.look(&u, now)
			waiting := w.directory.waiting(seen, k)
			if now.Before(u.end) && len(waiting) > 0 {
				due.Reset(u.quiet) // what changed together is read together
				continue
			}
			if !u.over(now, seen) {
				due.Reset(time.Until(u.due))
				continue
			}
			w.read(seen, k, waiting)
			if len(waiting) > 0 || w.directory.short() {
				due.Reset(max(u.quiet, u.most/2))
			}
			if len(waiting) == 0 {
				w.notify.writers.lost = false
			}
			continue
		}
		w.notify.writers.update() // before too many wait
		w.notify.arm()
		u.change(time.Now(), unnotified)
		due.Reset(time.Until(u.due))
	}
}

// look returns what is known besides a listing.
func (w *Watcher) look(u *debounce, now time.Time) *look {
	n := w.notify.writers
	return &look{w.timing, now, false, !u.begun, now.Sub(u.last) >= u.quiet, u.unnotified == nil && n.complete(), n.files}
}

// list lists the directory after it is watched.
func (w *Watcher) list() listing {
	w.notify.arm()
	return readListing(w.directory.path, w.directory.files)
}

// read reads the files of a listing that may have changed, and reports the first Scan and
// each that differs.
func (w *Watcher) read(seen listing, k *look, waiting map[string]bool) {
	w.last = seen
	if _, short := overload.Of(seen.err); short && w.current != nil {
		return // the next listing without error differs
	}
	w.warn(seen.ignored)
	s := w.directory.read(seen, k, waiting)
	if w.quit.Err() != nil {
		return // it may not have been read
	}
	if w.current != nil && s.same(w.current) {
		return
	}
	w.current = s
	if w.onScan != nil {
		w.onScan(s)
	}
}

// warn logs ignored files, each once while it exists.
func (w *Watcher) warn(ignored []string) {
	var fresh []string
	now := make(map[string]bool, len(ignored))
	for _, name := range ignored {
		now[name] = true
		if !w.ignored[name] {
			fresh = append(fresh, name)
		}
	}
	w.ignored = now
	if len(fresh) > 0 {
		w.logger.Warn("files that are no "+Extensions+" are ignored",
			"dir", w.directory.path, "count", len(fresh), "files", fresh[:min(len(fresh), 10)])
	}
}
