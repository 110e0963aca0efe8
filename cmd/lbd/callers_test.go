package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newToken runs lbd token new, and returns the token and its entry.
func newToken(t *testing.T, args ...string) (token, entry string) {
	t.Helper()
	o := here(t, append([]string{"token", "new"}, args...)...)
	m := regexp.MustCompile(`(?m)^(lbd_\S+)\n`).FindStringSubmatch(o.stdout)
	_, entry, found := strings.Cut(o.stdout, "(--tokens):\n")
	if o.code != 0 || m == nil || !found {
		t.Fatalf("lbd token new: %+v", o)
	}
	return m[1], entry
}

// request makes a request, and returns the status and the body of the answer. An empty host is that
// of the URL.
func request(t *testing.T, client *http.Client, method, url, token, host string) (int, string) {
	t.Helper()
	return requestWith(t, client, method, url, token, host, "")
}

// requestWith is request with a body.
func requestWith(t *testing.T, client *http.Client, method, url, token, host, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	noError(t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Host = host
	answer, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	noError(t, err)
	return answer.StatusCode, string(text)
}

// writeSecret replaces a file that others may not read.
func writeSecret(t *testing.T, path, content string) {
	t.Helper()
	noError(t, errors.Join(os.WriteFile(path+".next", []byte(content), 0o600), os.Rename(path+".next", path)))
}

// Tokens that lbd made are those of their callers, until the file does not have
// them any more. While the file is invalid, they stay.
func TestTokensOfTheDaemon(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "identities.yaml")
	web, webEntry := newToken(t, "--name=web", "--clusters=orders*", "--expires=2160h")
	ci, ciEntry := newToken(t, "--name=ci", "--roles=push+read+metrics")
	writeSecret(t, file, "tokens:\n"+webEntry+ciEntry)
	p := startProcess(t, "--data=", "--tokens="+file)
	client := http.DefaultClient
	for _, c := range []struct {
		method, path, token string
		want                int
		body                string
	}{
		{"GET", "/v1/clusters", "", 401, "role read is required: callers without identity have no roles"},
		{"GET", "/v1/clusters", web, 403, "role read is required: web has the roles pick"},
		{"GET", "/v1/clusters", ci, 200, `"clusters":[]`},
		{"GET", "/v1/clusters", ci + "x", 401, "the token is unknown"},
		{"GET", "/pick?cluster=orders", web, 404, "unknown_cluster"},
		{"GET", "/pick?cluster=users", web, 403, "web may not use"},
		{"GET", "/metrics", ci, 200, "lbd_build_info"},
		{"GET", "/metrics", "", 401, "role metrics is required"},
		{"GET", "/livez", "wrong", 200, "ok"},
		{"GET", "/readyz", "", 200, "ok"},
	} {
		if got, body := request(t, client, c.method, p.url+c.path, c.token, ""); got != c.want || !strings.Contains(body, c.body) {
			t.Errorf("%s %s: %d %s; want %d %s", c.method, c.path, got, body, c.want, c.body)
		}
	}
	awaitStatus := func(what string, want int) {
		t.Helper()
		eventually(t, fmt.Sprint(what, want), func() bool {
			got, _ := request(t, client, "GET", p.url+"/v1/clusters", ci, "")
			ready, conditions := request(t, client, "GET", p.url+"/readyz?verbose", "", "")
			return got == want && ready == 200 && strings.Contains(conditions, what)
		})
	}
	stream, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/v1/clusters/watch", http.NoBody)
	noError(t, err)
	stream.Header.Set("Authorization", "Bearer "+ci)
	watch, err := client.Do(stream)
	if err != nil || watch.StatusCode != http.StatusOK {
		t.Fatalf("stream: %+v, %v", watch, err)
	}
	defer watch.Body.Close()
	writeSecret(t, file, "tokens: [{}]")
	awaitStatus("credentials_invalid", 200)
	const want = "; the last valid version stays in use: correct the file;"
	if _, conditions := request(t, client, "GET", p.url+"/readyz?verbose", ci, ""); !strings.Contains(conditions, want) {
		t.Errorf("%s; want %s", conditions, want)
	}
	writeSecret(t, file, "tokens:\n"+webEntry)
	awaitStatus("", 401)
	if _, err := io.Copy(io.Discard, watch.Body); err != nil { // ends
		t.Errorf("the stream of a caller that was removed: %v", err)
	}
	if got, conditions := request(t, client, "GET", p.url+"/readyz?verbose", "", ""); strings.Contains(conditions, "credentials_invalid") {
		t.Errorf("%d %s", got, conditions)
	}
}

