package ctl

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"
)

// Control sequences of terminals (ECMA-48, and the private modes of xterm).
const (
	// enterScreen uses the alternate screen without a cursor, and cuts long lines.
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	toStart     = "\x1b[H"
	clearLine   = "\x1b[K"
	clearRest   = "\x1b[J"
)

const (
	redrawInterval = time.Second
	// reasonTimeout limits the time in which the daemon says why a cluster has a problem.
	reasonTimeout = time.Second
)

type topCommand struct {
	Prefix string `help:"Only clusters whose names begin with this (default all)" placeholder:"PREFIX"`
}

// Run shows the clusters until q is pressed, or a signal arrives.
func (t *topCommand) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	return o.with(app, func(s *session) error {
		if !isTerminal(s.stdout.to) || s.output != "table" {
			return usage("top draws on a terminal only: use lbd ctl get clusters or lbd ctl watch for other output")
		}
		keys, restore, err := openKeyboard()
		if err != nil {
			return usage("use the terminal: %w", err)
		}
		defer restore()
		s.draw(enterScreen)
		defer s.draw(leaveScreen)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		return t.show(ctx, s, keys)
	})
}

func (s *session) draw(text string) { _, _ = s.stdout.Write([]byte(text)) } // s.written has the error

// openKeyboard returns the keys that are pressed, if standard input is a terminal. They are not echoed
// until restore is called.
func openKeyboard() (keys <-chan byte, restore func(), err error) {
	if !isTerminal(os.Stdin) {
		return nil, func() {}, nil
	}
	fd := int(os.Stdin.Fd())
	state, err := term.MakeRaw(fd)
	if err != nil {
		return nil, nil, err
	}
	pressed := make(chan byte, 1)
	go func() { // A terminal cannot be read with a context: the read ends with the process.
		var one [1]byte
		for {
			if n, err := os.Stdin.Read(one[:]); err != nil || n == 0 {
				return
			}
			pressed <- one[0]
		}
	}()
	return pressed, func() { _ = term.Restore(fd, state) }, nil
}

// show draws the overview at each change, and at least once in an interval.
func (t *topCommand) show(ctx context.Context, s *session, keys <-chan byte) error {
	events, lost, ended := make(chan event), make(chan string), make(chan error, 1)
	f := follower{client: s.client, path: "/v1/clusters/watch", query: parameters("prefix", t.Prefix)}
	f.handle = func(e event) error { return send(ctx, events, e) }
	f.lost = func(err error, pause time.Duration) {
		_ = send(ctx, lost, "connection lost: "+firstLine(err)+"; reconnecting in "+pause.String())
	}
	go func() { ended <- f.run(ctx) }()
	tick := time.NewTicker(redrawInterval)
	defer tick.Stop()
	var o overview
	for s.stdout.err == nil {
		select {
		case e := <-events:
			if err := o.handle(e, time.Now()); err != nil {
				return err
			}
		case notice := <-lost:
			o.interrupt(notice)
		case <-tick.C:
			s.explainProblem(ctx, &o)
		case key := <-keys:
			if strings.ContainsRune("qQ\x03\x04", rune(key)) { // Ctrl-C and Ctrl-D are keys here
				return nil
			}
		case err := <-ended:
			return err
		case <-ctx.Done():
			return nil
		}
		if o.clusters != nil || o.notice != "" {
			width, height := s.size()
			lines := o.lines(s.client.name(), time.Now(), width, height, s.color())
			s.draw(toStart + strings.Join(lines, clearLine+"\r\n") + clearLine + clearRest)
		}
	}
	return s.written()
}

// send sends a value unless ctx ends before.
func send[T any](ctx context.Context, to chan<- T, v T) error {
	select {
	case to <- v:
		return nil
	case <-ctx.Done():
		return errInterrupted
	}
}

// explainProblem asks the daemon why the worst cluster without a reason has a problem. An error is not
// shown: the next interval tries again.
func (s *session) explainProblem(ctx context.Context, o *overview) {
	_, height := s.size()
	c := o.unexplained(time.Now(), height)
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reasonTimeout)
	defer cancel()
	var state clusterState
	path := "/v1/clusters/" + segment(c.Name)
	if _, err := s.client.get(ctx, path, parameters("target", c.Target, "endpoints", "false"), &state); err == nil {
		c.explain(state)
	}
}

// size returns the number of columns and lines of the terminal; those of a VT100 if it is unknown.
func (s *session) size() (width, height int) {
	if f, ok := s.stdout.to.(*os.File); ok {
		if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 && height > 0 {
			return width, height
		}
	}
	return 80, 24
}
