package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/lbd-dev/lbd/service/doctor"
)

// runDoctor runs lbd doctor without a configuration.
func runDoctor(t *testing.T, url string, args ...string) outcome {
	t.Helper()
	return here(t, append([]string{"doctor", "--url=" + url}, args...)...)
}

// broken is a setup that does not work.
type broken struct {
	// start makes it, and returns the URL of its daemon.
	start func(*testing.T) string
	// args are those of lbd doctor.
	args string
	// code is its exit code, and first the beginning of its first line; then has other texts of that line.
	code  int
	first string
	then  []string
}

const orders = "/v1/clusters/orders"

// working starts a daemon.
func working(t *testing.T) string {
	t.Helper()
	return "http://" + startServe(t, Config{Connect: "tcp", PickWait: time.Second})[0]
}

// with returns a start of a daemon that gets requests, which must succeed: a method, a path and a body
// each. A body may have %s for the address of an upstream, and PORT for its port.
func with(requests ...[3]string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		url := working(t)
		address, _ := upstream(t)
		_, port, err := net.SplitHostPort(address)
		noError(t, err)
		for _, r := range requests {
			if a := do(t, r[0], url+r[1], strings.NewReplacer("%s", address, "PORT", port).Replace(r[2])); a.status/100 != 2 {
				t.Fatalf("%s %s: %+v", r[0], r[1], a)
			}
		}
		return url
	}
}

// assigned is an assignment with one endpoint at each address, or at that of the upstream, and with more fields of the endpoint and of
// the assignment.
func assigned(ofEndpoint, ofAssignment string, addresses ...string) string {
	var list []string
	for _, a := range addresses {
		host, port, ok := strings.Cut(a, ":")
		address := fmt.Sprintf(`{"address":%q,"port_value":%s}`, host, port)
		if !ok { // the upstream
			address = `{"address":"127.0.0.1","port_value":PORT}`
		}
		list = append(list, fmt.Sprintf(`{"endpoint":{"address":{"socket_address":%s}}%s}`, address, ofEndpoint))
	}
	return fmt.Sprintf(`{"endpoints":[{"lb_endpoints":[%s]}]%s}`, strings.Join(list, ","), ofAssignment)
}

// followed starts a daemon that follows a management server, and picks from orders once.
func followed(t *testing.T, p *controlPlane) string {
	t.Helper()
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p), PickWait: time.Millisecond})
	do(t, "GET", url+"/pick?cluster=orders", "")
	return url
}

// inFiles starts a daemon with a resource file, replaces the file, and waits for a text in GET /v1/files.
func inFiles(before, after, until string) func(*testing.T) string {
	return func(t *testing.T) string {
		d := directory{t, t.TempDir()}
		d.set("orders.yaml", before)
		url := "http://" + startServe(t, Config{Connect: "none", Resources: d.path})[0]
		d.set("orders.yaml", after)
		eventually(t, "the file is read", func() bool { return strings.Contains(do(t, "GET", url+"/v1/files", "").body, until) })
		return url
	}
}

// secured starts a server of TLS whose certificate is valid until an hour from now or was an hour ago, and
// a daemon that expects a name of it.
func secured(name string, expired bool) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		dir := t.TempDir()
		address := tlsServer(t, dir, expired)
		file := filepath.Join(dir, "xds.json")
		writeFile(t, file, fmt.Appendf(nil, `{"xds_servers":[{"server_uri":"127.0.0.1:1","channel_creds":[{"type":"insecure"}]}],
			"certificate_providers":{"mesh":{"plugin_name":"file_watcher","config":{"ca_certificate_file":"%s/ca.pem"}}}}`, dir))
		url := "http://" + startServe(t, Config{Bootstrap: file, Connect: "tcp", PickWait: time.Second, OnDemand: 1, OnDemandIdle: time.Hour})[0]
		config := fmt.Sprintf(`{"type":"EDS","transport_socket":{"name":"envoy.transport_sockets.tls","typed_config":{
			"@type":"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext","common_tls_context":{"validation_context":{
			"ca_certificate_provider_instance":{"instance_name":"mesh"},"match_subject_alt_names":[{"exact":%q}]}}}}}`, name)
		expect(t, http.StatusCreated, "PUT", url+orders+"/config", config)
		pushEndpoints(t, url, "orders", address)
		do(t, "GET", url+"/pick?cluster=orders&wait=0s", "")
		return url
	}
}

