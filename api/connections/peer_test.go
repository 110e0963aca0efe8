package connections

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A peer at its limit loses the connection that was idle longest, while others connect; it is rejected
// at once if none is idle.
func TestPeersAreLimited(t *testing.T) {
	var full []string
	o := Options{Max: 10, MaxPeer: 2, Peer: peerOf, PeerFull: func(p string) { full = append(full, p) }}
	openFor(t, o, func(t *testing.T, h *house) {
		from := func(peer string) *visitor {
			h.peer = peer
			return h.connect()
		}
		a, b := from("x"), from("x")
		for _, v := range []*visitor{b, a} { // b has been idle longest
			v.serves()
			time.Sleep(time.Second)
		}
		c, other := from("x"), from("y")
		b.expect("closed")
		for _, v := range []*visitor{a, c, other} {
			v.serves()
		}
		a.ask("/wait")
		c.ask("/wait")
		begin := time.Now()
		for range 3 {
			h.peer = "x"
			d := h.connectNow()
			if got := d.answered(); !strings.HasPrefix(got, "503 Service Unavailable 1 ") || !strings.Contains(got, "--max-peer-connections") {
				t.Errorf("beyond the limit: %s", got)
			}
			_ = d.Close()
		}
		if time.Since(begin) != 0 || len(full) != 3 || full[0] != "x" || h.full != 0 {
			t.Errorf("rejected after %v, reported %q", time.Since(begin), full)
		}
		for range 4 { // without a limit
			from("").serves()
		}
		h.answer <- struct{}{}
		h.answer <- struct{}{}
		a.expect("200 OK")
		c.expect("200 OK")
		time.Sleep(time.Second)
		e := from("x")
		e.serves()
		if evicted, refused := h.limiter.peerEvicted.Load(), h.limiter.peerRefused.Load(); evicted != 2 || refused != 3 || h.limiter.evicted.Load() != 0 {
			t.Errorf("%d evicted, %d refused; %d evicted for others", evicted, refused, h.limiter.evicted.Load())
		}
	})
}

// A peer may come back when its connections are closed, whether by it, at the limit on all, or because
// there was no room; nothing remains of it.
func TestPeersAreForgotten(t *testing.T) {
	o := Options{Max: 2, MaxPeer: 1, Peer: peerOf, PeerFull: func(string) {}}
	openFor(t, o, func(t *testing.T, h *house) {
		peers := func() int {
			synctest.Wait()
			h.limiter.mu.Lock()
			defer h.limiter.mu.Unlock()
			return len(h.limiter.peers)
		}
		h.peer = "x"
		first := h.connect()
		first.serves()
		_ = first.Close()
		if n := peers(); n != 0 {
			t.Errorf("%d peers without connections", n)
		}
		var all []*visitor
		for _, h.peer = range []string{"a", "b"} {
			all = append(all, h.connect())
			all[len(all)-1].ask("/wait")
		}
		h.peer = "c" // no room
		if got := h.connectNow().answered(); !strings.Contains(got, "--max-connections") || peers() != 2 {
			t.Errorf("%s; %d peers", got, peers())
		}
		for _, v := range all {
			h.answer <- struct{}{}
			v.expect("200 OK")
			time.Sleep(time.Second) // the next has been idle for less
		}
		h.connect().serves() // a makes room
		if n := peers(); n != 2 {
			t.Errorf("%d peers; want b and c", n)
		}
		all[0].expect("closed")
	})
}