func TestRolesBeyondLoopback(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		push int
		body string
		log  string
	}{
		{nil, 403, "Add the option tls and --tokens, or, in a trusted network, --insecure", "roles are limited to pick+metrics"},
		{[]string{"--insecure"}, 400, "invalid_argument", "--insecure: every caller"},
	} {
		p := start(t, command(append([]string{"serve", "--listen=0.0.0.0:0", "--data=", "--log-format=json"}, c.args...)...))
		_, port, _ := strings.Cut(strings.TrimPrefix(p.url, "http://"), "]:")
		url := "http://127.0.0.1:" + port
		if got, body := request(t, http.DefaultClient, "PUT", url+"/v1/clusters/orders/endpoints?bad", "", ""); got != c.push || !strings.Contains(body, c.body) {
			t.Errorf("%q: push: %d %s", c.args, got, body)
		}
		if got, body := request(t, http.DefaultClient, "GET", url+"/pick?cluster=orders", "", ""); got != 404 {
			t.Errorf("%q: pick: %d %s", c.args, got, body)
		}
		if got, body := request(t, http.DefaultClient, "GET", url+"/metrics", "", ""); got != 200 {
			t.Errorf("%q: metrics: %d %s", c.args, got, body)
		}
		if !strings.Contains(p.output(), c.log) {
			t.Errorf("%q: log %s", c.args, p.output())
		}
		_, verbose := request(t, http.DefaultClient, "GET", url+"/readyz?verbose", "", "")
		if strings.Contains(verbose, "--insecure") != (c.args != nil) {
			t.Errorf("%q: %s", c.args, verbose)
		}
	}
}

// A page that reaches a daemon on loopback by DNS rebinding has its own name in
// the Host header.
func TestRebinding(t *testing.T) {
	t.Parallel()
	p := startProcess(t, "--data=", "--allow-host=lbd.internal")
	for host, want := range map[string]int{"attacker.example": 421, "": 200, "localhost": 200, "lbd.internal": 200, "lbd.internal:80": 200} {
		for _, call := range []string{"GET /v1/snapshot", "GET /", "GET /metrics"} {
			method, path, _ := strings.Cut(call, " ")
			if got, body := request(t, http.DefaultClient, method, p.url+path, "", host); got != want {
				t.Errorf("%s of %q: %d %s", call, host, got, body)
			}
		}
		if got, body := request(t, http.DefaultClient, "PUT", p.url+"/v1/snapshot", "", host); got != want && (want == 421 || got == 421) {
			t.Errorf("PUT of %q: %d %s", host, got, body)
		}
	}
}

// A TLS listener serves what its files have: a certificate that is rotated is that
// of the next connection.
func TestTLSListener(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	first, second := newIssuer(t), newIssuer(t)
	first.write(t, dir)
	token, entry := newToken(t, "--name=ci", "--roles=read")
	tokens := filepath.Join(dir, "identities.yaml")
	writeSecret(t, tokens, "tokens:\n"+entry)
	p := start(t, command("serve", "--listen=127.0.0.1:0,tls", "--data=", "--log-format=json", "--tls-cert="+cert, "--tls-key="+key, "--tokens="+tokens))
	url := strings.Replace(p.url, "http:", "https:", 1)
	call := func(trusted *issuer) (int, string) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted.roots, ServerName: "orders.example"}, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		return request(t, &http.Client{Transport: transport}, "GET", url+"/v1/clusters", token, "")
	}
	if got, body := call(first); got != 200 {
		t.Fatalf("%d %s", got, body)
	}
	if err := (&healthcheckCommand{Listen: []string{strings.TrimPrefix(url, "https://") + ",tls"}}).Run(t.Context()); err != nil {
		t.Errorf("healthcheck: %v", err)
	}
	second.write(t, dir)
	eventually(t, "the rotated certificate", func() bool { got, _ := call(second); return got == 200 })
}

func TestSecurityFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, other := filepath.Join(dir, "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	newIssuer(t).write(t, dir)
	newIssuer(t).write(t, filepath.Dir(other))
	public := filepath.Join(dir, "public.yaml")
	writeSecret(t, public, "tokens: []")
	noError(t, os.Chmod(public, 0o644))
	for _, c := range []struct{ args, want string }{
		{"--tls-cert=" + cert, "--tls-cert and --tls-key: set both or neither"},
		{"--tls-client-ca=" + cert, "--tls-client-ca requires --tls-cert"},
		{"--listen=127.0.0.1:0,tls", "the option tls requires --tls-cert and --tls-key"},
		{"--listen=127.0.0.1:0,roles=root", `unknown role "root"`},
		{"--tls-cert=" + cert + " --tls-key=" + other, "private key does not match public key"},
		{"--tokens=" + filepath.Join(dir, "missing"), "no such file"},
		{"--tokens=" + public, "every user can read or write it (mode 0644): run chmod o-rwx on it"},
		{"--allow-host=*", `"*": must be a host name`},
	} {
		expectFailure(t, command(append([]string{"serve", "--data="}, strings.Fields(c.args)...)...), c.want)
	}
	for _, c := range []struct{ args, want string }{
		{"--name=a --roles=root", `unknown role "root"`},
		{"--name=a --expires=-1h", "--expires must be positive"},
		{"--name=a --expires=0s", "--expires must be positive"},
		{"--name=a,b --roles=none", "roles: required"},
		{"", "missing flags: --name=NAME"},
	} {
		expectFailure(t, command(append([]string{"token", "new"}, strings.Fields(c.args)...)...), c.want)
	}
}

// Every push is in the audit log, with who made it and what it changed, whether it
// was applied or rejected; a log that is rotated continues in a new file.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, rotated, tokens := filepath.Join(dir, "audit.log"), filepath.Join(dir, "audit.log.1"), filepath.Join(dir, "identities.yaml")
	ci, entry := newToken(t, "--name=ci", "--roles=push+read")
	writeSecret(t, tokens, "tokens:\n"+entry)
	p := startProcess(t, "--data=", "--connect=none", "--tokens="+tokens, "--audit="+file)
	push := func(token, cluster, body string) {
		t.Helper()
		requestWith(t, http.DefaultClient, "PUT", p.url+"/v1/clusters/"+cluster+"/endpoints", token, "", body)
	}
	const one = `{"endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":"127.0.0.1","port_value":1}}}}]}]}`
	push(ci, "orders", one)
	push(ci, "orders", `{"endpoint":[]}`)
	push("wrong", "orders", one)
	if got, body := request(t, http.DefaultClient, "GET", p.url+"/v1/clusters", ci, ""); got != 200 {
		t.Fatal(body)
	}
	type record struct {
		Time                                time.Time
		Caller, Address, Role, Method, Path string
		Status                              int
		Code                                string
		Changes                             []map[string]any
	}
	read := func(path string, want int) (records []record) {
		t.Helper()
		eventually(t, "the records", func() bool { // each is written after the answer
			b, _ := os.ReadFile(path)
			return strings.Count(string(b), "\n") >= want
		})
		b, err := os.ReadFile(path)
		noError(t, err)
		for line := range strings.Lines(string(b)) {
			var r record
			noError(t, json.Unmarshal([]byte(line), &r))
			records = append(records, r)
		}
		return records
	}
	got := read(file, 3)
	if len(got) != 3 {
		t.Fatalf("%d records: %+v", len(got), got)
	}
	if r := got[0]; r.Caller != "ci" || r.Role != "push" || r.Method != http.MethodPut || r.Path != "/v1/clusters/orders/endpoints" || r.Status != 201 || len(r.Changes) != 1 || r.Time.IsZero() ||
		!strings.HasPrefix(r.Address, "127.0.0.1:") {
		t.Errorf("applied: %+v", r)
	}
	if r := got[1]; r.Caller != "ci" || r.Status != 422 || r.Code != "invalid_resource" || r.Changes != nil {
		t.Errorf("invalid: %+v", r)
	}
	if r := got[2]; r.Caller != "" || r.Status != 401 || r.Code != "unauthenticated" {
		t.Errorf("unauthenticated: %+v", r)
	}
	noError(t, errors.Join(os.Rename(file, rotated), p.cmd.Process.Signal(syscall.SIGHUP)))
	eventually(t, "the new log", func() bool { _, err := os.Stat(file); return err == nil })
	push(ci, "users", one)
	if got := read(file, 1); len(got) != 1 || got[0].Path != "/v1/clusters/users/endpoints" {
		t.Errorf("after the rotation: %+v", got)
	}
}

