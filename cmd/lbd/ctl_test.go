package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// operator runs lbd ctl, with a configuration of its own.
type operator struct {
	config string   // XDG_CONFIG_HOME
	env    []string // in addition
	url    string   // of the daemon, unless the configuration has it
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	return &operator{config: t.TempDir()}
}

// to returns an operator of a daemon.
func to(t *testing.T, p *process) *operator {
	t.Helper()
	c := newOperator(t)
	c.url = p.url
	return c
}

// command returns a process that runs lbd ctl.
func (c *operator) command(ctx context.Context, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"ctl"}, args...)...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "LBD_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "LBD_TEST_MAIN="+withInput, "XDG_CONFIG_HOME="+c.config)
	cmd.Env = append(cmd.Env, c.env...)
	if c.url != "" {
		cmd.Env = append(cmd.Env, "LBD_CTL_URL="+c.url)
	}
	return cmd
}

// outcome is how a command has ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// here runs a command line in the process of the tests, which takes less than a process of its own.
func here(t *testing.T, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, kong.Writers(&stdout, &stderr))
	return outcome{code, stdout.String(), stderr.String()}
}

// runWith runs a command, in a process of its own if it needs an input or its own environment.
func (c *operator) runWith(t *testing.T, input string, args ...string) outcome {
	t.Helper()
	if c.url != "" && input == "" {
		return here(t, append([]string{"ctl", "--url=" + c.url}, args...)...)
	}
	cmd := c.command(t.Context(), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	err := cmd.Run()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatalf("lbd ctl %q: %v", args, err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// expect runs a command that must end with a code, and with texts in its output.
func (c *operator) expect(t *testing.T, code int, args string, texts ...string) outcome {
	t.Helper()
	return c.expectWith(t, "", code, args, texts...)
}

func (c *operator) expectWith(t *testing.T, input string, code int, args string, texts ...string) outcome {
	t.Helper()
	o := c.runWith(t, input, strings.Fields(args)...)
	if o.code != code {
		t.Errorf("lbd ctl %s: exit code %d, want %d\n%s%s", args, o.code, code, o.stdout, o.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(o.stdout+o.stderr, text) {
			t.Errorf("lbd ctl %s: no %q in\n%s%s", args, text, o.stdout, o.stderr)
		}
	}
	return o
}

// startCtl starts a daemon that does not connect to endpoints, and returns an operator of it.
func startCtl(t *testing.T, args ...string) (*process, *operator) {
	t.Helper()
	p := startProcess(t, append([]string{"--data=", "--connect=none"}, args...)...)
	return p, to(t, p)
}

// words returns the text with single spaces.
func words(s string) string { return strings.Join(strings.Fields(s), " ") }

func TestCtlPushAndGet(t *testing.T) {
	t.Parallel()
	_, c := startCtl(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "orders.yaml")
	writeFile(t, file, []byte(envoyFile("orders", "127.0.0.1:9001", "127.0.0.1:9002")))
	c.expect(t, 0, "get", "NAME  STATE")
	c.expect(t, 1, "diff endpoints orders "+file, "ClusterLoadAssignment/orders: added with 2 usable endpoints")
	c.expect(t, 4, "get orders", `cluster "orders" not found`, "What to do: lbd ctl get clusters lists the clusters.")
	c.expect(t, 0, "push endpoints orders "+file+" --yes --message=first", "added with 2 usable endpoints", "done, at index 1")
	c.expect(t, 0, "diff endpoints orders "+file, "no difference")
	c.expectWith(t, "127.0.0.1:9001\n127.0.0.1:9003\n", 1, "diff endpoints orders -",
		"effect on orders: 50.0% of the picks would move", "  127.0.0.1:9002: 50.0% to 0.0%\n  127.0.0.1:9003: 0.0% to 50.0%")
	c.expectWith(t, "127.0.0.1:9001\n127.0.0.1:9003\n", 4, "push endpoints orders - --yes --max-shift=49%",
		"the change would move 50 % of the picks", "a larger --max-shift permits it")
	c.expect(t, 0, "push endpoints orders "+file+" --yes", "nothing to change")
	c.expect(t, 0, "pick orders --exclude=127.0.0.1:9001")
	c.expect(t, 1, "pick orders --exclude=127.0.0.1:9001 --exclude=127.0.0.1:9002 --wait=0s", "every READY endpoint", "exclude fewer endpoints")
	if got, want := words(c.expect(t, 0, "get clusters").stdout), "NAME STATE PRIORITY READY SOURCE PICKS FAILURES orders READY 0 2/2 push 1 1"; got != want {
		t.Errorf("clusters: %s, want %s", got, want)
	}
	c.expect(t, 0, "get orders", "the highest priority")
	c.expect(t, 0, "get clusters --prefix=x")
	c.expect(t, 2, "get clusters orders --prefix=x", "set either names or --prefix")
	if o := c.expect(t, 0, "get endpoints orders -o name"); o.stdout != "127.0.0.1:9001\n127.0.0.1:9002\n" {
		t.Errorf("endpoints: %s", o.stdout)
	}
	c.expectWith(t, "127.0.0.1:9003\n", 0, "push endpoints - - --yes", "ClusterLoadAssignment/-: added")
	c.expectWith(t, `{"type":"EDS","eds_cluster_config":{"eds_config":{"ads":{}},"service_name":"orders"}}`, 0, "push config shop - --yes", "Cluster/shop: added")
	c.expect(t, 0, "get shop", "READY", "2/2")
	c.expect(t, 0, "delete config shop --yes", "Cluster/shop: removed", "done, at index 4")
	c.expect(t, 4, "delete config shop --yes", "Cluster/shop was not pushed")
	c.expect(t, 0, "delete endpoints - --yes -o name", "ClusterLoadAssignment/-")
}

func TestCtlPicks(t *testing.T) {
	t.Parallel()
	p, c := startCtl(t)
	do(t, "PUT", p.url+"/v1/clusters/orders/endpoints", "127.0.0.1:9001\n127.0.0.1:9002\n")
	if o := c.expect(t, 0, "pick orders -n 4 -o name"); strings.Count(o.stdout, "127.0.0.1:") != 4 {
		t.Errorf("4 picks: %s", o.stdout)
	}
	explained := c.expect(t, 0, "explain orders --exclude 127.0.0.1:9001", `1. cluster "orders" is known`, "endpoint: 127.0.0.1:9002")
	if strings.Contains(explained.stdout, "endpoint: 127.0.0.1:9001") {
		t.Errorf("an excluded endpoint was picked: %s", explained.stdout)
	}
	c.expect(t, 1, "explain orders --exclude=127.0.0.1:9001,127.0.0.1:9002 --wait=0s", "has no endpoint left", "(503 all_excluded)")
	c.expect(t, 0, "pick orders --ttl=1m --owner=batch", "LEASE")
	if got := words(c.expect(t, 0, "leases --owner=batch").stdout); !strings.HasPrefix(got, "ID CLUSTER LEAF ADDRESS OWNER") || !strings.Contains(got, "orders - 127.0.0.1:900") {
		t.Errorf("leases: %s", got)
	}
	if o := c.expect(t, 0, "leases --owner=nobody -o name"); o.stdout != "" {
		t.Errorf("leases of nobody: %s", o.stdout)
	}
	c.expect(t, 2, "pick", "CLUSTER or --target is required")
	c.expect(t, 2, "pick orders --target=shop", "CLUSTER and --target exclude each other")
	c.expect(t, 2, "pick orders --path=/x", "--path and --header require --target")
	c.expect(t, 2, "pick --target=shop --header=x", "must have the form NAME=VALUE")
	c.expect(t, 2, "pick orders --owner=x", "--owner requires --ttl")
	c.expect(t, 4, "pick orders --n=1001", "(400 invalid_argument)", "correct the flag")
	c.expect(t, 4, "pick orders --n=0", "(400 invalid_argument)")
	do(t, "PUT", p.url+"/v1/targets/shop", "{}")
	c.expect(t, 0, "get targets", "xds:///shop", "Listener/shop is not known")
	c.expect(t, 0, "get targets shop -o name", "xds:///shop")
	c.expect(t, 4, "get targets absent", "unknown_target", "lbd ctl get targets")
	c.expect(t, 4, "pick --target=shop --header=a=b --path=/x", "Listener/shop is not known")
	c.expect(t, 0, "fleet", "shares no store")
	c.expect(t, 0, "reconnect orders", "RECONNECTING", "orders")
	c.expect(t, 4, "reconnect absent", "unknown_cluster")
}

func TestCtlBench(t *testing.T) {
	t.Parallel()
	p, c := startCtl(t)
	do(t, "PUT", p.url+"/v1/clusters/orders/endpoints", "127.0.0.1:9001\n127.0.0.1:9002\n")
	c.expect(t, 0, "bench orders --requests=20 -c 2 --duration=1h", "PICKS/S", "p99.9", "100.0%")
	o := c.expect(t, 0, "bench orders --requests=20 -n 5 --duration=1h -o json")
	var report struct {
		Picks   int
		Results map[string]int
	}
	if err := json.Unmarshal([]byte(o.stdout), &report); err != nil || report.Picks != 100 || report.Results["ok"] != 20 {
		t.Errorf("%v: %s", err, o.stdout)
	}
	c.expect(t, 1, "bench orders --requests=5 --exclude=127.0.0.1:9001,127.0.0.1:9002 --wait=0s", "all_excluded")
	c.expect(t, 4, "bench absent --requests=5", "unknown_cluster")
	c.expect(t, 3, "bench orders --requests=5 --url=http://127.0.0.1:1")
	c.expect(t, 2, "bench orders --requests=0", "--requests must be")
	c.expect(t, 2, "bench orders --concurrency=257", "--concurrency must be")
	c.expect(t, 2, "bench orders --duration=0s", "--duration must be")
	c.expect(t, 2, "bench", "CLUSTER or --target is required")
	c.expect(t, 2, "top", "draws on a terminal only")
}

// TestCtlOutputFails: an error of the output is an error of the command.
func TestCtlOutputFails(t *testing.T) {
	t.Parallel()
	p, c := startCtl(t)
	do(t, "PUT", p.url+"/v1/clusters/orders/endpoints", "127.0.0.1:9001\n")
	for _, args := range []string{"get", "get -o json", "get -o yaml", "get -o name", "pick orders", "watch --last=1", "context list"} {
		cmd := c.command(t.Context(), strings.Fields(args)...)
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip(err)
		}
		var stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = full, &stderr
		_ = cmd.Run()
		noError(t, full.Close())
		if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(stderr.String(), "write the output: ") {
			t.Errorf("lbd ctl %s: exit code %d: %s", args, code, stderr.String())
		}
	}
}

func TestCtlHistory(t *testing.T) {
	t.Parallel()
	_, c := startCtl(t)
	for i := range 3 {
		c.expectWith(t, fmt.Sprintf("127.0.0.1:900%d", i), 0, "push endpoints orders - --yes -m reason-"+fmt.Sprint(i))
	}
	c.expectWith(t, "127.0.0.1:9009", 0, "push endpoints users - --yes")
	o := c.expect(t, 0, "history --cluster=orders --limit=2", "reason-2", "reason-1", "set --before=2")
	if strings.Contains(o.stdout, "reason-0") || strings.Contains(o.stdout, "users") {
		t.Errorf("history of 2 changes of orders: %s", o.stdout)
	}
	if o := c.expect(t, 0, "history -o name"); o.stdout != "4\n3\n2\n1\n" {
		t.Errorf("indices: %s", o.stdout)
	}
	c.expect(t, 1, "restore 1 --cluster=orders --preview", "ClusterLoadAssignment/orders: ")
	c.expect(t, 2, "restore 1", "--cluster=CLUSTER or --resource=TYPE/NAME or --all")
	c.expect(t, 2, "restore 1 --cluster=orders", "not a terminal", "--yes")
	c.expect(t, 0, "restore 1 --cluster=orders --yes -m back", "done, at index 5")
	c.expect(t, 0, "get endpoints orders -o name", "127.0.0.1:9000")
	c.expect(t, 0, "restore 2 --resource=ClusterLoadAssignment/orders --yes", "done, at index 6")
	c.expect(t, 0, "restore 3 --all --yes", "ClusterLoadAssignment/users: removed", "done, at index 7")
	c.expect(t, 0, "restore 4 --resource=ClusterLoadAssignment/users --yes", "ClusterLoadAssignment/users: added") // is absent
	c.expect(t, 4, "restore 0 --all --yes --max-removed=0", "(409 blocked)", "--max-removed")
	c.expect(t, 4, "restore 99 --all --yes", "unknown_change", "lbd ctl history")
}

func TestCtlFormats(t *testing.T) {
	t.Parallel()
	p, c := startCtl(t)
	do(t, "PUT", p.url+"/v1/clusters/orders/endpoints", "127.0.0.1:9001\n127.0.0.1:9002\n")
	do(t, "POST", p.url+"/pick?cluster=orders&ttl=1m", "")
	file := filepath.Join(t.TempDir(), "orders.txt")
	writeFile(t, file, []byte("127.0.0.1:9003\n"))
	inAllFormats := []string{"get clusters orders", "explain orders", "diff endpoints orders " + file, "leases", "context list"}
	for args, want := range map[string]struct {
		code int
		key  string
	}{
		"get clusters":                 {0, "clusters"},
		"get clusters --prefix=absent": {0, "clusters"},
		"get clusters orders":          {0, "priorities"},
		"get clusters orders orders":   {0, "clusters"},
		"get targets":                  {0, "targets"},
		"get endpoints orders":         {0, "endpoints"},
		"pick orders":                  {0, "address"},
		"pick orders -n 2":             {0, "picks"},
		"explain orders":               {0, "explain"},
		"explain orders --wait=0s --exclude=127.0.0.1:9001,127.0.0.1:9002": {1, "explain"},
		"diff endpoints orders " + file:                                    {1, "changes"},
		"history":                                                          {0, "changes"},
		"restore 0 --all --preview":                                        {1, "changes"},
		"leases":                                                           {0, "leases"},
		"fleet":                                                            {0, "shared"},
		"reconnect orders":                                                 {0, "endpoints"},
		"context list":                                                     {0, "contexts"},
	} {
		for format, read := range map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": yaml.Unmarshal} {
			if format == "yaml" && !slices.Contains(inAllFormats, args) {
				continue
			}
			var v map[string]any
			o := c.expect(t, want.code, args+" --output="+format)
			if err := read([]byte(o.stdout), &v); err != nil || v[want.key] == nil {
				t.Errorf("lbd ctl %s as %s: %v: no %s in %s", args, format, err, want.key, o.stdout)
			}
			if isJSON := strings.HasPrefix(o.stdout, "{"); isJSON != (format == "json") {
				t.Errorf("lbd ctl %s as %s: %s", args, format, o.stdout)
			}
		}
		if !slices.Contains(inAllFormats, args) {
			continue
		}
		if o := c.expect(t, want.code, args+" -o name"); strings.ContainsAny(o.stdout, " {") {
			t.Errorf("lbd ctl %s as names: %s", args, o.stdout)
		}
	}
	c.expect(t, 2, "get -o xml", "--output must be one of")
	do(t, "PUT", p.url+"/v1/clusters/all/config", `{"cluster_type":{"name":"envoy.clusters.aggregate","typed_config":{`+
		`"@type":"type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig","clusters":["orders"]}}}`)
	do(t, "POST", p.url+"/pick?cluster=all&ttl=1m", "")
	if o := c.expect(t, 0, "leases --cluster=all", "LEAF"); !slices.Contains(strings.Fields(o.stdout), "orders") {
		t.Errorf("a lease of an AGGREGATE: %s", o.stdout)
	}
}

func TestCtlRejectsBadInput(t *testing.T) {
	t.Parallel()
	p, c := startCtl(t)
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	writeFile(t, bad, []byte("endpoints:\n- lb_endpoints:\n  - endpoint: {address: {socket_address: {address: 127.0.0.1, port_valeu: 1}}}\n"))
	empty := filepath.Join(dir, "empty.json")
	writeFile(t, empty, []byte("{}"))
	for args, want := range map[string]struct {
		code  int
		texts []string
	}{
		"diff endpoints orders " + bad:                            {4, []string{"line 3, column", "did you mean port_value?", "lbd check FILE"}},
		"push endpoints orders --yes " + empty:                    {4, []string{"(409 blocked)", "--allow-empty"}},
		"push endpoints orders --yes " + dir + "/absent":          {2, []string{"no such file"}},
		"push endpoints orders --yes " + dir:                      {2, []string{"is a directory"}},
		"push endpoints orders " + empty:                          {2, []string{"standard input is not a terminal", "--yes"}},
		"delete endpoints orders":                                 {2, []string{"standard input is not a terminal"}},
		"push endpoints orders --yes -m \x01 " + empty:            {2, []string{"--message must be at most 500 bytes"}},
		"get --url=http://127.0.0.1:1":                            {3, []string{"cannot reach the daemon at http://127.0.0.1:1", "connection refused", "is the daemon running?"}},
		"get --url=unix:///absent/lbd.sock":                       {3, []string{"unix:///absent/lbd.sock", "no such file"}},
		"get --url=" + strings.Replace(p.url, "http", "https", 1): {3, []string{"serves no TLS"}},
		"get --url=" + p.url + "/older":                           {4, []string{"/older/v1/clusters not found", "older than this lbd"}},
		"get --url=ftp://localhost":                               {2, []string{"http://HOST:PORT, https://HOST:PORT or unix:///PATH"}},
		"get --url=http://me:secret@localhost":                    {2, []string{"must not have a user or a password"}},
		"get --ca=x":                                              {2, []string{"require an https:// URL"}},
		"get --url=https://localhost:1 --ca=" + empty:             {2, []string{"no certificates in PEM"}},
		"get --url=https://localhost:1 --cert=x":                  {2, []string{"set both --cert and --key"}},
		"get --token-file=" + dir + "/absent":                     {2, []string{"read the token"}},
		"get --token-file=" + bad:                                 {2, []string{"must have the token in one line"}},
		"get --context=absent":                                    {2, []string{`context "absent" not found`}},
		"get --timeout=0s":                                        {2, []string{"--timeout must be positive"}},
		"get --bogus":                                             {2, []string{"unknown flag --bogus"}},
		"leases --limit=-1":                                       {2, []string{"--limit must not be negative"}},
		"watch --type=bogus":                                      {4, []string{"invalid_argument"}},
		"watch --url=http://127.0.0.1:1":                          {3, []string{"connection refused"}},
	} {
		if o := c.expect(t, want.code, args, want.texts...); strings.Contains(o.stdout+o.stderr, "secret") {
			t.Errorf("lbd ctl %s prints a password: %s", args, o.stderr)
		}
	}
	// A daemon that accepts connections and does not respond.
	c.expect(t, 3, "get --timeout=100ms --url="+silent(t), "no response from the daemon", "within 100ms")
	// A server that is not an lbd.
	other, _ := upstream(t)
	c.expect(t, 5, "get --url=http://"+other, "unexpected response 404 Not Found", "not an lbd")
}

// TestCtlRequireIfMatch: changes and previews have the preconditions that a daemon may require.
func TestCtlRequireIfMatch(t *testing.T) {
	t.Parallel()
	_, c := startCtl(t, "--require-if-match")
	c.expectWith(t, "127.0.0.1:9001", 1, "diff endpoints orders -")
	c.expectWith(t, "127.0.0.1:9001", 0, "push endpoints orders - --yes")
	c.expectWith(t, "127.0.0.1:9002", 1, "diff endpoints orders -")
	c.expectWith(t, "127.0.0.1:9002", 0, "push endpoints orders - --yes")
	c.expect(t, 1, "restore 1 --cluster=orders --preview")
	c.expect(t, 0, "restore 1 --cluster=orders --yes")
	c.expect(t, 0, "delete endpoints orders --yes")
	c.expect(t, 4, "restore 1 --resource=ClusterLoadAssignment/orders --yes", "precondition_required", "restore a cluster or everything")
}

// TestCtlTokens: a token is sent and never printed.
func TestCtlTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	identities, file := filepath.Join(dir, "identities.yaml"), filepath.Join(dir, "token")
	token, entry := newToken(t, "--name=ci", "--roles=read")
	writeSecret(t, identities, "tokens:\n"+entry)
	writeSecret(t, file, token+"\n")
	p, c := startCtl(t, "--tokens="+identities)
	c.expect(t, 4, "get", "role read is required", "set a token with --token-file")
	writeSecret(t, file+".wrong", token+"x")
	var all strings.Builder
	for _, want := range []struct {
		args string
		code int
		text string
	}{
		{"get --token-file=" + file, 0, "NAME"},
		{"get -o json --token-file=" + file, 0, "clusters"},
		{"get --token-file=" + file + ".wrong", 4, "check the token file"},
		{"pick orders --token-file=" + file, 4, "role pick is required"},
		{"get --url=http://127.0.0.1:1 --token-file=" + file, 3, "connection refused"},
		{"context set prod --url=" + p.url + " --token-file=" + file, 0, ""},
		{"context list --token-file=" + file, 0, "prod"},
		{"context list -o yaml", 0, "token_file"},
		{"get --url=http://lbd.invalid:1 --token-file=" + file, 3, "is sent to lbd.invalid:1 without TLS"},
	} {
		o := c.expect(t, want.code, want.args, want.text)
		all.WriteString(o.stdout + o.stderr)
	}
	if strings.Contains(all.String(), token) {
		t.Errorf("the token is in %s", all.String())
	}
}

// TestCtlContexts: contexts, and what takes precedence over them.
func TestCtlContexts(t *testing.T) {
	t.Parallel()
	p, _ := startCtl(t)
	c := newOperator(t)
	file := filepath.Join(c.config, "lbd", "config.yaml")
	c.expect(t, 0, "context list")
	c.expect(t, 2, "context use prod", "there are no contexts")
	c.expect(t, 2, "context set prod", "--url is required")
	c.expect(t, 2, "context set prod --url=localhost", "must have the form")
	c.expect(t, 0, "context set prod --url="+p.url)
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the configuration: %v, %v", info, err)
	}
	c.expect(t, 0, "context set gone --url=http://127.0.0.1:1 --ca=", "")
	if got := words(c.expect(t, 0, "context list").stdout); !strings.HasSuffix(got, "- gone http://127.0.0.1:1 - - - - * prod "+p.url+" - - - -") {
		t.Errorf("contexts: %s", got)
	}
	c.expect(t, 0, "get")
	c.expect(t, 3, "get --context=gone", "(context gone)")
	c.expect(t, 3, "get --url=http://127.0.0.1:1")
	c.expect(t, 0, "context use gone")
	c.expect(t, 3, "get")
	c.expect(t, 0, "get --url="+p.url)
	c.expect(t, 0, "get --context=prod")
	with := &operator{config: c.config, env: []string{"LBD_CTL_CONTEXT=prod"}}
	with.expect(t, 0, "get")
	with.expect(t, 3, "get --context=gone")
	(&operator{config: c.config, env: []string{"LBD_CTL_URL=" + p.url}}).expect(t, 0, "get")
	c.expect(t, 2, "context use absent", `context "absent" not found; there are: gone, prod`)
	c.expect(t, 0, "context delete gone")
	if o := c.expect(t, 0, "context list -o name"); o.stdout != "prod\n" {
		t.Errorf("contexts: %s", o.stdout)
	}
	// The environment of another daemon does not change a context.
	(&operator{config: c.config, env: []string{"LBD_CTL_URL=http://127.0.0.1:1"}}).expect(t, 0, "context set prod --token-file=")
	c.expect(t, 0, "get --context=prod")
	// A URL that does not come from the context gets none of its credentials: the file is not read.
	writeFile(t, file, []byte("current: prod\ncontexts:\n  prod: {url: \""+p.url+"\", token_file: absent}\n"))
	c.expect(t, 2, "get", filepath.Join(c.config, "lbd", "absent"))
	c.expect(t, 0, "get --url="+p.url)
	for body, text := range map[string]string{
		"contexts: [":                   "config.yaml",
		"context: {}":                   `unknown field "context"`,
		"contexts: {\"a b\": {url: x}}": "no spaces",
		"current: prod\ncontexts: {}":   "there are no contexts",
	} {
		writeFile(t, file, []byte(body))
		c.expect(t, 2, "get", text)
	}
}

func TestCtlUnixSocketAndTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	i := newIssuer(t)
	i.write(t, dir)
	// The certificate is for orders.example only.
	p := startProcess(t, "--data=", "--connect=none", "--listen=unix:"+dir+"/lbd.sock", "--listen=127.0.0.1:0,tls",
		"--tls-cert="+dir+"/cert.pem", "--tls-key="+dir+"/key.pem")
	c := newOperator(t)
	c.expectWith(t, "127.0.0.1:9001", 0, "push endpoints orders - --yes --url=unix://"+dir+"/lbd.sock")
	c.expect(t, 0, "get orders --url=unix://"+dir+"/lbd.sock", "READY")
	var secure string
	for line := range strings.Lines(p.output()) {
		var record struct {
			Message   string   `json:"msg"`
			Addresses []string `json:"addresses"`
		}
		if json.Unmarshal([]byte(line), &record) == nil && record.Message == "serving" {
			secure = record.Addresses[len(record.Addresses)-1]
		}
	}
	c.expect(t, 3, "get --url=https://"+secure, "--ca")
	c.expect(t, 3, "get --url=https://"+secure+" --ca="+dir+"/ca.pem", "a host name that the certificate has")
	c.expect(t, 5, "get --url=http://"+secure, "use an https:// URL")
}

