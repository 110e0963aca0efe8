package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func TestCommandLineIsRefusedInWords(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"unknown flag":      {[]string{"--datta=x"}, "--datta"},
		"wait too long":     {[]string{"--pick-wait=61s"}, "--pick-wait is 1m1s"},
		"no duration":       {[]string{"--drain-timeout=soon"}, "soon"},
		"delay too long":    {[]string{"--drain-delay=11m"}, "--drain-delay"},
		"few connections":   {[]string{"--max-connections=15"}, "--max-connections is 15"},
		"drain too long":    {[]string{"--drain-timeout=11m"}, "--drain-timeout"},
		"no mode":           {[]string{"--connect=udp"}, `"udp"`},
		"no port":           {[]string{"--listen=localhost"}, "neither host:port nor unix:PATH"},
		"no port number":    {[]string{"--listen=localhost:99999"}, `"99999"`},
		"no socket path":    {[]string{"--listen=unix:"}, "no path"},
		"name too long":     {[]string{"--name=" + strings.Repeat("x", 254)}, "--name must be at most 253 bytes"},
		"history too small": {[]string{"--history-bytes=1000"}, "--history-bytes must be 0 or from 1048576"},
		"no level":          {[]string{"--log-level=loud"}, `"loud"`},
		"unknown command":   {[]string{"server"}, "server"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := command(c.args...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.says) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

func TestVersionAndHealthcheck(t *testing.T) {
	out, err := command("version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "lbd ") {
		t.Errorf("version: %v: %s", err, out)
	}
	for _, args := range [][]string{{"--version"}, {"serve", "--version"}, {"--version", "--data=x"}} {
		cmd := command(args...)
		cmd.Env = append(cmd.Env, "LBD_CONFIG=/nowhere")
		if flag, err := cmd.CombinedOutput(); err != nil || string(flag) != string(out) {
			t.Errorf("%v: %v: %s", args, err, flag)
		}
	}
	out, err = command("healthcheck", "--listen=127.0.0.1:1").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "ask the daemon") {
		t.Errorf("healthcheck of nobody: %v: %s", err, out)
	}
}

// TestHealthcheckWaits: until the daemon is ready, and no longer than --wait.
func TestHealthcheckWaits(t *testing.T) {
	var asked atomic.Int64
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 4 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer daemon.Close()
	listen := "--listen=" + daemon.Listener.Addr().String()
	if out, err := command("healthcheck", listen, "--wait=1m").CombinedOutput(); err != nil || asked.Load() != 4 {
		t.Errorf("asked %d times: %v: %s", asked.Load(), err, out)
	}
	asked.Store(-1 << 40) // never ready; how often it asks in so short a time depends on the machine
	if out, err := command("healthcheck", listen, "--wait=120ms").CombinedOutput(); err == nil || asked.Load() == -1<<40 || !strings.Contains(string(out), "not ready: 503") {
		t.Errorf("asked %d times: %v: %s", asked.Load()+1<<40, err, out)
	}
}

// TestHealthcheckAsksOneQuestion: what is not ready can be alive.
func TestHealthcheckAsksOneQuestion(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		path string // the only one that is answered well
		says string // of what it fails, if it does
	}{
		"ready":     {nil, "/readyz", ""},
		"not ready": {nil, "/livez", "not ready: 503"},
		"alive":     {[]string{"--live"}, "/livez", ""},
		"not alive": {[]string{"--live"}, "/readyz", "not alive: 503"},
	} {
		t.Run(name, func(t *testing.T) {
			daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != c.path {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}))
			defer daemon.Close()
			args := append([]string{"healthcheck", "--listen=" + daemon.Listener.Addr().String()}, c.args...)
			out, err := command(args...).CombinedOutput()
			if failed := err != nil; failed != (c.says != "") || !strings.Contains(string(out), c.says) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