// tlsServer serves TLS with a certificate for orders.example, whose authority is ca.pem in dir.
func tlsServer(t *testing.T, dir string, expired bool) (address string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	noError(t, err)
	sign := func(c *x509.Certificate, end time.Time) []byte {
		c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), end.Add(-2*time.Hour), end
		der, err := x509.CreateCertificate(rand.Reader, c, &x509.Certificate{SerialNumber: c.SerialNumber, IsCA: true}, key.Public(), key)
		noError(t, err)
		return der
	}
	ca := sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, time.Now().Add(time.Hour))
	writeFile(t, filepath.Join(dir, "ca.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca}))
	end := time.Now().Add(time.Hour)
	if expired {
		end = time.Now().Add(-time.Hour)
	}
	leaf := sign(&x509.Certificate{DNSNames: []string{"orders.example"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, end)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leaf}, PrivateKey: key}}})
	noError(t, err)
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, conn) // the handshake first
				_ = conn.Close()
			}()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-accepted
	})
	return l.Addr().String()
}

// brokenSetups are setups, by what is wrong.
var brokenSetups = map[string]broken{
	"no endpoint": {
		with([3]string{"PUT", orders + "/endpoints?allow_empty=true", `{"endpoints":[]}`}), "orders", 1,
		"✗ endpoints of orders: the cluster has no endpoints",
		[]string{"ClusterLoadAssignment/orders from a push"},
	},
	"all endpoints are unhealthy by EDS": {
		with([3]string{"PUT", orders + "/endpoints?allow_empty=true", assigned(`,"health_status":"UNHEALTHY"`, "", "127.0.0.1:1", "127.0.0.1:2")}), "orders", 1,
		"✗ endpoints of orders: the cluster has 2 endpoints, and none is usable: EDS health is UNHEALTHY (2)", nil,
	},
	"connections are refused": {
		with([3]string{"PUT", orders + "/endpoints", "127.0.0.1:1\n"}), "orders", 1,
		"✗ connections of orders: 1 of 1 endpoint refuses connections: 127.0.0.1:1: ", nil,
	},
	"an address is not permitted": {
		with([3]string{"PUT", orders + "/endpoints", "169.254.1.1:80\n"}), "orders", 1,
		"✗ connections of orders: 1 of 1 endpoint is not permitted: ",
		[]string{"--deny-endpoints (169.254.0.0/16)"},
	},
	"the certificate has another name": {
		secured("users.example", false), "orders", 1,
		"✗ TLS of orders: 1 of 1 endpoint has a certificate with another name",
		[]string{"orders.example", "users.example"},
	},
	"the certificate has expired": {
		secured("orders.example", true), "orders", 1,
		"✗ TLS of orders: 1 of 1 endpoint has an expired certificate",
		[]string{"x509: certificate has expired"},
	},
	"the endpoint speaks no TLS": {
		func(t *testing.T) string {
			url := secured("orders.example", false)(t)
			address, _ := upstream(t)
			expect(t, http.StatusOK, "PUT", url+orders+"/endpoints", address+"\n")
			return url
		}, "orders", 1, "✗ TLS of orders: 1 of 1 endpoint does not speak TLS", nil,
	},
	"a DNS name does not resolve": {
		with([3]string{"PUT", "/v1/clusters/dns/config", `{"type":"LOGICAL_DNS","load_assignment":{"endpoints":[{"lb_endpoints":[{"endpoint":{"address":` +
			`{"socket_address":{"address":"orders.invalid","port_value":80}}}}]}]}}`}), "dns", 1,
		`✗ DNS of dns: the name "orders.invalid:80" does not resolve`, nil,
	},
	"the circuit breaker is full": {
		with([3]string{"PUT", orders + "/config", `{"type":"EDS","circuit_breakers":{"thresholds":[{"max_requests":1}]}}`},
			[3]string{"PUT", orders + "/endpoints", "%s\n"}, [3]string{"POST", "/pick?cluster=orders&ttl=10m&owner=batch", ""}), "orders", 1,
		"✗ breaker of orders: the circuit breaker is full: 1 of 1 requests are in flight",
		[]string{"held by batch (1)"},
	},
	"everything is dropped": {
		with([3]string{"PUT", orders + "/endpoints", assigned("", `,"policy":{"drop_overloads":[{"category":"throttle","drop_percentage":{"numerator":100}}]}`, "upstream")}), "orders", 1,
		`✗ drops of orders: all picks are dropped: category "throttle": 100 %`, nil,
	},
	"everything is dropped, and no cluster is named": {
		with([3]string{"PUT", orders + "/endpoints", "%s\n"}, [3]string{"PUT", orders + "/overlays/stop", `{"kind":"drop","percent":100}`}), "", 1,
		`✗ drops of orders: all picks are dropped: category "`,
		[]string{"set by overlay stop"},
	},
	"a resource file is invalid": {
		inFiles(envoyFile("orders", "10.0.0.1:80"), strings.Replace(envoyFile("orders", "10.0.0.1:80"), "port_value", "port_valeu", 1), `"state":"bad"`), "", 1,
		"✗ files: resource file orders.yaml is bad",
		[]string{"port_valeu: unknown field", "did you mean port_value?"},
	},
	"a resource file is invalid from the start": {
		inFiles("endpoints: [", "endpoints: [", `"state":"bad"`), "orders", 1, "✗ files: resource file orders.yaml is bad", nil,
	},
	"a change of a file is held": {
		inFiles(envoyFile("orders", "10.0.0.1:80"), "cluster_name: orders", `"state":"held"`), "", 1,
		"✗ files: a change of orders.yaml is held: cluster \"orders\" would have no usable endpoints", nil,
	},
	"the management server is unreachable": {
		func(t *testing.T) string {
			_, p := serveSnapshot(t)
			p.kill()
			url := followed(t, p)
			eventually(t, "an error", func() bool { return strings.Contains(do(t, "GET", url+"/v1/daemon", "").body, "server_unreachable") })
			return url
		}, "orders", 1, "✗ management servers: management server 127.0.0.1:", []string{"cannot be reached", "connection refused"},
	},
	"the server does not have the cluster": {
		func(t *testing.T) string {
			if testing.Short() {
				t.Skip("long: the server has 15 s to send a resource")
			}
			_, p := serveSnapshot(t, edsCluster("users"), assignmentOf("users", "10.0.0.1:80"))
			return followed(t, p)
		}, "orders", 1, "✗ resources: the management server does not have Cluster/orders", nil,
	},
	"a resource is rejected": {
		func(t *testing.T) string {
			bad := assignmentOf("orders", "10.0.0.1:80")
			bad.Endpoints[0].Priority = 7
			_, p := serveSnapshot(t, edsCluster("orders"), bad)
			return followed(t, p)
		}, "orders", 1, "✗ resources: ClusterLoadAssignment/orders of the management server is rejected", []string{"priority"},
	},
	"the server has deleted the cluster": {
		func(t *testing.T) string {
			plane, p := serveSnapshot(t, edsCluster("orders"), assignmentOf("orders", "10.0.0.1:80"))
			url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p)})
			expectPick(t, url, "cluster=orders", "10.0.0.1:80")
			plane.set(assignmentOf("orders", "10.0.0.1:80"))
			eventually(t, "the deletion", func() bool { return xdsState(t, url, "state=does_not_exist_but_cached").Total == 1 })
			return url
		}, "orders", 1, "✗ resources: the management server has deleted Cluster/orders", nil,
	},
	"the leaves of an aggregate are missing": {
		with([3]string{"PUT", "/v1/clusters/all/config", `{"cluster_type":{"name":"envoy.clusters.aggregate","typed_config":{` +
			`"@type":"type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig","clusters":["near","far"]}}}`}), "all", 1,
		`✗ leaves of all: leaf "near" of the aggregate cannot be used: Cluster/near is not known`, nil,
	},
	"an overlay drains everything": {
		with([3]string{"PUT", orders + "/endpoints", "%s\n"}, [3]string{"PUT", orders + "/overlays/deploy-7?allow_empty=true", `{"kind":"drain","endpoint":"%s","reason":"kernel update"}`}), "orders", 1,
		"✗ overlays of orders: 1 overlay takes all usable endpoints out of use: deploy-7 of orders drains endpoint 127.0.0.1:",
		[]string{"kernel update"},
	},
	"the store is not writable": {
		func(t *testing.T) string {
			data := t.TempDir()
			url := "http://" + startServe(t, Config{Connect: "none", Data: data})[0]
			pushEndpoints(t, url, "orders", "10.0.0.1:80")
			noError(t, os.Remove(filepath.Join(data, "lbd.db")))
			return url
		}, "", 1, "✗ store: pushes are refused", []string{"lbd.db"},
	},
	"a target has no Listener": {
		with([3]string{"PUT", "/v1/targets/shop", ""}), "", 1, "✗ targets: picks of xds:///shop fail: ", []string{"Listener/shop is not known"},
	},
	"a route leads to an unknown cluster": {
		with([3]string{"POST", "/v1/snapshot", `{"resources":[{"@type":"type.googleapis.com/envoy.config.listener.v3.Listener","name":"shop","api_listener":{"api_listener":` +
			`{"@type":"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",` +
			`"route_config":{"virtual_hosts":[{"name":"all","domains":["*"],"routes":[{"match":{"prefix":"/"},"route":{"cluster":"odrers"}}]}]}}}}]}`}), "", 1,
		`✗ targets: routes of xds:///shop lead to clusters that no source has: "odrers"`, nil,
	},
	"the EDS service name is wrong": {
		with([3]string{"PUT", orders + "/config", `{"type":"EDS","eds_cluster_config":{"eds_config":{"ads":{}},"service_name":"shop"}}`},
			[3]string{"PUT", orders + "/endpoints", "%s\n"}), "orders", 1,
		"✗ resources of orders: the cluster has no endpoints: ClusterLoadAssignment/shop is not known", nil,
	},
	"the name is misspelled": {
		with([3]string{"PUT", orders + "/endpoints", "%s\n"}), "oders", 1, `✗ cluster of oders: cluster "oders" is not known`, nil,
	},
	"the descriptors are used up": {
		func(t *testing.T) string {
			p := start(t, inShell(command("serve", "--listen=127.0.0.1:0", "--data=", "--log-format=json", "--connect=tcp_hold"), "ulimit -n 64;"))
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "0.0.0.0:0")
			noError(t, err)
			t.Cleanup(func() { _ = l.Close() })
			_, port, err := net.SplitHostPort(l.Addr().String())
			noError(t, err)
			var list strings.Builder
			for i := range 40 {
				fmt.Fprintf(&list, "127.0.0.%d:%s\n", i+2, port)
			}
			expect(t, http.StatusCreated, "PUT", p.url+orders+"/endpoints", list.String())
			do(t, "GET", p.url+"/pick?cluster=orders", "")
			return p.url
		}, "orders --no-dial", 1, "✗ shortage: ", []string{"connections to endpoints", "descriptors"},
	},
}

