package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, variable string
		want           string // what is logged
	}{
		{"a flag's", "LBD_LISTEN=:1", ""},
		{"another command's", "LBD_DEMO_CONTROL=:1", ""},
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
