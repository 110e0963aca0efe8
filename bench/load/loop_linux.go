package load

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-dev/lbd/bench/process"
	"github.com/lbd-dev/lbd/bench/stat"
)

// loop is one load. Times are since its begin.
type loop struct {
	spec    Spec
	script  []step
	begin   time.Time
	epoll   int
	timer   int
	workers []*worker
	conns   []*conn // by file descriptor
	draw    *rand.Rand

	next    time.Duration   // when the next iteration of an open loop is due
	waiting []time.Duration // when iterations were due that wait for a connection, the oldest first
	idle    []*worker

	measuring bool
	done      uint64 // iterations that ended while measuring
	latencies stat.Histogram
	late      stat.Histogram
}

// step is a request of the script. after is what follows the lease ID, if it has one.
type step struct {
	Request

	before, after []byte
	leased        bool
}

// worker runs one iteration at a time, on a connection to each target.
type worker struct {
	conns    []*conn
	step     int
	started  time.Duration // of the iteration: when it was due, or sent
	measured bool
	lease    []byte
	request  []byte // buffer
}

type conn struct {
	fd       int // -1 if it is not connected
	target   int
	worker   *worker
	received []byte
}

// maxExtra is how much longer a measurement may last until an iteration has ended.
const maxExtra = 5 * time.Second

// run generates a load until its end, and waits for the last responses.
func run(spec Spec) (Result, error) {
	runtime.LockOSThread() // the timer slack is the thread's
	defer runtime.UnlockOSThread()
	l := &loop{spec: spec, begin: time.Now(), epoll: -1, timer: -1, draw: rand.New(rand.NewPCG(1, uint64(spec.Connections)))}
	defer l.close()
	if err := l.open(); err != nil {
		return Result{}, err
	}
	l.begin = time.Now()
	if spec.Rate == 0 {
		for _, w := range l.workers {
			if err := l.start(w, 0); err != nil {
				return Result{}, err
			}
		}
	} else {
		l.idle = append(l.idle, l.workers...)
	}
	if err := l.until(spec.Warmup); err != nil {
		return Result{}, err
	}
	cpu, err := l.cpu()
	if err != nil {
		return Result{}, err
	}
	l.measuring = true
	begin := l.now()
	if err := l.until(begin + spec.Duration); err != nil {
		return Result{}, err
	}
	for l.done == 0 && l.now() < begin+maxExtra { // a short measurement, on a busy machine
		if err := l.until(l.now() + spec.Duration); err != nil {
			return Result{}, err
		}
	}
	elapsed, count := l.now()-begin, l.done
	after, err := l.cpu()
	if err != nil {
		return Result{}, err
	}
	if err := l.finish(); err != nil {
		return Result{}, err
	}
	if count == 0 {
		return Result{}, errors.New("no iteration ended in time")
	}
	return Result{
		Iterations: count, Elapsed: elapsed, CPU: after - cpu,
		Min: l.latencies.Min(), Mean: l.latencies.Mean(), P50: l.latencies.Quantile(0.5), P99: l.latencies.Quantile(0.99),
		Late: l.late.Quantile(0.99),
	}, nil
}

func (l *loop) now() time.Duration { return time.Since(l.begin) }

func (l *loop) cpu() (time.Duration, error) {
	var total time.Duration
	for _, pid := range l.spec.CPUOf {
		used, err := process.CPU(pid)
		if err != nil {
			return 0, err
		}
		total += used
	}
	return total, nil
}