// TestDoctorNamesTheCause: the first line of lbd doctor names what is wrong.
func TestDoctorNamesTheCause(t *testing.T) {
	t.Parallel()
	for name, b := range brokenSetups {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			b.diagnose(t)
		})
	}
}

// TestDoctorWithoutEtcd is not one of the setups above, which begin when all other tests have begun: lbd waits 5 s for
// etcd.
func TestDoctorWithoutEtcd(t *testing.T) {
	t.Parallel()
	broken{func(t *testing.T) string {
		return startProcess(t, "--connect=none", "--data="+t.TempDir(), "--store=etcd://127.0.0.1:1/lbd").url
	}, "", 1, "✗ store: ", []string{"127.0.0.1:1"}}.diagnose(t)
}

// diagnose starts the setup, and runs lbd doctor when the daemon has noticed what is wrong.
func (b broken) diagnose(t *testing.T) {
	t.Helper()
	daemon := b.start(t)
	args := strings.Fields(b.args)
	query := url.Values{}
	if len(args) > 0 {
		query.Set("cluster", args[0])
	}
	words := b.first[strings.Index(b.first, ": ")+2:]
	var summary string
	defer func() {
		if t.Failed() {
			t.Logf("the last summary: %s", summary)
		}
	}()
	eventually(t, "the daemon notices it", func() bool {
		summary = get[doctor.Report](t, daemon+"/v1/doctor?"+query.Encode()).Summary
		return strings.HasPrefix(summary, words) || len(args) == 1 && strings.Contains(b.first, "connections of") || strings.Contains(b.first, "TLS of")
	})
	checkFirst(t, b, runDoctor(t, daemon, args...))
}

