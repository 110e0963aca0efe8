package fleet

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestClocks: a replica whose wall clock is 10 minutes behind, one whose clock is 10 minutes ahead,
// and one that is right, push in turns, also after an outage of etcd. Each push is used by all, and
// none is taken for late. The clock is that of package time, which is built with an offset.
func TestClocks(t *testing.T) {
	if !long() {
		t.Skip("set LBD_TEST_LONG=1: lbd is built with other clocks")
	}
	t.Parallel()
	m := startMember(t)
	var replicas []*daemon
	for _, offset := range []int{0, -600, 600} {
		binary := buildDaemon(t, "")
		if offset != 0 {
			root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
			noError(t, err)
			binary = buildDaemon(t, overlay(t, [3]string{
				filepath.Join(strings.TrimSpace(string(root)), "src/time/time.go"),
				"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", fmt.Sprintf("func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tsec += %d\n", offset),
			}))
		}
		d := newDaemon(t, binary, "etcd://"+m.client+"/lbd")
		d.start(t)
		d.untilReady(t, http.StatusOK)
		replicas = append(replicas, d)
	}
	value := 0
	round := func() {
		t.Helper()
		for _, d := range replicas {
			value++
			until(t, "a push succeeds", func() bool {
				status, _ := d.push("orders", value)
				return status == http.StatusOK || status == http.StatusCreated
			})
			want := fmt.Sprintf("127.0.0.%d:80", value)
			if got := d.pick("orders"); got != want {
				t.Errorf("the replica that was pushed to picks %s, want %s", got, want)
			}
			for i, other := range replicas {
				until(t, fmt.Sprint("replica ", i, " has it"), func() bool { return other.pick("orders") == want })
			}
		}
	}
	for range 5 {
		round()
	}
	m.stop()
	for _, d := range replicas {
		d.untilReady(t, http.StatusOK, "did not respond")
	}
	m.start(t)
	for range 5 {
		round()
	}
	behind := regexp.MustCompile(`\nlbd_store_behind_seconds (\S+)\n`)
	var times []string
	for i, d := range replicas {
		_, text := d.request(http.MethodGet, "/metrics", "")
		found := behind.FindStringSubmatch(text)
		if len(found) != 2 {
			t.Fatalf("replica %d has no time behind", i)
		}
		if s, err := strconv.ParseFloat(found[1], 64); err != nil || s < 0 || s > 60 {
			t.Errorf("replica %d is %s s behind", i, found[1])
		}
		_, text = d.request(http.MethodGet, "/v1/events?limit=1", "")
		_, text, _ = strings.Cut(text, `"time":"`)
		times = append(times, text[:min(len(text), 16)])
	}
	if times[0] == times[1] || times[0] == times[2] || times[1] == times[2] {
		t.Errorf("the clocks do not differ: %v", times)
	}
}
