package lbdclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
)

// pushTarget pushes a target with a route for /a, to a cluster.
func pushTarget(t *testing.T, d *lbdtest.Daemon, name, cluster string) {
	t.Helper()
	d.Call(t, "POST", "/v1/snapshot", fmt.Sprintf(`{"resources":[{"@type":"type.googleapis.com/envoy.config.listener.v3.Listener","name":%q,
		"api_listener":{"api_listener":{"@type":"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"route_config":{"virtual_hosts":[{"name":"a","domains":["*"],"routes":[{"match":{"prefix":"/a"},"route":{"cluster":%q}}]}]}}}}]}`, name, cluster))
}

// TestPathWithoutARoute: requests without a route fail, and no others, also when batches are replaced.
func TestPathWithoutARoute(t *testing.T) {
	t.Parallel()
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", upstream(t, nil))
	pushTarget(t, d, "shop", "orders")
	_, client := connect(t, lbdclient.Config{
		Address: d.Address, MaxAge: 200 * time.Millisecond, StaleFor: time.Second, Hosts: map[string]lbdclient.Host{"shop.lbd": {Target: "shop"}},
	})
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		_, _, err := get(client, "http://shop.lbd/b")
		var refused *lbdclient.Error
		if !errors.As(err, &refused) || refused.Code != "no_route" {
			t.Fatal(err)
		}
		if status, _, err := get(client, "http://shop.lbd/a"); status != http.StatusOK {
			t.Fatal(status, err)
		}
	}
}

