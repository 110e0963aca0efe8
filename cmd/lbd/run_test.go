package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd"
	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/cmd/lbd/demo"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file"
)

// startServe runs the daemon in the test process until the test ends, and returns its addresses.
func startServe(t *testing.T, c Config) []string {
	t.Helper()
	if c.Listen == nil {
		c.Listen = []string{"127.0.0.1:0"}
	}
	if c.Connect == "" {
		c.Connect = "tcp_hold"
	}
	c.LogLevel, c.DrainTimeout = "error", time.Second
	ctx, cancel := context.WithCancel(t.Context())
	ready := make(chan []string, 1)
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, c, func(a []string) { ready <- a }) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections() // the daemon would wait for their next requests
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case a := <-ready:
		return a
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
		return nil
	}
}

// eventually waits until check is true, for results of real connections.
func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !check() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timeout: %s", what)
		}
	}
}

func TestPicksFollowRealConnections(t *testing.T) {
	t.Parallel()
	url := "http://" + startServe(t, Config{PickWait: time.Second})[0]
	first, stopFirst := upstream(t)
	second, _ := upstream(t)
	pushEndpoints(t, url, "orders", first, second)
	got := map[string]bool{}
	eventually(t, "a pick of each", func() bool {
		got[do(t, "GET", url+"/pick?cluster=orders", "").address()] = true
		return got[first] && got[second]
	})
	stopFirst()
	eventually(t, "the loss", func() bool {
		return strings.Contains(do(t, "GET", url+"/v1/clusters/orders", "").body, "connection refused")
	})
	for range 10 {
		expectPick(t, url, "cluster=orders", second)
	}
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lbd.sock")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	noError(t, err)
	stale.SetUnlinkOnClose(false)
	if err := stale.Close(); err != nil { // as a killed daemon does
		t.Fatal(err)
	}
	addresses := startServe(t, Config{Listen: []string{"unix:" + path, "127.0.0.1:0"}})
	if addresses[0] != "unix:"+path {
		t.Errorf("serves %v", addresses)
	}
	client, _, host := dialFor(listen.Spec{Address: addresses[0]})
	a, err := try(t.Context(), client, "GET", "http://"+host+"/readyz", "")
	if err != nil || a.status != http.StatusOK {
		t.Errorf("%+v, %v", a, err)
	}
	if err := (&healthcheckCommand{Listen: addresses}).Run(t.Context()); err != nil {
		t.Errorf("healthcheck: %v", err)
	}
	if _, err := listenOn(t.Context(), listen.Spec{Address: "unix:" + path}); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("a socket in use: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, nil)
	if _, err := listenOn(t.Context(), listen.Spec{Address: "unix:" + file}); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file in the way: %v", err)
	}
}

// TestShutdownAnswersQueuedPicks shuts down while a pick is queued.
func TestShutdownAnswersQueuedPicks(t *testing.T) {
	t.Parallel()
	svc := service.New(service.Options{
		Logger:     slog.New(slog.DiscardHandler),
		Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: pending{}},
	})
	defer svc.Close()
	st, err := file.Open("", file.Options{OnCommit: svc.Inbound.Commit})
	noError(t, err)
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	noError(t, svc.Start(t.Context(), sources.Connections{Store: st}))
	inside := make(chan struct{}, 1)
	served := api.OptionsFor(svc)
	served.Logger, served.OpenAPI = slog.New(slog.DiscardHandler), lbd.OpenAPI
	handler := api.New(served)
	ts := httptest.NewUnstartedServer(nil)
	ts.Config = newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			inside <- struct{}{}
		}
		handler.ServeHTTP(w, r)
	}), slog.New(slog.DiscardHandler))
	ts.Start()
	defer ts.Close()
	pushEndpoints(t, ts.URL, "slow", "127.0.0.1:1")
	answered := pickLater(t, ts.URL, "cluster=slow&wait=60s")
	<-inside
	shutdown(ts.Config, svc, 0)
	if a := <-answered; a.status != http.StatusServiceUnavailable || a.address() != "shutting_down" {
		t.Errorf("the queued pick: %+v", a)
	}
}

// pending is a connector whose attempts do not end.
type pending struct{}

func (pending) Start([]string, func(lb.Connection)) func() { return func() {} }

