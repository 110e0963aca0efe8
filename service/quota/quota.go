// Package quota divides what callers of the API can use up: each [Resource] has a
// limit for all callers together and a smaller one for each caller, so that no
// caller can take what others need.
//
// A caller is represented by an [Account]. What is acquired through an account is
// released through the same account. All methods may be called from any goroutine
// and none blocks.
package quota

import (
	"cmp"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A Resource is what has a quota.
type Resource int

// The resources.
const (
	// Bytes are those of request bodies, of responses that are not yet written, and
	// of what is kept for a caller.
	Bytes Resource = iota
	// Bulk counts requests that read or change many resources.
	Bulk
	// Streams counts watches.
	Streams
	// WaitingPicks counts requests whose picks may wait for an endpoint.
	WaitingPicks
	// Leases counts leases that have not ended.
	Leases
	// UnknownNames counts the names of clusters that picks subscribe to, and that no management
	// server has confirmed.
	UnknownNames
	// IdempotentLeases counts the leases whose answers are kept for an idempotency key.
	IdempotentLeases

	// Resources is the number of resources.
	Resources
)

var resourceNames = [Resources]string{"bytes", "bulk_requests", "streams", "waiting_picks", "leases", "unknown_names", "idempotent_leases"}

// String returns the name of the resource in metrics and errors.
func (r Resource) String() string { return resourceNames[r] }

// DefaultShare is the part of each total that one caller may use.
const DefaultShare = 0.5

// A Class is a kind of callers, which each have the same quotas.
type Class struct {
	// Rate is how many requests per second a caller may make in the long run; 0 means
	// any number. Burst is how many it may make at once, at least 1.
	Rate, Burst float64
	// Limits are those of one caller. A resource without a limit has the default: the
	// share of its total.
	Limits map[Resource]int64
	// MaxTTL is the maximum ttl of a caller's leases, and MaxPicks the maximum number of picks
	// of one request; 0 for those of all callers.
	MaxTTL   time.Duration
	MaxPicks int
}

// Options are the quotas.
type Options struct {
	// Totals are the limits of all callers together. A resource without a total has
	// no limits.
	Totals map[Resource]int64
	// Share is the part of each total that one caller may use, unless its class has a
	// limit; 0 is DefaultShare.
	Share float64
	// Default is the class of callers without a class.
	Default *Class
	// MaxAccounts is the maximum number of accounts of callers without identity, and, apart from
	// them, of identities. Callers beyond it share one.
	MaxAccounts int
}

// LimitError says that a limit is reached.
type LimitError struct {
	Resource Resource
	// Own says that it is the caller's own limit, not that of all callers together.
	Own   bool
	Limit int64
}

func (e *LimitError) Error() string {
	if e.Own {
		return fmt.Sprintf("the caller's limit of %v is reached (%d)", e.Resource, e.Limit)
	}
	return fmt.Sprintf("the limit of %v is reached (%d)", e.Resource, e.Limit)
}

// RateError says that a caller makes too many requests.
type RateError struct{ RetryAfter time.Duration }

func (e *RateError) Error() string { return "the caller's request rate limit is reached" }

// Manager has the accounts and the totals.
type Manager struct {
	// Fixed after New.
	totals      [Resources]int64
	own         [Resources]int64 // of a caller whose class has no limit
	normal      *Class
	whole       *Class
	maxAccounts int
	overflow    *Account

	used      [Resources]atomic.Int64
	rejected  [Resources]rejections
	throttled atomic.Uint64
	anonymous room
	known     room // of identities

	mu sync.Mutex // guards creation and removal of accounts
}

// room has the accounts of one kind of callers, so that others leave room for them.
type room struct {
	accounts sync.Map // string → *Account

	// Guarded by mu of the Manager.
	number int
	swept  time.Time // when sweep last began
}

// sweepInterval is the minimum time between two searches for accounts that can be removed: each one
// looks at all accounts, while other new callers wait.
const sweepInterval = time.Second

type rejections struct{ own, total atomic.Uint64 }

// New returns a Manager without accounts.
func New(o Options) *Manager {
	o.Share = cmp.Or(o.Share, DefaultShare)
	if o.Default == nil {
		o.Default = new(Class)
	}
	m := &Manager{maxAccounts: o.MaxAccounts, normal: o.Default, whole: &Class{Limits: o.Totals}}
	for r, total := range o.Totals {
		m.totals[r] = total
		m.own[r] = max(1, int64(float64(total)*o.Share))
	}
	m.overflow = &Account{manager: m}
	m.overflow.class.Store(m.normal)
	m.overflow.pins.Store(math.MaxInt64 / 2) // never removed
	return m
}

// Whole is the class of a caller that may use all of each total, such as the only
// one of a listener that no other machine reaches.
func (m *Manager) Whole() *Class { return m.whole }

// Account is what one caller uses. A nil *Account has no limits.
type Account struct {
	manager *Manager
	class   atomic.Pointer[Class]
	used    [Resources]atomic.Int64
	// pins counts the uses of the account between Enter and Leave. It is negative once
	// the account is removed.
	pins atomic.Int64
	// next is when the next request is due at the rate, in nanoseconds (the theoretical
	// arrival time of GCRA, the generic cell rate algorithm).
	next atomic.Int64
}

// Enter returns the account of the caller without identity that has a key, in a class; nil is the
// default class. It must be followed by [Account.Leave].
func (m *Manager) Enter(key string, class *Class, now time.Time) *Account {
	return m.enter(&m.anonymous, key, class, now)
}

// EnterIdentity is Enter for the identity with a name. However many other callers there are, it has an
// account of its own.
func (m *Manager) EnterIdentity(name string, class *Class, now time.Time) *Account {
	return m.enter(&m.known, name, class, now)
}

func (m *Manager) enter(in *room, key string, class *Class, now time.Time) *Account {
	if class == nil {
		class = m.normal
	}
	for {
		a, ok := in.accounts.Load(key)
		if !ok {
			a = m.open(in, key, class, now)
		}
		account := a.(*Account)       //nolint:errcheck // the map has nothing else
		if account.pins.Add(1) <= 0 { // sweep is removing it
			account.pins.Add(-1)
			continue
		}
		if account.class.Load() != class && account != m.overflow {
			account.class.Store(class)
		}
		return account
	}
}

// Leave ends the use of an account. What was acquired remains acquired.
func (a *Account) Leave() { a.pins.Add(-1) }

// open returns the account of a key, which it creates if there is room.
func (m *Manager) open(in *room, key string, class *Class, now time.Time) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a, ok := in.accounts.Load(key); ok {
		return a
	}
	if in.number >= m.maxAccounts && now.Sub(in.swept) >= sweepInterval {
		in.swept = now
		in.sweep(now)
	}
	if in.number >= m.maxAccounts {
		return m.overflow
	}
	a := &Account{manager: m}
	a.class.Store(class)
	in.accounts.Store(key, a)
	in.number++
	return a
}

