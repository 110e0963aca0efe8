package fleet

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDemo: the daemons of lbd demo --replicas share an etcd and a limit. The etcd that the demo starts ends
// with it, also if the demo is killed, and leaves no files.
func TestDemo(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	lbd := filepath.Join(bin, "lbd")
	etcd := exec.CommandContext(t.Context(), "go", "build", "-C", "../../tools/lbd-etcd", "-o", filepath.Join(bin, "lbd-etcd"), ".")
	if built := os.Getenv("LBD_TEST_ETCD"); built != "" {
		etcd = exec.CommandContext(t.Context(), "cp", built, bin)
	}
	for _, c := range []*exec.Cmd{exec.CommandContext(t.Context(), "cp", buildDaemon(t, ""), lbd), etcd} {
		if text, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c.Args, err, text)
		}
	}
	for name, c := range map[string]struct {
		flags []string
		end   syscall.Signal
	}{
		"interrupted":            {end: syscall.SIGINT},
		"killed":                 {end: syscall.SIGKILL},
		"with an etcd that runs": {[]string{"--store=etcd://" + startMember(t).client + "/demo"}, syscall.SIGINT},
	} {
		t.Run(name, func(t *testing.T) { testDemo(t, lbd, c.end, c.flags...) })
	}
}

func testDemo(t *testing.T, lbd string, end syscall.Signal, flags ...string) {
	t.Helper()
	temporary := t.TempDir()
	cmd := exec.CommandContext(t.Context(), lbd, append([]string{"demo", "--replicas=3", "--listen=127.0.0.1:0", "--control=127.0.0.1:0", "--log-format=json"}, flags...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr, err := cmd.StderrPipe() // the etcd has it, too: it ends with the last of both
	if err == nil {
		err = cmd.Start()
	}
	noError(t, err)
	serving, ended := make(chan string, 3), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			var record struct{ Addresses []string }
			if json.Unmarshal(lines.Bytes(), &record) == nil && len(record.Addresses) > 0 {
				serving <- record.Addresses[0]
			}
		}
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
	})
	var d daemon
	select {
	case address := <-serving:
		d.process = &process{url: "http://" + address}
	case <-time.After(time.Minute):
		t.Fatal("no daemon serves")
	}
	var fleet struct {
		Replicas []struct{ Address string }
		Limits   []struct {
			Cluster       string
			Limit, Shares int64
			Replicas      int
		}
	}
	until(t, "three daemons with shares", func() bool {
		fleet.Replicas, fleet.Limits = nil, nil
		_, text := d.request("GET", "/v1/fleet", "")
		return json.Unmarshal([]byte(text), &fleet) == nil && len(fleet.Replicas) == 3 && len(fleet.Limits) == 1 && fleet.Limits[0].Replicas == 3
	})
	if l := fleet.Limits[0]; l.Cluster != "demo" || l.Shares > l.Limit {
		t.Errorf("%+v", l)
	}
	for _, r := range fleet.Replicas {
		one := daemon{process: &process{url: r.Address}}
		until(t, "picks of "+r.Address, func() bool {
			_, text := one.request("GET", "/metrics", "")
			return strings.Contains(text, `lbd_leases_finished_total{cluster="demo",outcome="success"}`)
		})
	}
	if end == syscall.SIGKILL {
		err = cmd.Process.Kill()
	} else {
		err = syscall.Kill(-cmd.Process.Pid, end) // of both, as in a terminal
	}
	noError(t, err)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the demo, or its etcd, does not end")
	}
	if err := cmd.Wait(); err != nil && end != syscall.SIGKILL {
		t.Error(err)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("the demo leaves %v, %v", left, err)
	}
}
