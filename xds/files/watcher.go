package files

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/decode"
)

// Options are Open's.
type Options struct {
	// Logger is told of files that are ignored, and of trouble with watching;
	// nil for none.
	Logger *slog.Logger
	// OnScan is called with the first Scan, before Open returns, and with each that
	// differs from the one before, from one goroutine at a time. It must not call
	// Close. May be nil.
	OnScan func(*Scan)
	// MayBeAway lets Open succeed while the directory cannot be read.
	MayBeAway bool
	// Policies knows the load balancing policies and judges their configs; nil means
	// that none is available by its gRPC name.
	Policies decode.Policies
	// Lenient accepts unknown fields of JSON and YAML with a warning. Without it a
	// file that has one is bad.
	Lenient bool
	// Certificates describes the bootstrap's certificate providers; nil means that
	// there is no bootstrap.
	Certificates decode.CertificateProviders
}

// Watcher watches a directory of resource files. Its methods may be called at
// the same time.
type Watcher struct {
	// fixed after Open
	logger *slog.Logger
	onScan func(*Scan)
	timing timing
	quit   chan struct{}
	quiet  chan struct{} // closed when the goroutine has ended

	// the goroutine's only
	directory directory
	notify    *notifier
	last      look            // what the last reading was of
	ignored   map[string]bool // files that the logger was told of
	current   *Scan

	close sync.Once
}

// Open reads the files of a directory, calls OnScan with what they hold, and
// watches them from then on. Read are files whose names end in .json, .yaml,
// .yml or .pb and do not begin with a dot, not those in directories within;
// symlinks are followed. Each is a bundle, or one resource without an envelope,
// as decode.All takes it.
//
// A change is read once the directory has been quiet for 100 ms, or a second
// after the change if it is not. Where the system tells of none (network file
// systems, targets of symlinks that lead elsewhere) it is found within 30 s.
//
// The error is that the directory cannot be read. Bad files are no error: the Scan
// reports them.
func Open(dir string, o Options) (*Watcher, error) {
	return open(dir, o, usual)
}

func open(dir string, o Options, t timing) (*Watcher, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open directory of resources: %w", err)
	}
	w := &Watcher{
		logger: o.Logger,
		onScan: o.OnScan,
		timing: t,
		quit:   make(chan struct{}),
		quiet:  make(chan struct{}),
		directory: directory{
			decoding: decode.Options{
				Origin: decode.ByHand, Lenient: o.Lenient, Places: true, Bare: true,
				Policies: o.Policies, Certificates: o.Certificates,
			},
			path:  path,
			files: map[string]*file{},
		},
		ignored: map[string]bool{},
	}
	if w.logger == nil {
		w.logger = slog.New(slog.DiscardHandler)
	}
	w.notify = newNotifier(path, w.logger)
	seen := w.look()
	if seen.err != nil && !o.MayBeAway {
		w.notify.close()
		return nil, fmt.Errorf("open directory of resources: %w", seen.err)
	}
	w.read(seen)
	go w.watch()
	return w, nil
}

// Close ends the watching. After it OnScan is not called any more.
func (w *Watcher) Close() error {
	w.close.Do(func() { close(w.quit) })
	<-w.quiet
	return nil
}

// watch reads the files again whenever they change.
func (w *Watcher) watch() {
	defer close(w.quiet)
	defer w.notify.close()
	rescan := time.NewTicker(w.timing.rescan)
	defer rescan.Stop()
	due := time.NewTimer(0)
	due.Stop()
	defer due.Stop()

	u := unrest{timing: w.timing}
	for {
		var untold *look
		select {
		case <-w.quit:
			return
		case e := <-w.notify.events():
			if !w.notify.concerns(e) {
				continue
			}
		case err := <-w.notify.errors():
			w.logger.Warn("watching resource files: changes may have been missed", "dir", w.directory.path, "error", err)
		case <-rescan.C:
			seen := w.look()
			if seen.same(w.last) && !w.directory.fresh() {
				continue
			}
			untold = &seen
		case now := <-due.C:
			if seen := w.look(); u.over(now, seen) {
				w.read(seen)
				continue
			}
			due.Reset(time.Until(u.due))
			continue
		}
		w.notify.arm()
		u.change(time.Now(), untold)
		due.Reset(time.Until(u.due))
	}
}

// look looks at the directory, which is watched from before that on.
func (w *Watcher) look() look {
	w.notify.arm()
	return lookAt(w.directory.path)
}

// read reads what a look saw and may have changed, and reports the first Scan and
// each that differs.
func (w *Watcher) read(seen look) {
	w.last = seen
	if _, short := overload.Of(seen.err); short && w.current != nil {
		return // the next look that can read the directory shows a change
	}
	w.warn(seen.ignored)
	s := w.directory.read(seen, time.Now())
	if w.current != nil && s.same(w.current) {
		return
	}
	w.current = s
	if w.onScan != nil {
		w.onScan(s)
	}
}

// warn tells of files that are ignored, of each once while it is there.
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
		w.logger.Warn("ignored are files that are no .json, .yaml, .yml or .pb",
			"dir", w.directory.path, "count", len(fresh), "files", fresh[:min(len(fresh), 10)])
	}
}
