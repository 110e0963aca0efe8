package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestInvalidCommandLines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"unknown flag":      {[]string{"--datta=x"}, "--datta"},
		"wait too long":     {[]string{"--pick-wait=61s"}, "--pick-wait must be from 0s to 1m0s, not 1m1s"},
		"no duration":       {[]string{"--drain-timeout=soon"}, "soon"},
		"delay too long":    {[]string{"--drain-delay=11m"}, "--drain-delay"},
		"few connections":   {[]string{"--max-connections=15"}, "or 0 for the default, not 15"},
		"drain too long":    {[]string{"--drain-timeout=11m"}, "--drain-timeout"},
		"no mode":           {[]string{"--connect=udp"}, `"udp"`},
		"no port":           {[]string{"--listen=localhost"}, `"localhost": must be host:port or unix:PATH`},
		"no port number":    {[]string{"--listen=localhost:99999"}, `"99999"`},
		"no socket path":    {[]string{"--listen=unix:"}, "must be followed by a path"},
		"name too long":     {[]string{"--name=" + strings.Repeat("x", 254)}, "--name must be at most 253 bytes"},
		"history too small": {[]string{"--history-bytes=1000"}, "--history-bytes must be 0 or from 1048576"},
		"no level":          {[]string{"--log-level=loud"}, `"loud"`},
		"unknown command":   {[]string{"server"}, "server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectFailure(t, command(c.args...), c.says)
		})
	}
}

func TestVersionAndHealthcheck(t *testing.T) {
	t.Parallel()
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
	expectFailure(t, command("healthcheck", "--listen=127.0.0.1:1"), "connect to the daemon")
}

// TestHealthcheckWaits: until the daemon is ready.
func TestHealthcheckWaits(t *testing.T) {
	t.Parallel()
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
}

// TestHealthcheckWaitTimeout: the last check is at the end of --wait, and its error is returned.
func TestHealthcheckWaitTimeout(t *testing.T) {
	for wait, want := range map[time.Duration]int{0: 1, healthcheckPause: 2, 120 * time.Millisecond: 4} {
		synctest.Test(t, func(t *testing.T) {
			begin, asked := time.Now(), 0
			err := retry(t.Context(), wait, func(context.Context) error {
				asked++
				return fmt.Errorf("refusal %d", asked)
			})
			if took := time.Since(begin); asked != want || took != wait || err == nil || err.Error() != fmt.Sprint("refusal ", want) {
				t.Errorf("waits for %v: asked %d times in %v, want %d: %v", wait, asked, took, want, err)
			}
		})
	}
}

// TestHealthcheckStops when its context ends.
func TestHealthcheckStops(t *testing.T) {
	t.Parallel()
	refusal := errors.New("not ready")
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	err := retry(ctx, time.Hour, func(context.Context) error {
		if asked++; asked == 2 {
			cancel()
		}
		return refusal
	})
	if asked != 2 || !errors.Is(err, refusal) {
		t.Errorf("asked %d times: %v", asked, err)
	}
}