// sweep removes the accounts that use nothing. It is called under mu.
func (in *room) sweep(now time.Time) {
	in.accounts.Range(func(key, value any) bool {
		a := value.(*Account) //nolint:errcheck // the map has nothing else
		if !a.idle(now) || !a.pins.CompareAndSwap(0, math.MinInt64/2) {
			return true
		}
		if !a.idle(now) { // it was in use meanwhile
			a.pins.Add(-math.MinInt64 / 2)
			return true
		}
		in.accounts.Delete(key)
		in.number--
		return true
	})
}

func (a *Account) idle(now time.Time) bool {
	for r := range a.used {
		if a.used[r].Load() != 0 {
			return false
		}
	}
	return a.next.Load() <= now.UnixNano()
}

// Acquire takes n of a resource. The error is a *LimitError, which counts as a rejection.
func (a *Account) Acquire(r Resource, n int64) error {
	err := a.TryAcquire(r, n)
	if e, ok := err.(*LimitError); ok { //nolint:errorlint // TryAcquire returns no other
		if e.Own {
			a.manager.rejected[r].own.Add(1)
		} else {
			a.manager.rejected[r].total.Add(1)
		}
	}
	return err
}

// TryAcquire is Acquire for a caller that can make room: a failure does not count as a rejection.
func (a *Account) TryAcquire(r Resource, n int64) error {
	if a == nil || n == 0 {
		return nil
	}
	m := a.manager
	total := m.totals[r]
	if total == 0 {
		return nil
	}
	limit := m.own[r]
	if l, ok := a.class.Load().Limits[r]; ok {
		limit = l
	}
	if a.used[r].Add(n) > limit {
		a.used[r].Add(-n)
		return &LimitError{Resource: r, Own: true, Limit: limit}
	}
	if m.used[r].Add(n) > total {
		m.used[r].Add(-n)
		a.used[r].Add(-n)
		return &LimitError{Resource: r, Limit: total}
	}
	return nil
}

// Release returns n of a resource.
func (a *Account) Release(r Resource, n int64) {
	if a == nil || a.manager.totals[r] == 0 {
		return
	}
	a.used[r].Add(-n)
	a.manager.used[r].Add(-n)
}

// Used returns how much of a resource the account has acquired.
func (a *Account) Used(r Resource) int64 { return a.used[r].Load() }

// Use returns the part of a resource's total that is acquired, from 0 to 1.
func (m *Manager) Use(r Resource) float64 {
	if m.totals[r] == 0 {
		return 0
	}
	return float64(m.used[r].Load()) / float64(m.totals[r])
}

// Request counts n requests against the caller's rate. The error is a *RateError.
func (a *Account) Request(n int, now time.Time) error {
	class := a.class.Load()
	if class.Rate == 0 {
		return nil
	}
	interval := float64(time.Second) / class.Rate
	burst := int64(max(1, class.Burst, float64(n)) * interval)
	at := now.UnixNano()
	for {
		due := a.next.Load()
		next := max(due, at) + int64(float64(n)*interval)
		if ahead := next - at - burst; ahead > 0 {
			a.manager.throttled.Add(1)
			return &RateError{RetryAfter: time.Duration(ahead)}
		}
		if a.next.CompareAndSwap(due, next) {
			return nil
		}
	}
}

// Refund reverts Request for n requests that are counted again, elsewhere.
func (a *Account) Refund(n int) {
	if rate := a.class.Load().Rate; rate > 0 {
		a.next.Add(-int64(float64(n) * float64(time.Second) / rate))
	}
}