// TestConfigMapSwapUnderPicks replaces a resource directory as Kubernetes does, during picks.
func TestConfigMapSwapUnderPicks(t *testing.T) {
	t.Parallel()
	first, _ := upstream(t)
	second, _ := upstream(t)
	dir := t.TempDir()
	version := func(name, body string) {
		noError(t, os.MkdirAll(filepath.Join(dir, name), 0o750))
		writeFile(t, filepath.Join(dir, name, "orders.yaml"), []byte(body))
		next := filepath.Join(dir, "..data_tmp")
		noError(t, os.Symlink(name, next))
		noError(t, os.Rename(next, filepath.Join(dir, "..data")))
	}
	version("..1", envoyFile("orders", first))
	noError(t, os.Symlink(filepath.Join("..data", "orders.yaml"), filepath.Join(dir, "orders.yaml")))
	url := "http://" + startServe(t, Config{PickWait: time.Second, Resources: dir})[0]
	picked := func() string {
		a := do(t, "GET", url+"/pick?cluster=orders", "")
		if a.status != http.StatusOK {
			t.Errorf("a pick failed: %+v", a)
		}
		return a.address()
	}
	if got := picked(); got != first {
		t.Errorf("picked %s of %s", got, first)
	}
	version("..2", envoyFile("orders", second))
	eventually(t, "the swap", func() bool { return picked() == second })
	version("..3", "endpoints: [")
	eventually(t, "the bad file", func() bool {
		return strings.Contains(do(t, "GET", url+"/metrics", "").body, `lbd_resource_files{state="bad"} 1`)
	})
	if got := picked(); got != second {
		t.Errorf("the last good file does not stay: picked %s", got)
	}
	version("..4", envoyFile("orders", first))
	eventually(t, "the good file", func() bool { return picked() == first })
	// A push takes precedence over the file until it is deleted.
	do(t, "PUT", url+"/v1/clusters/orders/endpoints", envoyFile("orders", second))
	if got := picked(); got != second {
		t.Errorf("pushed over the file: picked %s", got)
	}
	do(t, "DELETE", url+"/v1/clusters/orders/endpoints", "")
	if got := picked(); got != first {
		t.Errorf("uncovered: picked %s", got)
	}
}

// TestStoppedBeforeItServes: a signal while the trees are built is not an error.
func TestStoppedBeforeItServes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st, err := file.Open(dir, file.Options{})
	noError(t, err)
	_, err = st.Update(t.Context(), func(tx *store.Tx) error {
		for i := range 100 { // some of them are never built in time
			name := fmt.Sprint("c", i)
			d, err := decode.One(resource.TypeCluster, []byte(`{"type":"EDS"}`), decode.Options{Name: name})
			if err != nil {
				return err
			}
			if err := tx.Put(resource.Key{Type: resource.TypeCluster, Name: name}, d.Raw); err != nil {
				return err
			}
		}
		return nil
	})
	noError(t, err)
	noError(t, st.Close())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := Config{Listen: []string{"127.0.0.1:0"}, Connect: "none", Data: dir, LogLevel: "error"}
	if err := serve(ctx, c, func([]string) { t.Error("served after the signal") }); err != nil {
		t.Error(err)
	}
}

func TestDemoFailsOverAndBack(t *testing.T) {
	t.Parallel()
	url := "http://" + startServe(t, Config{PickWait: time.Second})[0]
	control, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- demo.Play(ctx, demo.Options{
			Daemons: []demo.Daemon{{Client: http.DefaultClient, URL: url}}, Control: control, In: strings.NewReader(""), Out: io.Discard,
		})
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	inUse := func(priority string) func() bool {
		return func() bool {
			return strings.Contains(do(t, "GET", url+"/v1/clusters/demo", "").body, `"priority_in_use":`+priority)
		}
	}
	eventually(t, "priority 0", inUse("0"))
	do(t, "POST", "http://"+control.Addr().String()+"/stop?priority=0", "")
	eventually(t, "the fail-over", inUse("1"))
	do(t, "POST", "http://"+control.Addr().String()+"/start?priority=0", "")
	eventually(t, "the return", inUse("0"))
	m := do(t, "GET", url+"/metrics", "").body
	for _, want := range []string{
		`lbd_priority_switches_total{cluster="demo",reason="failure",target=""}`,
		`lbd_priority_switches_total{cluster="demo",reason="recovered",target=""}`,
		`lbd_leases_finished_total{cluster="demo",outcome="success"}`,
	} {
		if !strings.Contains(m, want) {
			t.Errorf("metrics have no %s", want)
		}
	}
	expect(t, http.StatusBadRequest, "POST", "http://"+control.Addr().String()+"/stop?priority=7", "")
}

// TestDemoWithoutEtcd: test/fleet tests the demo with replicas.
func TestDemoWithoutEtcd(t *testing.T) {
	t.Parallel()
	missing := command("demo", "--replicas=2")
	missing.Env = append(missing.Env, "PATH="+t.TempDir())
	expectFailure(t, missing, `build it with "make bin/lbd-etcd"`)
	expectFailure(t, command("demo", "--replicas=6"), "--replicas must be from 1 to 5")
	expectFailure(t, command("demo", "--replicas=2", "--data="+t.TempDir()), "leave out --data")
}
