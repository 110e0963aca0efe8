package resolver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/resolver"
)

// zone answers lookups for the test, and counts them.
type zone struct {
	mu      sync.Mutex
	names   map[string][]string
	lookups int
}

func (z *zone) lookup(_ context.Context, host string) ([]string, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.lookups++
	if a := z.names[host]; a != nil {
		return a, nil
	}
	return nil, errors.New("no such host")
}

func (z *zone) set(addresses ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.names["a"] = addresses
}

func (z *zone) count() int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.lookups
}

func TestDNSReportsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{names: map[string][]string{}}
		var mu sync.Mutex
		var reports []string
		d := resolver.NewDNS(z.lookup, func(host string, addresses []string, err error) {
			mu.Lock()
			defer mu.Unlock()
			reports = append(reports, fmt.Sprint(host, " ", addresses, " ", err))
		}, nil)
		defer d.Close()
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(reports, "; "); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			reports = nil
		}
		d.Want(map[string]bool{"a:80": true})
		const unknown = `a:80 [] resolve "a": no such host`
		expect(unknown)
		z.set("10.0.0.1", "10.0.0.2")
		time.Sleep(1200 * time.Millisecond) // the first back-off, at most
		expect("a:80 [10.0.0.1:80 10.0.0.2:80] <nil>")
		z.set("10.0.0.2", "10.0.0.1")
		time.Sleep(resolver.DNSInterval)
		expect("") // only the order turned
		z.set("10.0.0.3")
		time.Sleep(resolver.DNSInterval)
		expect("a:80 [10.0.0.3:80] <nil>")
		z.set()
		time.Sleep(resolver.DNSInterval)
		expect(unknown)
		z.set("10.0.0.3")
		time.Sleep(1200 * time.Millisecond)
		expect("a:80 [10.0.0.3:80] <nil>") // good again

		d.Want(nil)
		n := z.count()
		time.Sleep(time.Hour)
		if z.count() != n {
			t.Error("an unwanted name is looked up")
		}
	})
}

func TestDNSBackoffGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{names: map[string][]string{}}
		d := resolver.NewDNS(z.lookup, func(string, []string, error) {}, nil)
		defer d.Close()
		d.Want(map[string]bool{"a:80": true})
		time.Sleep(time.Hour)
		// 1 s growing by 1.6 reaches 120 s with the eleventh; then 30 an hour,
		// give or take a fifth.
		if n := z.count(); n < 30 || n > 55 {
			t.Errorf("%d look-ups of a name that is not there, in an hour", n)
		}
	})
}

// A lookup that fails because of a shortage of lbd does not affect the name. It is
// made again, soon after the shortage is over, at a pace that does not slow down.
func TestDNSShortage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{names: map[string][]string{"a": {"10.0.0.1"}}}
		var mu sync.Mutex
		lacking := false
		lookup := func(ctx context.Context, host string) ([]string, error) {
			found, err := z.lookup(ctx, host)
			mu.Lock()
			defer mu.Unlock()
			if lacking {
				err = &net.DNSError{Name: host, Err: "dial udp 127.0.0.53:53: socket: " + syscall.EMFILE.Error(), IsTemporary: true}
			}
			return found, err
		}
		m := overload.NewMonitor(func() error { return nil })
		defer m.Close()
		var reports []string
		d := resolver.NewDNS(lookup, func(host string, addresses []string, err error) {
			reports = append(reports, fmt.Sprint(host, " ", addresses, " ", err))
		}, m)
		defer d.Close()
		d.Want(map[string]bool{"a:80": true})
		time.Sleep(time.Second)
		mu.Lock()
		lacking = true
		mu.Unlock()
		time.Sleep(10 * time.Minute)
		if n := z.count(); !m.Short() || n < 350 || n > 1300 {
			t.Errorf("%d look-ups in 10 minutes; shortages: %v", n, m.Current())
		}
		z.set("10.0.0.2")
		mu.Lock()
		lacking = false
		mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := strings.Join(reports, "; "); got != "a:80 [10.0.0.1:80] <nil>; a:80 [10.0.0.2:80] <nil>" {
			t.Errorf("reported %q", got)
		}
	})
}

func TestDNSLookupsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hosts = 3*resolver.DNSLookups + 1
		answer := make(chan struct{})
		var mu sync.Mutex
		asking, answered := 0, 0
		lookup := func(ctx context.Context, _ string) ([]string, error) {
			mu.Lock()
			asking++
			if asking > resolver.DNSLookups {
				t.Errorf("%d look-ups are under way", asking)
			}
			mu.Unlock()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				asking--
			}()
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-answer:
				return []string{"192.0.2.1"}, nil
			}
		}
		d := resolver.NewDNS(lookup, func(host string, _ []string, err error) {
			if err != nil {
				t.Errorf("%s: %v", host, err)
			}
			mu.Lock()
			defer mu.Unlock()
			answered++
		}, nil)
		want := make(map[string]bool)
		for i := range hosts {
			want[fmt.Sprintf("host%d:80", i)] = true
		}
		d.Want(want)
		synctest.Wait()
		if asking != resolver.DNSLookups {
			t.Errorf("%d look-ups are under way; demanded are %d", asking, resolver.DNSLookups)
		}
		// The wait for a turn is no part of the time that an answer may take.
		for range hosts {
			time.Sleep(resolver.DNSTimeout / 100)
			answer <- struct{}{}
		}
		synctest.Wait()
		if answered != hosts {
			t.Errorf("%d of %d names are answered", answered, hosts)
		}
		// A waiting lookup does not delay Close.
		clear(want)
		for i := range hosts {
			want[fmt.Sprintf("other%d:80", i)] = true
		}
		d.Want(want)
		synctest.Wait()
		d.Close()
	})
}
