package stand

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Patience is how long something may take that must happen.
const Patience = 15 * time.Second

// Daemon is lbd, with its data in a directory, so that it can be started again. Callers
// of Socket need no token; those of TokenSocket and of TLS have one of credentials.go.
type Daemon struct {
	Socket, TokenSocket string
	Connect             string // --connect: "none" by default

	binary, dir string
	http        *http.Client
	log         syncBuffer
	started     int // where in log the last start begins
	running     *exec.Cmd
	ended       chan struct{}
}

// syncBuffer collects the output of a process.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// NewDaemon returns a daemon that does not run yet. dir has the files of WriteCredentials.
func NewDaemon(binary, dir string) *Daemon {
	d := &Daemon{
		binary: binary, dir: dir,
		Socket: filepath.Join(dir, "lbd.sock"), TokenSocket: filepath.Join(dir, "token.sock"),
	}
	d.http = &http.Client{Timeout: Patience, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", d.Socket)
		},
	}}
	return d
}

// Start starts lbd, and waits until it is ready.
func (d *Daemon) Start() error {
	if d.running != nil {
		return errors.New("lbd runs already")
	}
	//nolint:gosec,noctx // the binary is that under test; Stop ends it
	c := exec.Command(d.binary, "serve", "--connect="+cmp.Or(d.Connect, "none"), "--data="+filepath.Join(d.dir, "data"),
		"--listen=unix:"+d.Socket+",anonymous=all", "--listen=unix:"+d.TokenSocket,
		"--listen=127.0.0.1:0,tls,anonymous=pick+read", "--tls-cert="+filepath.Join(d.dir, certFile),
		"--tls-key="+filepath.Join(d.dir, keyFile), "--tokens="+filepath.Join(d.dir, tokensFile))
	c.Stderr, d.started = &d.log, len(d.log.String())
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also after a timeout of go test, which cleans up nothing
	if err := c.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	d.running, d.ended = c, ended
	return d.until("ready", func() error {
		select {
		case <-ended:
			d.running = nil
			return fmt.Errorf("lbd ended: %s", d.log.String())
		default:
			return d.Call(http.MethodGet, "/readyz", nil, nil)
		}
	})
}

// until polls until check succeeds.
func (d *Daemon) until(what string, check func() error) error {
	end := time.Now().Add(Patience)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if d.running == nil || time.Now().After(end) {
			return fmt.Errorf("lbd: not %s: %w", what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Stop ends lbd with a signal, if it runs, and waits until it has ended.
func (d *Daemon) Stop(signal syscall.Signal) {
	if d.running == nil {
		return
	}
	timer := time.AfterFunc(Patience, func() { _ = d.running.Process.Kill() })
	defer timer.Stop()
	_ = d.running.Process.Signal(signal)
	<-d.ended
	d.running = nil
	d.http.CloseIdleConnections()
}

// Running reports whether lbd was started and not stopped.
func (d *Daemon) Running() bool { return d.running != nil }

// Log returns what lbd has logged.
func (d *Daemon) Log() string { return d.log.String() }

var tcpAddress = regexp.MustCompile(`addresses="\[.* 127\.0\.0\.1:(\d+)\]"`)

// TLS returns the URL of the listener with TLS. lbd may be ready before its log is read.
func (d *Daemon) TLS() (address string, err error) {
	err = d.until("known by its address", func() error {
		log := d.log.String()[d.started:]
		m := tcpAddress.FindStringSubmatch(log)
		if m == nil {
			return fmt.Errorf("it does not log its addresses: %s", log)
		}
		address = "https://localhost:" + m[1]
		return nil
	})
	return address, err
}

// Call calls the API. body is sent as JSON, and the answer is read into into, unless
// they are nil. A status that rejects is an error.
func (d *Daemon) Call(method, path string, body, into any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, "http://lbd"+path, content)
	if err != nil {
		return err
	}
	res, err := d.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %d %s", method, path, res.StatusCode, text)
	}
	switch into := into.(type) {
	case nil:
		return nil
	case *string:
		*into = string(text)
		return nil
	default:
		return json.Unmarshal(text, into)
	}
}

// TokenWorks calls lbd with a token.
func (d *Daemon) TokenWorks(token string) error {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", d.TokenSocket)
		},
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://lbd/v1/clusters", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := (&http.Client{Timeout: Patience, Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the token is rejected: %s", res.Status)
	}
	return nil
}

// ClusterPath is where the API has a cluster.
func ClusterPath(cluster string) string { return "/v1/clusters/" + url.PathEscape(cluster) }

// Endpoint returns an LbEndpoint as the API takes it.
func Endpoint(address string) (map[string]any, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	type object = map[string]any
	return object{"endpoint": object{"address": object{"socket_address": object{"address": host, "port_value": number}}}}, nil
}

// Push pushes a cluster with endpoints.
func (d *Daemon) Push(cluster string, addresses ...string) error {
	endpoints := make([]any, len(addresses))
	for i, address := range addresses {
		var err error
		if endpoints[i], err = Endpoint(address); err != nil {
			return err
		}
	}
	body := map[string]any{"endpoints": []any{map[string]any{"lb_endpoints": endpoints}}}
	return d.Call(http.MethodPut, ClusterPath(cluster)+"/endpoints", body, nil)
}

// Metric returns the value of a metric, name{labels}, which is 0 if it is absent.
func (d *Daemon) Metric(name string) (float64, error) { return d.Sum(name + " ") }

// Sum returns the sum of the metrics whose lines begin so.
func (d *Daemon) Sum(begin string) (sum float64, err error) {
	var text string
	if err := d.Call(http.MethodGet, "/metrics", nil, &text); err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, begin) {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		if err != nil {
			return 0, err
		}
		sum += value
	}
	return sum, nil
}

// Label quotes a cluster for the labels of Metric.
func Label(cluster string) string {
	return `cluster="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(cluster) + `"`
}

// Lease takes n leases, and returns their IDs.
func (d *Daemon) Lease(cluster string, n int) (ids []string, err error) {
	for range n {
		var answer struct {
			Lease struct {
				ID string `json:"id"`
			} `json:"lease"`
		}
		if err := d.Call(http.MethodPost, "/v1/pick?ttl=60s&cluster="+url.QueryEscape(cluster), nil, &answer); err != nil {
			return ids, err
		}
		ids = append(ids, answer.Lease.ID)
	}
	return ids, nil
}
