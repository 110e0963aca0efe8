package fleet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/lbd-dev/lbd/xds/store/etcd"
)

const (
	memberEnv = "LBD_FLEET_TEST_MEMBER" // arguments of a member in a process of its own
	members   = 3
	replicas  = 5
)

// lbd is the binary of the daemon: LBD_TEST_DAEMON, or a file that buildDaemon builds.
var lbd = os.Getenv("LBD_TEST_DAEMON")

// buildDaemon returns the binary of lbd. With a file for go build -overlay, it is built.
func buildDaemon(t *testing.T, overlay string) string {
	t.Helper()
	if lbd != "" && overlay == "" {
		return lbd
	}
	out := filepath.Join(t.TempDir(), "lbd")
	args := []string{"build", "-C", "../..", "-o", out}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	if text, err := exec.CommandContext(t.Context(), "go", append(args, "./cmd/lbd")...).CombinedOutput(); err != nil {
		t.Fatalf("build lbd: %v\n%s", err, text)
	}
	return out
}

// A process is a member or a replica that faults stop, kill and start again.
type process struct {
	name    string
	command func() *exec.Cmd
	running *exec.Cmd
	proxy   *toxiproxy.Proxy // of what others connect to; nil: none
	url     string           // of a replica's API
	starts  atomic.Int32
	links   []*toxiproxy.Proxy // of a replica to the members, if it has its own
}

func (p *process) start(t *testing.T) {
	t.Helper()
	p.starts.Add(1)
	p.running = p.command()
	if err := p.running.Start(); err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
}

func (p *process) kill() {
	if p.running == nil {
		return
	}
	_ = p.running.Process.Signal(syscall.SIGCONT)
	_ = p.running.Process.Kill()
	_ = p.running.Wait()
	p.running = nil
}

func (p *process) signal(s syscall.Signal) { _ = p.running.Process.Signal(s) }

// A fleet is members of etcd and replicas of lbd, in processes of their own. Replicas reach the
// members through proxies.
type fleet struct {
	members, replicas []*process
}

func newFleet(t *testing.T, binary string) *fleet {
	t.Helper()
	return newFleetOf(t, binary, false)
}

// newFleetOf returns a fleet whose replicas may each have proxies of their own in front of those of the members.
func newFleetOf(t *testing.T, binary string, links bool) *fleet {
	t.Helper()
	f, dir := &fleet{}, t.TempDir()
	proxies := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	var clients, peers, initial, endpoints []string
	for i := range members {
		clients, peers = append(clients, freePort(t)), append(peers, freePort(t))
		initial = append(initial, fmt.Sprintf("m%d=http://%s", i, peers[i]))
	}
	for i := range members {
		proxy := toxiproxy.NewProxy(proxies, fmt.Sprint("m", i), freePort(t), clients[i])
		noError(t, proxies.Collection.Add(proxy, true))
		endpoints = append(endpoints, proxy.Listen)
		args := strings.Join([]string{fmt.Sprint("m", i), filepath.Join(dir, fmt.Sprint("m", i)), clients[i], peers[i], strings.Join(initial, ",")}, " ")
		f.members = append(f.members, &process{name: fmt.Sprint("member ", i), proxy: proxy, command: func() *exec.Cmd {
			c := exec.CommandContext(t.Context(), os.Args[0])
			c.Env = append(os.Environ(), memberEnv+"="+args)
			c.Stderr = os.Stderr
			return c
		}})
	}
	for i := range replicas {
		listen, data := freePort(t), filepath.Join(dir, fmt.Sprint("r", i))
		log, err := os.Create(filepath.Join(dir, fmt.Sprintf("r%d.log", i)))
		noError(t, err)
		var own []*toxiproxy.Proxy
		reached := slices.Clone(endpoints)
		for m := range members {
			if !links {
				break
			}
			p := toxiproxy.NewProxy(proxies, fmt.Sprintf("r%dm%d", i, m), freePort(t), endpoints[m])
			noError(t, proxies.Collection.Add(p, true))
			reached[m] = p.Listen
			own = append(own, p)
		}
		f.replicas = append(f.replicas, &process{name: fmt.Sprint("replica ", i), url: "http://" + listen, links: own, command: func() *exec.Cmd {
			c := exec.CommandContext(t.Context(), binary, "--listen", listen, "--data", data, "--connect", "none",
				"--name", fmt.Sprint("replica-", i), "--store", "etcd://"+strings.Join(reached, ",")+"/lbd")
			c.Env = append(os.Environ(), "GOMAXPROCS=1")
			c.Stderr = log
			return c
		}})
	}
	for i, p := range f.all() {
		if i == members {
			until(t, "the members have a leader", func() bool {
				_, _, err := etcd.Init(t.Context(), etcd.Config{Endpoints: clients, Prefix: "lbd"})
				return err == nil
			})
		}
		t.Cleanup(p.kill)
		p.start(t)
	}
	t.Cleanup(func() { _ = proxies.Collection.Clear() })
	for _, r := range f.replicas {
		until(t, r.name+" is ready", func() bool { return get(r.url+"/readyz") == http.StatusOK })
	}
	return f
}

func (f *fleet) all() []*process {
	return slices.Concat(f.members, f.replicas)
}

func get(url string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	req.RequestURI = ""
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}
