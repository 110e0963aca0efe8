package resolver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/xds/resolver"
)

// zone answers look-ups as the test says, and counts them.
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
		})
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
			t.Error("a name that nobody wants is looked up")
		}
	})
}

func TestDNSBackoffGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{names: map[string][]string{}}
		d := resolver.NewDNS(z.lookup, func(string, []string, error) {})
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
