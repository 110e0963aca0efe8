package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// proxied is a running lbd-proxy: with PROXY, the path of its binary, requests go through it instead of the client.
type proxied struct {
	dir     string
	process *exec.Cmd
	ended   chan struct{}
}

// startProxy starts lbd-proxy with the settings of a command, and returns what sends requests through it.
func startProxy(binary string, c command) (*proxied, http.RoundTripper, error) {
	for _, option := range []string{"target", "headers", "hash", "choice", "hooks"} {
		if _, set := c.Options[option]; set {
			return nil, nil, fmt.Errorf("lbd-proxy has no option %s", option)
		}
	}
	dir, err := os.MkdirTemp("", "lbd")
	if err != nil {
		return nil, nil, err
	}
	socket := filepath.Join(dir, "p.sock")
	args := []string{
		"--lbd=" + c.LBD, "--mode=" + string(c.Mode), "--listen=none", "--admin=none", "--log-level=error",
		"--drain-timeout=0s", "--map=unix:" + socket + "=" + c.Cluster,
	}
	if c.TokenFile != "" {
		args = append(args, "--token-file="+c.TokenFile)
	}
	for option, value := range c.Options {
		text := fmt.Sprint(value)
		switch option {
		case "stale_for", "report_interval", "max_age", "connect_timeout", "ttl":
			text += "s"
		}
		args = append(args, "--"+strings.ReplaceAll(option, "_", "-")+"="+text)
	}
	p := &proxied{dir: dir, process: exec.Command(binary, args...), ended: make(chan struct{})} //nolint:gosec,noctx // it is what is tested; close ends it
	p.process.Stderr = os.Stderr
	p.process.Env = append(os.Environ(), "LBD_TOKEN="+c.Token)
	endWithRunner(p.process)
	if err := p.process.Start(); err != nil {
		return nil, nil, err
	}
	go func() { _ = p.process.Wait(); close(p.ended) }()
	transport := &http.Transport{
		MaxIdleConnsPerHost: 100,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}
	for {
		conn, err := net.Dial("unix", socket) //nolint:noctx // it does not wait
		if err == nil {
			return p, proxyTransport{transport}, conn.Close()
		}
		select {
		case <-p.ended:
			return nil, nil, errors.New("lbd-proxy has ended")
		case <-time.After(time.Millisecond):
		}
	}
}

// close ends the proxy as an operator does.
func (p *proxied) close() {
	_ = p.process.Process.Signal(syscall.SIGTERM)
	<-p.ended
	_ = os.RemoveAll(p.dir)
}

// proxyTransport sends requests through the proxy. What the proxy itself answers is an error.
type proxyTransport struct{ http.RoundTripper }

// proxyError has the code of an answer of the proxy.
type proxyError struct{ code, detail string }

func (e proxyError) Error() string { return e.detail }

// RoundTrip sends a request with what is left of its time.
func (t proxyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if deadline, ok := r.Context().Deadline(); ok {
		r = r.Clone(r.Context())
		r.Header.Set("Lbd-Timeout", max(time.Until(deadline)-5*time.Millisecond, time.Millisecond).String())
	}
	response, err := t.RoundTripper.RoundTrip(r)
	if err != nil || !strings.HasPrefix(response.Header.Get("Proxy-Status"), "lbd-proxy; error=") {
		return response, err
	}
	defer response.Body.Close()
	var problem struct{ Code, Detail string }
	err = json.NewDecoder(response.Body).Decode(&problem)
	return nil, cmp.Or(err, error(proxyError{problem.Code, problem.Detail}))
}
