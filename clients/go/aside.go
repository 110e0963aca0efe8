package lbdclient

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	firstAside = time.Second
	maxAside   = 10 * time.Second
	// unknownEnds in a row set an address aside.
	unknownEnds = 3
	// forgetAside is the time after which an address is forgotten, in modes without a batch.
	forgetAside = 5 * time.Minute
)

// asides has the addresses of a cluster to which tries have failed.
type asides struct {
	known atomic.Int32 // the length of addresses

	mu        sync.Mutex
	addresses map[string]*aside
}

// aside is what the client remembers of an address. It is set aside if pause is not 0.
type aside struct {
	unknown int           // ends in a row without an answer
	pause   time.Duration // for which it is set aside
	until   time.Duration // when the next request is a trial
	trial   bool          // it is under way
}

// avoids reports whether requests avoid an address. When the time is over for which it is set aside, it permits one
// request: the trial.
func (a *asides) avoids(address string, at time.Duration) bool {
	if a.known.Load() == 0 {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.addresses[address]
	return known != nil && known.avoided(at)
}

func (k *aside) avoided(at time.Duration) bool {
	switch {
	case k.pause == 0:
		return false
	case at < k.until:
		return true
	}
	k.trial, k.until = true, at+maxAside // the next one if this never ends
	return false
}

// avoided returns the addresses that requests avoid.
func (a *asides) avoided() (addresses []string) {
	if a.known.Load() == 0 {
		return nil
	}
	at := now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for address, known := range a.addresses {
		if at > known.until+forgetAside {
			delete(a.addresses, address)
		} else if known.pause > 0 && at < known.until {
			addresses = append(addresses, address)
		}
	}
	a.known.Store(int32(len(a.addresses)))
	return addresses
}

// failed remembers a try that was not sent, or that was sent without an answer. most is the number of addresses that may
// be set aside.
func (a *asides) failed(address string, sent bool, most int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.addresses[address]
	if known == nil {
		if a.addresses == nil {
			a.addresses = map[string]*aside{}
		}
		known = &aside{until: now()}
		a.addresses[address] = known
		a.known.Store(int32(len(a.addresses)))
	}
	if sent {
		if known.unknown++; known.unknown < unknownEnds {
			if known.trial { // it was connected
				known.pause, known.trial = 0, false
			}
			return
		}
	}
	switch {
	case known.pause == 0 && a.setAside() < most:
		known.pause = firstAside
	case known.trial:
		known.pause = min(2*known.pause, maxAside)
	default: // a request that began before
		return
	}
	known.trial, known.until = false, now()+jitter(known.pause)
}

// setAside returns how many addresses are set aside.
func (a *asides) setAside() (n int) {
	for _, known := range a.addresses {
		if known.pause > 0 {
			n++
		}
	}
	return n
}

// forget forgets the addresses for which f returns true.
func (a *asides) forget(f func(address string) bool) {
	if a.known.Load() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for address := range a.addresses {
		if f(address) {
			delete(a.addresses, address)
		}
	}
	a.known.Store(int32(len(a.addresses)))
}

// answered forgets an address.
func (a *asides) answered(address string) {
	if a.known.Load() > 0 {
		a.forget(func(known string) bool { return known == address })
	}
}

const (
	// hurried is the number of connects of a request that end early, at most.
	hurried = 3
	// minHurry is the time that they have, at least; more if connects of the cluster take longer.
	minHurry = 250 * time.Millisecond
)

// connects has the durations of the last successful connects of a cluster.
type connects struct {
	mu    sync.Mutex
	took  [16]time.Duration
	count int
}

func (c *connects) add(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took[c.count%len(c.took)] = took
	c.count++
}

// limit returns the time that a connect has while there are other endpoints.
func (c *connects) limit() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := minHurry
	for _, took := range c.took {
		limit = max(limit, 3*took)
	}
	return limit
}