// TestHealthcheckPath: --live checks /livez only.
func TestHealthcheckPath(t *testing.T) {
	t.Parallel()
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
			t.Parallel()
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

// TestHelpShowsTheFlagsOfServe: lbd --help is enough to run the daemon.
func TestHelpShowsTheFlagsOfServe(t *testing.T) {
	t.Parallel()
	out, err := command("--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	fields := slices.Collect(reflect.TypeFor[Config]().Fields())
	for _, field := range slices.AppendSeq(fields, reflect.TypeFor[StoreAccess]().Fields()) {
		if field.Type == reflect.TypeFor[StoreAccess]() {
			continue
		}
		if env := "($" + field.Tag.Get("env") + ")"; !strings.Contains(string(out), env) {
			t.Errorf("lbd --help does not show the flag with %s:\n%s", env, out)
		}
	}
	for _, name := range []string{"demo", "check", "store", "version", "healthcheck"} {
		if !strings.Contains(string(out), "\n  "+name+" ") {
			t.Errorf("lbd --help does not show the command %s:\n%s", name, out)
		}
	}
}

// TestHelpGivesEveryDefault: the help of a flag is a phrase that ends with its
// default.
func TestHelpGivesEveryDefault(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"serve", "demo", "check", "store migrate", "healthcheck"} {
		out, err := command(append(strings.Fields(name), "--help")...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		_, flags, _ := strings.Cut(string(out), "--version")
		_, flags, _ = strings.Cut(flags, "\n\n")
		for _, flag := range strings.Split(strings.Join(strings.Fields(flags), " "), " --")[1:] {
			if !strings.Contains(flag, "(default ") || strings.Contains(flag, "(default )") || strings.HasSuffix(flag, ".") {
				t.Errorf("%s: the help of --%s gives no default", name, flag)
			}
		}
	}
}

func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, variable string
		want           string // what is logged
	}{
		{"a flag's", "LBD_LISTEN=:1", ""},
		{"another command's", "LBD_DEMO_CONTROL=:1", ""},
		{"that of lbd ctl", "LBD_CTL_URL=http://localhost:1", ""},
		{"of another program", "PATH=/", ""},
		{"misspelled", "LBD_LISTN=secret", `variable=LBD_LISTN did_you_mean=LBD_LISTEN`},
		{"words swapped", "LBD_PICK_WIAT=1s", `variable=LBD_PICK_WIAT did_you_mean=LBD_PICK_WAIT`},
		{"like nothing", "LBD_COLOR_SCHEME=secret", `variable=LBD_COLOR_SCHEME`},
		{"lower case is another variable", "lbd_listen=:1", ""},
		{"a port of no Service", "LBD_LISTEN_PORT=8080", `variable=LBD_LISTEN_PORT`},
		{"Kubernetes: host of Service lbd", "LBD_SERVICE_HOST=10.0.0.1", ""},
		{"port", "LBD_SERVICE_PORT=8080", ""},
		{"named port", "LBD_SERVICE_PORT_HTTP=8080", ""},
		{"Docker's form", "LBD_PORT=tcp://10.0.0.1:8080", ""},
		{"by protocol", "LBD_PORT_8080_TCP_ADDR=10.0.0.1", ""},
		{"host of Service lbd-control", "LBD_CONTROL_SERVICE_HOST=10.0.0.1", ""},
		{"its named port", "LBD_CONTROL_SERVICE_PORT_HTTP=80", ""},
		{"in Docker's form", "LBD_CONTROL_PORT=tcp://10.0.0.1:80", ""},
		{"its protocol", "LBD_CONTROL_PORT_80_TCP_PROTO=tcp", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			warnOfVariables([]string{tt.variable}, slog.New(slog.NewTextHandler(&out, nil)))
			_, got, _ := strings.Cut(strings.TrimSpace(out.String()), `msg="unknown environment variable, ignored" `)
			if got != tt.want {
				t.Errorf("%s: logged %q, want %q", tt.variable, out.String(), tt.want)
			}
		})
	}
}

// TestUnknownVariablesAreLogged: the daemon says so when it starts.
func TestUnknownVariablesAreLogged(t *testing.T) {
	t.Parallel()
	cmd := command("serve", "--listen=127.0.0.1:0", "--data=", "--log-format=json")
	cmd.Env = append(cmd.Env, "LBD_DRAIN_DELY=5s", "LBD_SERVICE_HOST=10.0.0.1")
	p := start(t, cmd)
	if log := p.output(); strings.Count(log, `"unknown environment variable, ignored"`) != 1 || !strings.Contains(log, `"variable":"LBD_DRAIN_DELY","did_you_mean":"LBD_DRAIN_DELAY"`) {
		t.Errorf("log:\n%s", log)
	}
}
