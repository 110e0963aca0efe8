package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// one is an assignment of one locality with the given endpoint.
func one(endpoint string) string {
	return "cluster_name: a\nendpoints:\n- lb_endpoints:\n  - " + endpoint + "\n"
}

const goodEndpoint = "endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 80}}}"

func TestCheckListsEveryError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, body string
		says       []string // the line of each fault
	}{
		"cut short":           {"a.json", `{"cluster_name":"a","endpoints":[`, []string{"line 1, column"}},
		"not YAML":            {"a.yaml", "a: [", []string{"YAML"}},
		"port 0":              {"a.yaml", one("endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 0}}}"), []string{":4:", "port_value"}},
		"weight 0":            {"a.yaml", one(goodEndpoint + "\n    load_balancing_weight: 0"), []string{":5:5:", "load_balancing_weight"}},
		"twice the same":      {"a.yaml", one(goodEndpoint + "\n  - " + goodEndpoint), []string{":5:", "10.0.0.1:80"}},
		"a pipe":              {"a.yaml", one("endpoint: {address: {pipe: {path: /x}}}"), []string{":4:", "pipe"}},
		"a gap in priorities": {"a.yaml", "cluster_name: a\nendpoints:\n- priority: 1\n  lb_endpoints:\n  - " + goodEndpoint + "\n", []string{":3:3:", "priorit"}},
		"static":              {"a.yaml", "name: a\ntype: STATIC\n", []string{":2:1:", "STATIC"}},
		"another type":        {"a.json", `{"resources":[{"@type":"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret","name":"l"}]}`, []string{"Secret"}},
		"two at once":         {"a.yaml", "cluster_name: a\nendpoints:\n- priority: 1\n  lb_endpoints:\n  - endpoint: {address: {socket_address: {port_value: 80}}}\n", []string{":3:3:", ":5:", "address"}},
		"no usable endpoint":  {"a.yaml", "cluster_name: a\n", []string{":1:1: error: ClusterLoadAssignment/a: has no usable endpoint"}},
		"a misspelled field":  {"a.yaml", strings.Replace(one(goodEndpoint), "lb_endpoints", "lb_endpoint", 1), []string{":3:3: error", "did you mean lb_endpoints"}},
		"none, leniently":     {"a.yaml", "cluster_name: a\nendpoints: [{lb_endpoints: [{" + goodEndpoint + ", health_status: DRAINING}]}]\n", []string{"has no usable endpoint"}},
		"no format":           {"a.csv", "", []string{".json"}},
		"an empty list":       {"a.txt", "# none\n", []string{"the list is empty"}},
		"a list with a typo":  {"a.txt", "10.0.0.1:80\n10.0.0.2\n", []string{"line 2", `"10.0.0.2" is no address`}},
		"in capitals":         {"a.YAML", one("endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 0}}}"), []string{":4:", "port_value"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), c.file)
			writeFile(t, file, []byte(c.body))
			expectFailure(t, command("check", file), append(c.says, file)...)
		})
	}
}

func TestCheckPredictsShares(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.yaml")
	body := "cluster_name: a\npolicy: {drop_overloads: [{category: shed, drop_percentage: {numerator: 5}}]}\nendpoints:\n" +
		"- {load_balancing_weight: 3, locality: {zone: x}, lb_endpoints: [{" + goodEndpoint + "}]}\n" +
		"- {load_balancing_weight: 1, locality: {zone: w}, lb_endpoints: [{" + strings.Replace(goodEndpoint, "10.0.0.1", "10.0.0.2", 1) + "}]}\n"
	writeFile(t, file, []byte(body))
	out, err := command("check", file).CombinedOutput()
	for _, says := range []string{"drops 5 %", "locality /x/: weight 3, 75 %", "locality /w/: weight 1, 25 %"} {
		if err != nil || !strings.Contains(string(out), says) {
			t.Errorf("%v: has no %q: %s", err, says, out)
		}
	}
}