// TestCtlEscapes: the message of a pusher does not control the terminal.
func TestCtlEscapes(t *testing.T) {
	t.Parallel()
	p, c := startCtl(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, p.url+"/v1/clusters/orders/endpoints", strings.NewReader("127.0.0.1:9001\n"))
	noError(t, err)
	r.Header.Set("Lbd-Message", "a\u202eb")
	answer, err := http.DefaultClient.Do(r)
	noError(t, err)
	noError(t, answer.Body.Close())
	for args, want := range map[string]string{
		"history": `a\u202eb`, "history -o json": `a\u202eb`, "history -o yaml": `a\u202eb`,
	} {
		if o := c.expect(t, 0, args, want); strings.Contains(o.stdout, "\u202e") {
			t.Errorf("lbd ctl %s: %q", args, o.stdout)
		}
	}
	if o := c.runWith(t, "", "get", "a\x1b[2Jb"); o.code != 4 || strings.Contains(o.stderr, "\x1b") {
		t.Errorf("a name with an escape sequence: %+v", o)
	}
}

// TestCtlWatch: events are printed as they happen, also after a restart of the daemon.
func TestCtlWatch(t *testing.T) {
	t.Parallel()
	address := lastingAddress(t)
	serve := func() *process {
		return start(t, command("serve", "--listen="+address, "--log-format=json", "--data=", "--connect=none"))
	}
	p := serve()
	c := to(t, p)
	cmd := c.command(t.Context(), "watch", "orders", "--type=pushed", "-o", "json")
	out := new(syncBuffer)
	cmd.Stdout, cmd.Stderr = out, out
	noError(t, cmd.Start())
	push := func(n int) func() bool {
		return func() bool {
			do(t, "PUT", p.url+"/v1/clusters/orders/endpoints", fmt.Sprintf("127.0.0.1:%d", time.Now().UnixNano()%50_000+1))
			return strings.Count(out.String(), `"type":"pushed","cluster":"orders"`) >= n
		}
	}
	eventually(t, "events", push(2))
	if o := c.expect(t, 0, "history --limit=1 -o name"); o.stdout == "" {
		t.Error("no history")
	}
	p.kill(t)
	eventually(t, "a notice", func() bool { return strings.Contains(out.String(), "connection lost: ") })
	before := strings.Count(out.String(), `"type":"pushed"`)
	p = serve()
	eventually(t, "events after a restart", push(before+2))
	noError(t, cmd.Process.Signal(syscall.SIGINT))
	if err := cmd.Wait(); err != nil {
		t.Errorf("watch ended: %v\n%s", err, out.String())
	}
	if !strings.Contains(out.String(), "reconnecting in 1s") {
		t.Errorf("watch: %s", out.String())
	}
}

// syncBuffer is a buffer that a process writes while the test reads it.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// silent returns the URL of a listener that accepts connections and does not respond.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	noError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return "http://" + l.Addr().String()
}