func checkFirst(t *testing.T, b broken, o outcome) {
	t.Helper()
	first, _, _ := strings.Cut(o.stdout, "\n")
	ok := o.code == b.code && strings.HasPrefix(first, b.first)
	for _, text := range b.then {
		ok = ok && strings.Contains(first, text)
	}
	if !ok {
		t.Errorf("exit code %d, want %d, and a first line with %q and %q:\n%s%s", o.code, b.code, b.first, b.then, o.stdout, o.stderr)
	}
	if strings.HasPrefix(b.first, "✗") && !strings.Contains(o.stdout, "    What to do: ") {
		t.Errorf("it does not say what to do:\n%s", o.stdout)
	}
}

// TestDoctorWithoutReport: lbd doctor says why a daemon gives no report, with the exit codes of lbd ctl.
func TestDoctorWithoutReport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token := func(name string, args ...string) (file, entry string) {
		secret, entry := newToken(t, append([]string{"--name=" + name}, args...)...)
		file = filepath.Join(dir, name)
		writeFile(t, file, []byte(secret))
		return file, entry
	}
	picker, pickEntry := token("picker", "--roles=pick")
	reader, readEntry := token("reader", "--roles=read", "--clusters=orders*")
	wrong, _ := token("wrong", "--roles=read")
	identities := filepath.Join(dir, "identities")
	writeFile(t, identities, []byte("tokens:\n"+pickEntry+readEntry))
	closed := startProcess(t, "--data=", "--connect=none", "--tokens="+identities, "--listen=unix:"+filepath.Join(dir, "s")+",anonymous=pick+push")
	noLbd, _ := upstream(t)
	sock := "unix://" + filepath.Join(dir, "s")
	for name, b := range map[string]broken{
		"no daemon":          {nil, "--url=http://127.0.0.1:1", 3, "✗ connection: cannot reach the daemon at http://127.0.0.1:1: ", []string{"connection refused"}},
		"no lbd":             {nil, "--url=http://" + noLbd, 5, "✗ connection: unexpected response 404", []string{"this is not an lbd"}},
		"no TLS":             {nil, "--url=" + strings.Replace(closed.url, "http", "https", 1), 3, "✗ connection: cannot reach the daemon at https://", nil},
		"no token":           {nil, "--url=" + sock, 4, "✗ access: ", nil},
		"a wrong token":      {nil, "--url=" + sock + " --token-file=" + wrong, 4, "✗ access: ", nil},
		"a missing role":     {nil, "--url=" + sock + " --token-file=" + picker, 4, "✗ access: role read is required: picker has the roles pick", nil},
		"another cluster":    {nil, "--url=" + sock + " --token-file=" + reader + " users", 4, `✗ access: reader may not use "users"`, nil},
		"an invalid command": {nil, "--url=" + sock + " --output=xml", 2, "", nil},
		"an invalid timeout": {nil, "--timeout=0s", 2, "", nil},
	} {
		t.Run(name, func(t *testing.T) { checkFirst(t, b, runDoctor(t, "http://127.0.0.1:1", strings.Fields(b.args)...)) })
	}
	o := runDoctor(t, sock, "--token-file="+reader)
	if o.code != 0 || !strings.HasPrefix(o.stdout, "✓ no problem found\n") || !strings.Contains(o.stdout, "reader has the roles read for some clusters") {
		t.Errorf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
}