// TestKeysHideNoEndpoint: a request without a key has all endpoints, also if the last batch is for a key.
func TestKeysHideNoEndpoint(t *testing.T) {
	t.Parallel()
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", refused(t), upstream(t, nil))
	d.Call(t, "PUT", "/v1/clusters/orders/config", `{"type":"EDS","lb_policy":"RING_HASH"}`)
	for i := range 10 {
		_, client := connect(t, lbdclient.Config{Address: d.Address, Hosts: map[string]lbdclient.Host{"orders.lbd": {Hash: "header:user"}}})
		request, err := http.NewRequest(http.MethodGet, "http://orders.lbd", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, user := range []string{fmt.Sprint(i), "", "", "", ""} {
			request.Header.Set("user", user)
			response, err := client.Do(request)
			if err != nil {
				t.Fatalf("user %q: %v", user, err)
			}
			if err := response.Body.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestLongQuestions: what is too long for lbd is an error of the request, and does not make lbd unreachable.
func TestLongQuestions(t *testing.T) {
	t.Parallel()
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", upstream(t, nil))
	pushTarget(t, d, "shop", "orders")
	for _, mode := range []lbdclient.Mode{lbdclient.ModeBatch, lbdclient.ModePick, lbdclient.ModeLease} {
		_, client := connect(t, lbdclient.Config{
			Address: d.Address, Mode: mode, Fallback: upstream(t, nil), Hosts: map[string]lbdclient.Host{"shop.lbd": {Target: "shop"}},
			OnState: func(s lbdclient.State) { t.Errorf("%s: lbd is %s", mode, s) },
		})
		for _, target := range []string{
			"http://shop.lbd/" + strings.Repeat("%2F", 100_000), "http://" + strings.Repeat("a", 100_000) + ".lbd/",
			"http://shop.lbd/a" + strings.Repeat("a", 5000), // lbd says so
		} {
			_, _, err := get(client, target)
			var refused *lbdclient.Error
			if !errors.As(err, &refused) || refused.Code != "invalid_argument" || len(refused.Error()) > 1000 {
				t.Errorf("%s: %.1000v", mode, err)
			}
			mustGet(t, client, "http://shop.lbd/a")
		}
	}
}

// TestOneCallForAKey: requests that need the batch of a key at the same time wait for one call. It does not end with the
// request that began it.
func TestOneCallForAKey(t *testing.T) {
	t.Parallel()
	good := upstream(t, nil)
	var calls atomic.Int64
	begun, end := make(chan struct{}), make(chan struct{})
	address := standIn(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/v1/clusters/"):
			<-r.Context().Done() // nothing changes
		case r.URL.Query().Get("hash") == "b":
			if calls.Add(1) == 1 {
				close(begun)
			}
			<-end
		}
		fmt.Fprintf(w, `{"generation":1,"picks":[{"address":"%s"}]}`, good)
	})
	client, _ := connect(t, lbdclient.Config{Address: address})
	pick := func(ctx context.Context, key string) error {
		pick, err := client.Pick(lbdclient.WithAsk(ctx, lbdclient.Ask{Hash: key}), "orders")
		if err == nil {
			pick.End(lbdclient.Success)
		}
		return err
	}
	if err := pick(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var requests sync.WaitGroup
	requests.Go(func() {
		if err := pick(ctx, "b"); !errors.Is(err, context.Canceled) {
			t.Errorf("the request that its caller gave up: %v", err)
		}
	})
	<-begun
	cancel()
	requests.Wait()
	for range 100 {
		requests.Go(func() {
			if err := pick(t.Context(), "b"); err != nil {
				t.Error(err)
			}
		})
	}
	close(end)
	requests.Wait()
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls to lbd", n)
	}
}

// TestRejectedKeyHarmsNoOthers: lbd rejects a hash key. The cluster is followed without it, as before.
func TestRejectedKeyHarmsNoOthers(t *testing.T) {
	t.Parallel()
	good := upstream(t, nil)
	var batches, rejected atomic.Int64
	address := standIn(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/v1/clusters/"): // nothing changes
		case r.URL.Query().Has("hash"):
			rejected.Add(1)
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"code":"invalid_argument"}`)
			return
		default:
			batches.Add(1)
		}
		fmt.Fprintf(w, `{"generation":1,"picks":[{"address":"%s"}]}`, good)
	})
	client, sender := connect(t, lbdclient.Config{Address: address, MaxAge: 10 * time.Millisecond})
	mustGet(t, sender, "http://orders.lbd/")
	if _, err := client.Pick(lbdclient.WithAsk(t.Context(), lbdclient.Ask{Hash: "a"}), "orders"); kindOf(t, err).Code != "invalid_argument" {
		t.Error(err)
	}
	before := batches.Load()
	lbdtest.Until(t, "there are more batches", func() bool { return batches.Load() > before+2 || rejected.Load() > 1 })
	if n := rejected.Load(); n != 1 {
		t.Errorf("%d calls with the key", n)
	}
}

// TestKeysFollowTheGeneration: an answer for one key has another generation. That for another key is forgotten, also if it
// is the batch of the task that follows the cluster, which does not know yet.
func TestKeysFollowTheGeneration(t *testing.T) {
	t.Parallel()
	var generation atomic.Int64
	calls := make(chan string, 100)
	address := standIn(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/clusters/") {
			<-r.Context().Done()
			return
		}
		calls <- r.URL.Query().Get("hash")
		fmt.Fprintf(w, `{"generation":%d,"picks":[{"address":"127.0.0.1:%d"}]}`, generation.Load(), generation.Load())
	})
	client, _ := connect(t, lbdclient.Config{Address: address})
	for _, step := range []struct {
		generation int64
		key, want  string
	}{{1, "a", "127.0.0.1:1"}, {2, "a", "127.0.0.1:1"}, {2, "b", "127.0.0.1:2"}, {2, "a", "127.0.0.1:2"}, {3, "a", "127.0.0.1:2"}} {
		generation.Store(step.generation)
		pick, err := client.Pick(lbdclient.WithAsk(t.Context(), lbdclient.Ask{Hash: step.key}), "orders")
		if err != nil {
			t.Fatal(err)
		}
		pick.End(lbdclient.Cancelled)
		if pick.Address() != step.want {
			t.Errorf("generation %d, key %s: %s, want %s", step.generation, step.key, pick.Address(), step.want)
		}
	}
	for _, want := range []string{"a", "b", "a"} {
		if got := <-calls; got != want {
			t.Errorf("a call with the key %q, want %s", got, want)
		}
	}
	if n := len(calls); n > 0 {
		t.Errorf("%d more calls", n)
	}
}
