package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// snapshotOf returns 1,000 clusters, each with one endpoint whose port is number.
func snapshotOf(number int) string {
	var b strings.Builder
	b.WriteString(`{"resources":[`)
	for i := range 1000 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"@type":"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment","cluster_name":"c%d",`+
			`"endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":"127.0.0.1","port_value":%d}}}}]}]}`, i, number)
	}
	b.WriteString("]}")
	return b.String()
}

var portPattern = regexp.MustCompile(`"port_value": (\d+)`)

// TestSnapshotKilledMidway kills the daemon during pushes of snapshots: after a restart it has exactly
// one snapshot, which is not older than the last acknowledged one.
func TestSnapshotKilledMidway(t *testing.T) {
	t.Parallel()
	rounds := 4
	if os.Getenv("LBD_TEST_LONG") != "" {
		rounds = 50
	}
	data := filepath.Join(t.TempDir(), "data")
	acknowledged, sent := 0, 0
	for range rounds {
		p := startProcess(t, "--data="+data, "--connect=none", "--log-level=info")
		if got := stored(t, p); got < acknowledged || got > sent {
			t.Fatalf("snapshot %d is stored; %d was acknowledged, %d sent", got, acknowledged, sent)
		}
		killed := make(chan struct{})
		delay := time.Duration(rand.IntN(150)) * time.Millisecond
		time.AfterFunc(delay, func() {
			_ = p.cmd.Process.Signal(syscall.SIGKILL)
			close(killed)
		})
		for {
			sent++
			a, err := try(t.Context(), http.DefaultClient, "PUT", p.url+"/v1/snapshot", snapshotOf(sent))
			if err != nil {
				break // killed
			}
			if a.status != http.StatusOK {
				t.Fatalf("push: %+v", a)
			}
			acknowledged = sent
		}
		<-killed
		<-p.exited
	}
	t.Logf("%d snapshots sent, %d acknowledged at last, %d kills", sent, acknowledged, rounds)
}

// stored returns the number of the stored snapshot, or 0.
func stored(t *testing.T, p *process) int {
	t.Helper()
	all := portPattern.FindAllStringSubmatch(do(t, "GET", p.url+"/v1/snapshot", "").body, -1)
	if len(all) == 0 {
		return 0
	}
	if len(all) != 1000 {
		t.Fatalf("%d of 1000 clusters are stored", len(all))
	}
	for _, m := range all {
		if m[1] != all[0][1] {
			t.Fatalf("parts of snapshots %s and %s are stored", m[1], all[0][1])
		}
	}
	n, err := strconv.Atoi(all[0][1])
	noError(t, err)
	return n
}