// TestDoctorOutput: all formats have the checks of the program and of the daemon, and names from a server are
// escaped.
func TestDoctorOutput(t *testing.T) {
	t.Parallel()
	bad := assignmentOf("orders", "10.0.0.1:80")
	bad.Policy = &endpointv3.ClusterLoadAssignment_Policy{DropOverloads: []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{Category: "\x1b[2Jx\u202e"}}}
	_, p := serveSnapshot(t, edsCluster("orders"), bad)
	daemon := followed(t, p)
	o := runDoctor(t, daemon, "orders")
	if strings.ContainsAny(o.stdout, "\x1b\u202e") {
		t.Errorf("control characters in %q", o.stdout)
	}
	var report struct {
		Status string
		Checks []struct{ Check, Status string }
	}
	o = runDoctor(t, daemon, "orders", "-o", "json")
	if err := json.Unmarshal([]byte(o.stdout), &report); err != nil || report.Status == "" || len(report.Checks) < 10 {
		t.Errorf("%v: %s", err, o.stdout)
	}
	if o := runDoctor(t, "http://127.0.0.1:1", "-o", "name"); o.code != 3 || o.stdout != "connection\n" {
		t.Errorf("exit code %d: %s", o.code, o.stdout)
	}
	if o := runDoctor(t, "http://127.0.0.1:1", "-o", "yaml"); o.code != 3 || !strings.Contains(o.stdout, "status: problem") {
		t.Errorf("exit code %d: %s", o.code, o.stdout)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := run(ctx, []string{"doctor", "--url=" + daemon}); got != 130 {
		t.Errorf("interrupted: exit code %d", got)
	}
}
