package policy

import "time"

// ConnectTimer is a pending call of [Conn.AfterConnecting]. It belongs to the owner.
//
// It is suspended while a shortage in lbd prevents the tree from connecting: that time
// does not count.
type ConnectTimer struct {
	conn  *Conn
	f     func()
	left  time.Duration // as of since; without it while suspended
	since time.Time
	timer *Timer // nil while suspended
}

// AfterConnecting makes the owner run f after d in which the tree could connect.
func (c *Conn) AfterConnecting(d time.Duration, f func()) *ConnectTimer {
	t := &ConnectTimer{conn: c, f: f, left: d}
	if c.tree.running == nil {
		c.tree.running = make(map[*ConnectTimer]struct{})
	}
	c.tree.running[t] = struct{}{}
	t.follow()
	return t
}

// Stop cancels the call, as [Timer.Stop] does. A nil ConnectTimer is stopped.
func (t *ConnectTimer) Stop() {
	if t != nil {
		t.timer.Stop()
		delete(t.conn.tree.running, t)
	}
}

// Deadline returns when f will run; zero while suspended, or for a nil timer.
func (t *ConnectTimer) Deadline() time.Time {
	if t == nil || t.timer == nil {
		return time.Time{}
	}
	return t.since.Add(t.left)
}

// follow suspends or resumes the timer, as the tree is.
func (t *ConnectTimer) follow() {
	suspended := t.conn.Suspended()
	switch {
	case suspended && t.timer != nil:
		t.suspend()
	case !suspended && t.timer == nil:
		t.resume()
	}
}

func (t *ConnectTimer) resume() {
	t.since = time.Now()
	t.timer = t.conn.AfterFunc(t.left, func() {
		delete(t.conn.tree.running, t)
		t.f()
	})
}

func (t *ConnectTimer) suspend() {
	t.timer.Stop()
	t.timer = nil
	t.left = max(0, t.left-time.Since(t.since))
}

// Suspend suspends all connect timers of the tree, or resumes them. Only the owner may
// call it.
func (t *Tree) Suspend(on bool) {
	t.suspended = on
	t.follow()
}

// SuspendRoot is Suspend for one root (see [Conn.Root]), whose timers resume when the
// sum of all n is 0.
func (t *Tree) SuspendRoot(root string, n int) {
	if t.suspendedRoots == nil {
		t.suspendedRoots = make(map[string]int)
	}
	if t.suspendedRoots[root] += n; t.suspendedRoots[root] == 0 {
		delete(t.suspendedRoots, root)
	}
	t.follow()
}

func (t *Tree) follow() {
	for timer := range t.running {
		timer.follow()
	}
}

// Suspended reports whether connect timers of c are suspended.
func (c *Conn) Suspended() bool { return c.tree.suspended || c.tree.suspendedRoots[c.root] > 0 }