func (l *loop) open() (err error) {
	// Timers are late by 50 µs by default.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set the timer slack: %w", err)
	}
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll_create1: %w", err)
	}
	if l.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return fmt.Errorf("timerfd_create: %w", err)
	}
	if err := l.watch(l.timer); err != nil {
		return err
	}
	for _, r := range l.spec.Script {
		s := step{Request: r}
		s.before, s.after, s.leased = bytes.Cut(r.Raw, []byte(LeaseID))
		l.script = append(l.script, s)
	}
	for range l.spec.Connections {
		w := &worker{step: -1}
		for i := range l.spec.Targets {
			w.conns = append(w.conns, &conn{fd: -1, target: i, worker: w})
		}
		l.workers = append(l.workers, w)
		if l.spec.Reconnect {
			continue
		}
		for _, c := range w.conns {
			if err := l.connect(c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *loop) close() {
	for _, c := range l.conns {
		if c != nil && c.fd >= 0 {
			_ = unix.Close(c.fd) // the load has ended
		}
	}
	for _, fd := range []int{l.epoll, l.timer} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func (l *loop) watch(fd int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// connect opens a connection. It blocks, which on this machine takes microseconds.
func (l *loop) connect(c *conn) error {
	t := l.spec.Targets[c.target]
	family, address, err := socketAddress(t)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Connect(fd, address)
	}
	if err == nil && t.Network == "tcp" {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("connect to %s: %w", t.Address, err)
	}
	c.fd, c.received = fd, c.received[:0]
	for len(l.conns) <= fd {
		l.conns = append(l.conns, nil)
	}
	l.conns[fd] = c
	return l.watch(fd)
}

func socketAddress(t Target) (family int, address unix.Sockaddr, err error) {
	switch t.Network {
	case "unix":
		return unix.AF_UNIX, &unix.SockaddrUnix{Name: t.Address}, nil
	case "tcp":
		ap, err := netip.ParseAddrPort(t.Address)
		if err != nil || !ap.Addr().Is4() || !ap.Addr().IsLoopback() {
			return 0, nil, fmt.Errorf("%s is not an IPv4 loopback address with a port", t.Address)
		}
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}, nil
	}
	return 0, nil, fmt.Errorf("network %s is neither tcp nor unix", t.Network)
}

// until handles events until a time.
func (l *loop) until(end time.Duration) error {
	for {
		now := l.now()
		if now >= end {
			return nil
		}
		wake := end
		if l.spec.Rate > 0 {
			if err := l.dispatch(now); err != nil {
				return err
			}
			wake = min(wake, l.next)
		}
		if err := l.wait(wake - now); err != nil {
			return err
		}
	}
}

// maxWaiting bounds the iterations that wait for a connection.
const maxWaiting = 1 << 20

// dispatch starts the iterations that are due.
func (l *loop) dispatch(now time.Duration) error {
	for ; l.next <= now; l.next += time.Duration(l.draw.ExpFloat64() / l.spec.Rate * float64(time.Second)) {
		if n := len(l.idle); n > 0 {
			w := l.idle[n-1]
			l.idle = l.idle[:n-1]
			if l.measuring {
				l.late.Add(int64(now - l.next))
			}
			if err := l.start(w, l.now()); err != nil {
				return err
			}
			continue
		}
		if l.waiting = append(l.waiting, l.next); len(l.waiting) > maxWaiting {
			return fmt.Errorf("%d requests are due and wait: the server is overloaded", len(l.waiting))
		}
	}
	return nil
}

// finishTimeout is how long the last responses may take.
const finishTimeout = 10 * time.Second

// finish waits for the iterations that have started or are due.
func (l *loop) finish() error {
	if l.spec.Rate == 0 {
		return nil // the last iterations of a closed loop are as long as the others
	}
	end := l.now() + finishTimeout
	for len(l.idle) < len(l.workers) {
		now := l.now()
		if now > end {
			return fmt.Errorf("%d requests had no response after %s", len(l.workers)-len(l.idle)+len(l.waiting), finishTimeout)
		}
		if err := l.wait(end - now); err != nil {
			return err
		}
	}
	return nil
}

// wait handles the events of a period of at most d.
func (l *loop) wait(d time.Duration) error {
	d = max(d, 1)
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(l.timer, 0, &at, nil); err != nil {
		return fmt.Errorf("timerfd_settime: %w", err)
	}
	var events [128]unix.EpollEvent
	n, err := unix.EpollWait(l.epoll, events[:], -1)
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("epoll_wait: %w", err)
	}
	for _, e := range events[:n] {
		if int(e.Fd) == l.timer {
			var expirations [8]byte
			_, _ = unix.Read(l.timer, expirations[:]) // only resets it
			continue
		}
		if c := l.conns[e.Fd]; c != nil && c.fd == int(e.Fd) {
			if err := l.read(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// start begins an iteration, whose latency counts from a time.
func (l *loop) start(w *worker, from time.Duration) error {
	w.started, w.measured, w.step = from, l.measuring, -1
	return l.advance(w)
}

// advance sends the next request of an iteration, or ends the iteration.
func (l *loop) advance(w *worker) error {
	if w.step++; w.step < len(l.script) {
		return l.send(w, &l.script[w.step])
	}
	now := l.now()
	if l.measuring {
		l.done++
	}
	if w.measured {
		l.latencies.Add(int64(now - w.started))
	}
	switch {
	case l.spec.Rate == 0:
		return l.start(w, now)
	case len(l.waiting) > 0:
		due := l.waiting[0]
		l.waiting = l.waiting[1:]
		return l.start(w, due)
	}
	l.idle = append(l.idle, w)
	return nil
}

func (l *loop) send(w *worker, s *step) error {
	c := w.conns[s.Target]
	if l.spec.Reconnect {
		if err := l.connect(c); err != nil {
			return err
		}
	}
	request := s.Raw
	if s.leased {
		w.request = append(append(append(w.request[:0], s.before...), w.lease...), s.after...)
		request = w.request
	}
	n, err := unix.Write(c.fd, request)
	if err == nil && n < len(request) {
		err = fmt.Errorf("only %d of %d bytes", n, len(request))
	}
	if err != nil {
		return fmt.Errorf("write a request to %s: %w", l.spec.Targets[c.target].Address, err)
	}
	return nil
}

const readSize = 16 << 10

func (l *loop) read(c *conn) error {
	if cap(c.received)-len(c.received) < readSize {
		c.received = append(make([]byte, 0, 2*cap(c.received)+readSize), c.received...)
	}
	n, err := unix.Read(c.fd, c.received[len(c.received):cap(c.received)])
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return fmt.Errorf("read from %s: %w", l.spec.Targets[c.target].Address, err)
	case n == 0:
		return fmt.Errorf("%s closed the connection after %q", l.spec.Targets[c.target].Address, c.received)
	}
	c.received = c.received[:len(c.received)+n]
	status, length, body, err := response(c.received)
	if err != nil || length == 0 {
		return err
	}
	if status < 200 || status > 299 {
		return fmt.Errorf("status %d: %.500s", status, body)
	}
	if length < len(c.received) {
		return fmt.Errorf("more than one response: %.200q", c.received[length:])
	}
	w := c.worker
	if next := w.step + 1; next < len(l.script) && l.script[next].leased {
		id, err := leaseID(body)
		if err != nil {
			return err
		}
		w.lease = append(w.lease[:0], id...)
	}
	c.received = c.received[:0]
	if l.spec.Reconnect {
		l.conns[c.fd] = nil
		if err := unix.Close(c.fd); err != nil {
			return fmt.Errorf("close: %w", err)
		}
		c.fd = -1
	}
	return l.advance(w)
}