// Every request is in the access log, without secrets; a log that is rotated continues in a new file.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, rotated := filepath.Join(dir, "access.log"), filepath.Join(dir, "access.log.1")
	p := startProcess(t, "--data=", "--connect=none", "--access-log="+file)
	type line struct {
		Time                                    time.Time
		Caller, Address, Listener, Method, Path string
		Status                                  int
		Code                                    string
		Bytes                                   int64
		Duration                                float64
	}
	last := func(path, status string) (l line) {
		t.Helper()
		var found string
		eventually(t, "the line", func() bool { // it is written after the response
			b, _ := os.ReadFile(path)
			for text := range strings.Lines(string(b)) {
				if strings.Contains(text, `"status":`+status) && strings.HasSuffix(text, "\n") {
					found = text
				}
			}
			return found != ""
		})
		noError(t, json.Unmarshal([]byte(found), &l))
		return l
	}
	status, body := request(t, http.DefaultClient, "GET", p.url+"/pick?cluster=absent&hash=alice", "", "")
	if status != 404 {
		t.Fatal(status, body)
	}
	l := last(file, "404")
	if l.Method != http.MethodGet || l.Path != "/pick?cluster=absent&hash=…" || l.Code != "unknown_cluster" || l.Bytes != int64(len(body)) ||
		l.Duration <= 0 || l.Duration > 60 || time.Since(l.Time) > time.Minute || "http://"+l.Listener != p.url || !strings.HasPrefix(l.Address, "127.0.0.1:") {
		t.Errorf("%+v", l)
	}
	noError(t, errors.Join(os.Rename(file, rotated), p.cmd.Process.Signal(syscall.SIGHUP)))
	eventually(t, "the new log", func() bool { _, err := os.Stat(file); return err == nil })
	request(t, http.DefaultClient, "GET", p.url+"/absent", "", "")
	if l := last(file, "404"); l.Path != "/absent" {
		t.Errorf("after the rotation: %+v", l)
	}
	if _, metrics := request(t, http.DefaultClient, "GET", p.url+"/metrics", "", ""); !strings.Contains(metrics, `lbd_access_log_lines_total{result="dropped"} 0`) {
		t.Error("no metrics of the access log")
	}
}

// SIGHUP has no effect without logs to reopen.
func TestHangup(t *testing.T) {
	t.Parallel()
	p := startProcess(t, "--data=", "--connect=none")
	noError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	if status, body := request(t, http.DefaultClient, "GET", p.url+"/readyz", "", ""); status != 200 {
		t.Fatal(status, body)
	}
	p.stop(t) // SIGHUP would have ended it with an error
}

// The audit log names the process of a unix caller, and the identity whose token has expired; it has
// leases that were ended, with the role that permitted it.
func TestAuditedCallers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, tokens, socket := filepath.Join(dir, "audit.log"), filepath.Join(dir, "identities.yaml"), filepath.Join(dir, "s")
	old, entry := newToken(t, "--name=old", "--roles=push")
	admin, adminEntry := newToken(t, "--name=operator", "--roles=admin")
	writeSecret(t, tokens, "tokens:\n"+entry+"  expires: 2020-01-01T00:00:00Z\n"+adminEntry)
	p := startProcess(t, "--data=", "--connect=none", "--tokens="+tokens, "--audit="+file, "--listen=unix:"+socket+",anonymous=pick+push")
	unix := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	defer unix.CloseIdleConnections()
	last := func(status int) string {
		t.Helper()
		var found string
		eventually(t, "the record", func() bool { // it is written after the response
			b, _ := os.ReadFile(file)
			for line := range strings.Lines(string(b)) {
				if strings.Contains(line, fmt.Sprintf(`"status":%d,`, status)) || strings.Contains(line, fmt.Sprintf(`"status":%d}`, status)) {
					found = line
				}
			}
			return found != ""
		})
		return found
	}
	request(t, http.DefaultClient, "DELETE", p.url+"/v1/clusters/orders/endpoints", old, "")
	if got := last(401); !strings.Contains(got, `"expired":"old"`) || strings.Contains(got, `"caller"`) {
		t.Errorf("expired: %s", got)
	}
	request(t, http.DefaultClient, "DELETE", p.url+"/v1/clusters/orders/endpoints", "wrong", "")
	if got := last(401); strings.Contains(got, "uid") {
		t.Errorf("over TCP: %s", got)
	}
	if status, body := request(t, unix, "DELETE", "http://lbd/v1/clusters/orders/endpoints", "", ""); status != 404 {
		t.Fatal(status, body)
	}
	process := fmt.Sprintf(`"address":"unix","uid":%d,"pid":%d,`, os.Getuid(), os.Getpid())
	if got := last(404); runtime.GOOS == "linux" && !strings.Contains(got, process) {
		t.Errorf("over a unix socket: %s; want %s", got, process)
	}
	if status, body := request(t, http.DefaultClient, "DELETE", p.url+"/v1/leases?cluster=orders", admin, ""); status != 200 {
		t.Fatal(status, body)
	}
	if got := last(200); !strings.Contains(got, `"caller":"operator"`) || !strings.Contains(got, `"role":"admin"`) || !strings.Contains(got, `"changes":{"ended":0`) {
		t.Errorf("ended leases: %s", got)
	}
}
