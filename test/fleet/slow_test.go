package fleet

import (
	"net/http"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/etcd"
)

// TestSlowEtcd: a connection to etcd with latency, little bandwidth, or that is cut or half open.
// Picks never fail, a push succeeds or fails within a bounded time, and afterwards the daemon is
// at the last state.
func TestSlowEtcd(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	proxies := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(proxies, "etcd", freePort(t), m.client)
	noError(t, proxies.Collection.Add(proxy, true))
	t.Cleanup(func() { _ = proxies.Collection.Clear() })
	slow := startDaemon(t, "etcd://"+proxy.Listen+"/lbd")
	direct := startDaemon(t, "etcd://"+m.client+"/lbd")
	for _, d := range []*daemon{slow, direct} {
		d.untilReady(t, http.StatusOK)
	}
	direct.mustPush(t, "orders", 1)
	until(t, "both have it", func() bool { return slow.pick("orders") == "127.0.0.1:80" })
	value := 1
	for _, c := range []struct {
		name, toxic string
		succeeds    bool
	}{
		{"latency", `{"type":"latency","attributes":{"latency":400,"jitter":300}}`, true},
		{"bandwidth", `{"type":"bandwidth","attributes":{"rate":20}}`, true},
		{"half open", `{"type":"timeout","attributes":{"timeout":0}}`, false},
		{"reset", `{"type":"reset_peer","attributes":{"timeout":300}}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			toxic, err := proxy.Toxics.AddToxicJson(strings.NewReader(c.toxic))
			noError(t, err)
			for range 3 {
				value++
				began := time.Now()
				status, text := slow.push("orders", value)
				switch took := time.Since(began); {
				case took > 13*time.Second:
					t.Errorf("a push took %v", took)
				case c.succeeds && status != http.StatusOK, status != http.StatusOK && status != http.StatusServiceUnavailable:
					t.Errorf("a push: %d %s", status, text)
				}
				if got := slow.pick("orders"); !strings.HasPrefix(got, "127.0.0.") {
					t.Errorf("picked %s", got)
				}
			}
			noError(t, proxy.Toxics.RemoveToxic(t.Context(), toxic.Name))
			value++
			direct.mustPush(t, "orders", value)
			until(t, "it catches up", func() bool {
				return slow.pick("orders") == strings.Replace("127.0.0.N:80", "N", number(value), 1)
			})
			until(t, "a push succeeds", func() bool { status, _ := slow.push("orders", value); return status == http.StatusOK })
		})
	}
}

func number(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return number(n/10) + number(n%10)
}

// TestSlowStart: everything is read over a connection that is too slow for pages of the usual
// size.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	s := mustOpenAt(t, etcd.Config{Endpoints: []string{m.client}, Prefix: "lbd"}, "", etcd.Options{})
	last, err := s.Update(t.Context(), func(tx *store.Tx) error { return many(tx, "1") }) // 1.5 MB
	noError(t, err)
	proxies := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(proxies, "etcd", freePort(t), m.client)
	noError(t, proxies.Collection.Add(proxy, true))
	t.Cleanup(func() { _ = proxies.Collection.Clear() })
	if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(`{"type":"bandwidth","attributes":{"rate":150}}`)); err != nil {
		t.Fatal(err)
	}
	slow := mustOpenAt(t, etcd.Config{Endpoints: []string{proxy.Listen}, Prefix: "lbd"}, "", etcd.Options{})
	until(t, "it has read everything", func() bool { return slow.Snapshot().Index() == last.Index() })
}