// Weights are those of the policy that a Cluster of any of the files chooses.
func TestCheckJudgesWeights(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	endpoints, cluster := filepath.Join(dir, "endpoints.yaml"), filepath.Join(dir, "cluster.yaml")
	writeFile(t, endpoints, []byte(one(goodEndpoint+"\n    load_balancing_weight: 2\n  - "+strings.Replace(goodEndpoint, "10.0.0.1", "10.0.0.2", 1))))
	writeFile(t, cluster, []byte("name: a\ntype: EDS\nlb_policy: RING_HASH\neds_cluster_config: {eds_config: {ads: {}}}\n"))
	for _, c := range []struct {
		files []string
		warns bool
	}{{[]string{endpoints}, true}, {[]string{endpoints, cluster}, false}, {[]string{cluster, endpoints}, false}} {
		out, err := command(append([]string{"check"}, c.files...)...).CombinedOutput()
		if warns := strings.Contains(string(out), "round_robin ignores it"); err != nil || warns != c.warns {
			t.Errorf("%v: %v: %s", c.files, err, out)
		}
	}
}

// The certificate providers are those of the daemon's bootstrap.
func TestCheckNamesCertificateProviders(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.yaml")
	body := `name: a
type: EDS
eds_cluster_config: {eds_config: {ads: {}}}
transport_socket:
  name: envoy.transport_sockets.tls
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
    common_tls_context: {validation_context_certificate_provider_instance: {instance_name: mesh}}
`
	writeFile(t, file, []byte(body))
	out, err := command("check", file).CombinedOutput()
	if want := `note: not checked: the daemon's bootstrap must have the certificate provider instance "mesh"`; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("error %v; has no %q: %s", err, want, out)
	}
}

func TestConfigurationFile(t *testing.T) {
	t.Parallel()
	write := func(body string) string {
		file := filepath.Join(t.TempDir(), "lbd.yaml")
		writeFile(t, file, []byte(body))
		return file
	}
	for name, c := range map[string]struct{ body, says string }{
		"unknown key":   {"listn: [a]", `"listn"`},
		"flag's values": {"pick-wait: 99s", "--pick-wait must be from 0s to 1m0s, not 1m39s"},
		"a map":         {"connect: {a: b}", "connect"},
		"not YAML":      {"{", "YAML"},
		"twice":         {"connect: tcp\nconnect: none", "connect"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectFailure(t, command("check", "--config", write(c.body)), c.says)
		})
	}

	// The health check asks where the file says that the daemon listens.
	expectFailure(t, command("healthcheck", "--config", write("listen: [127.0.0.1:1]")), "127.0.0.1:1/")

	// LBD_CONFIG applies to every command; the command line takes precedence.
	for _, c := range []struct {
		args   []string
		listen string
	}{
		{[]string{"healthcheck"}, "127.0.0.1:1"},
		{[]string{"serve"}, "203.0.113.3:1"},
		{[]string{"demo"}, "203.0.113.3:1"},
		{nil, "203.0.113.3:1"},
		{[]string{"demo", "--config", write("listen: [\"203.0.113.4:1\"]")}, "203.0.113.4:1"},
	} {
		environment := "203.0.113.3:1"
		if c.args != nil && c.args[0] == "healthcheck" { // asking there would wait
			environment = c.listen
		}
		cmd := command(c.args...)
		cmd.Env = append(cmd.Env, "LBD_DATA=", "LBD_CONFIG="+write("listen: ["+environment+"]"))
		expectFailure(t, cmd, c.listen)
	}

	// Flag over environment over file: the error has the address in use.
	file := write("data: \"\"\nlisten: [\"203.0.113.3:1\"]")
	for name, c := range map[string]struct {
		env, flag string
		want      string
	}{
		"file":        {"", "", "203.0.113.3:1"},
		"environment": {"LBD_LISTEN=203.0.113.2:1", "", "203.0.113.2:1"},
		"flag":        {"LBD_LISTEN=203.0.113.2:1", "--listen=203.0.113.1:1", "203.0.113.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := command("serve", "--config", file)
			if c.flag != "" {
				cmd.Args = append(cmd.Args, c.flag)
			}
			if c.env != "" {
				cmd.Env = append(cmd.Env, c.env)
			}
			expectFailure(t, cmd, c.want)
		})
	}
}
