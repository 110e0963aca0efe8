package deploy_test

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// clientsGroup is the ID of the group of lbd.socket on a machine.
const clientsGroup = 990

// self is a reachable endpoint on a machine: the port of lbd.
const self = `{"version": "1", "resources": [{"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "cluster_name": "orders",
	"endpoints": [{"locality": {"region": "here"}, "load_balancing_weight": 1, "lb_endpoints": [
	{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 8080}}}}]}]}]}`

const store = "/var/lib/lbd/lbd.db"

// picks checks that picks return the pushed endpoint. Without a daemon, requests wait at the socket.
func (m *machine) picks(t *testing.T, when string) {
	t.Helper()
	status, answer, err := m.ask("GET", "/pick?cluster=orders&wait=30s", "")
	if err != nil || status != http.StatusOK || !strings.Contains(answer, "127.0.0.1") {
		t.Fatalf("%s: %d, %v\n%s\n%s", when, status, err, answer, m.logged())
	}
}

// documented returns the command of docs/deployment.md that contains words.
func documented(t *testing.T, words string) string {
	t.Helper()
	for line := range strings.Lines(read(t, "docs/deployment.md")) {
		if strings.Contains(line, words) {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("docs/deployment.md does not contain %q", words)
	return ""
}

// TestUnderSystemd starts, restarts and stops lbd with the installed units, in consecutive steps.
func TestUnderSystemd(t *testing.T) {
	m := boot(t)
	m.write(t, "/etc/lbd/lbd.env", "LBD_DRAIN_TIMEOUT=11s\nLBD_LISTEN=127.0.0.1:9999\nLBD_DENY_ENDPOINTS=none\n", 0o600)

	m.must(t, "systemctl", "start", "lbd.service")
	m.waitForLog(t, `"not_listening":["127.0.0.1:9999"]`)
	m.must(t, "lbd", "healthcheck") // on the default port
	if status, answer, err := m.ask("PUT", "/v1/snapshot", self); err != nil || status != http.StatusOK {
		t.Fatalf("push: %d, %v\n%s", status, err, answer)
	}
	m.picks(t, "started") // having connected over TCP

	step := func(name string, run func(t *testing.T)) {
		t.Helper()
		if !t.Run(name, run) {
			t.FailNow()
		}
	}
	step("the sockets' rights", func(t *testing.T) {
		info, err := os.Stat(m.path("/run/lbd.sock"))
		must(t, err)
		if s, ok := info.Sys().(*syscall.Stat_t); !ok || s.Gid != clientsGroup || info.Mode().Perm() != 0o660 {
			t.Errorf("the socket has mode %v and group %d", info.Mode(), s.Gid)
		}
	})
	step("its rights", func(t *testing.T) {
		status := m.must(t, "cat", "/proc/"+m.property(t, "lbd.service", "MainPID")+"/status")
		for _, want := range []string{"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
			if !strings.Contains(status, want) {
				t.Errorf("no %q in\n%s", want, status)
			}
		}
		if strings.Contains(status, "Uid:\t0") {
			t.Error("lbd is root")
		}
	})
	step("restart", func(t *testing.T) {
		asked := make(chan string, 1)
		go func() { asked <- m.repeat("/pick?cluster=orders", 10_000) }()
		m.must(t, "systemctl", "restart", "lbd.service")
		if failed := <-asked; failed != "" {
			t.Errorf("across the restart: %s", failed)
		}
		m.waitForLog(t, `"msg":"draining","delay":0,"timeout":11000000000`) // as lbd.env says
		m.picks(t, "restarted")
	})
	step("crashes", func(t *testing.T) {
		for i := range 5 { // more than systemd's limit of starts is
			m.must(t, "kill", "-KILL", m.property(t, "lbd.service", "MainPID"))
			m.picks(t, fmt.Sprintf("crash %d", i+1))
		}
	})
	step("damaged store", func(t *testing.T) {
		m.must(t, "systemctl", "stop", "lbd.socket", "lbd.service")
		good, err := os.ReadFile(m.path(store))
		must(t, err)
		must(t, os.Truncate(m.path(store), int64(len(good)/2)))
		if out, err := m.run("systemctl", "start", "lbd.service"); err == nil {
			t.Fatalf("started: %s", out)
		}
		for range 2 { // again and again, also without requests
			m.waitForLog(t, "damaged")
		}
		answered := make(chan error, 1)
		go func() { // a request must neither start an empty store nor fail
			status, answer, err := m.ask("GET", "/v1/clusters?prefix=orders", "")
			if err == nil && (status != http.StatusOK || !strings.Contains(answer, `"orders"`)) {
				err = fmt.Errorf("%d: %s", status, answer)
			}
			answered <- err
		}()
		for range 2 {
			m.waitForLog(t, "damaged")
		}
		select {
		case err := <-answered:
			t.Fatalf("answered of a damaged store: %v", err)
		default:
		}
		m.write(t, "/root/backup.db", string(good), 0o600)
		m.must(t, "env", "HOME=/root", "sh", "-ec", documented(t, "lbd.db.new"))
		if err := <-answered; err != nil {
			t.Errorf("restored: %v", err)
		}
		m.picks(t, "restored")
	})
	step("secrets", func(t *testing.T) { // as docs/deployment.md says
		m.write(t, "/etc/lbd/lbd.yaml", "log-level: debug\n", 0o600)
		m.write(t, "/etc/lbd/lbd.env", "LBD_CONFIG=/run/credentials/lbd.service/lbd.yaml\nLBD_DENY_ENDPOINTS=none\n", 0o600)
		m.write(t, "/etc/systemd/system/lbd.service.d/secrets.conf", "[Service]\nLoadCredential=lbd.yaml:/etc/lbd/lbd.yaml\n", 0o644)
		m.must(t, "systemctl", "daemon-reload")
		m.must(t, "systemctl", "restart", "lbd.service")
		m.picks(t, "with a credential")
		m.waitForLog(t, `"level":"DEBUG"`)
	})
	step("stop", func(t *testing.T) {
		pid, err := strconv.Atoi(m.property(t, "lbd.service", "MainPID"))
		if err != nil || pid == 0 {
			t.Fatalf("process %d, %v", pid, err)
		}
		m.must(t, "systemctl", "stop", "lbd.socket", "lbd.service")
		if status, answer, err := m.ask("GET", "/readyz", ""); err == nil {
			t.Errorf("stopped, and answers %d %s", status, answer)
		}
		for _, unit := range []string{"lbd.service", "lbd.socket"} {
			if state := m.property(t, unit, "ActiveState"); state != "inactive" {
				t.Errorf("stopped, and %s is %s", unit, state)
			}
		}
	})
}
