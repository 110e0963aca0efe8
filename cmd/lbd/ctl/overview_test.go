package ctl

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// clusterAt returns a cluster as in the stream of all clusters.
func clusterAt(name, state string, second, ok, failed int, more string) string {
	at := time.Unix(int64(second), 0).UTC().Format(time.RFC3339)
	text := `{"name": "NAME", "state": "STATE", "priority_in_use": 0, "endpoints": {"ready": 2, "total": 2}, ` +
		`"counts": {"time": "TIME", "picks": {"ok": OK, "dropped": FAILED}, "drops": {"throttle": FAILED}}MORE}`
	return strings.NewReplacer("NAME", name, "STATE", state, "TIME", at, "OK", strconv.Itoa(ok), "FAILED", strconv.Itoa(failed), "MORE", more).Replace(text)
}

// words returns a text with single spaces.
func words(s string) string { return strings.Join(strings.Fields(s), " ") }

func TestOverview(t *testing.T) {
	t.Parallel()
	var o overview
	now := time.Unix(1000, 0).UTC()
	send := func(name string, clusters ...string) {
		t.Helper()
		noError(t, o.handle(event{name: name, data: []byte(`{"removed": ["gone"], "clusters": [` + strings.Join(clusters, ",") + `]}`)}, now))
	}
	expect := func(want ...string) {
		t.Helper()
		lines := o.lines("here", now, 200, 24, false)
		for i, line := range lines {
			lines[i] = words(line)
		}
		want = append(want[:1:1], append([]string{"", "NAME STATE PRIORITY READY PICKS/S SUCCESS DROPS/S BREAKER"}, want[1:]...)...)
		if got := strings.Join(lines[1:], "\n"); got != strings.Join(want, "\n") {
			t.Errorf("got:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
		}
	}
	const breaker = `, "circuit_breaker": {"in_flight": 10, "max_requests": 10, "open": true}`
	send("resync",
		clusterAt("a", "READY", 10, 100, 0, ""), clusterAt("b", "READY", 10, 0, 0, ""),
		clusterAt("c", "READY", 10, 0, 0, breaker), clusterAt("d", "TRANSIENT_FAILURE", 10, 0, 0, ""),
		clusterAt("e", "READY", 10, 0, 0, `, "stale": true`), clusterAt("gone", "READY", 10, 0, 0, ""))
	if len(o.clusters) != 5 {
		t.Fatalf("%d clusters", len(o.clusters))
	}
	send("update", clusterAt("a", "READY", 12, 300, 100, ""), clusterAt("b", "READY", 20, 5, 0, "")) // b was idle before
	if c := o.unexplained(now, 1); c == nil || c.Name != "d" {
		t.Fatalf("unexplained: %+v", c)
	}
	reason := clusterState{Error: "no endpoint \x1b[2J"}
	o.unexplained(now, 1).explain(reason)
	if c := o.unexplained(now, 1); c != nil {
		t.Errorf("explained twice: %+v", c)
	}
	expect("clusters: 5 problems: 3 picks/s: 155.0 success: 67.7% q: quit",
		"d TRANSIENT_FAILURE 0 2/2 0.0 - 0.0 -", `no endpoint \x1b[2J`,
		"c READY 0 2/2 0.0 - 0.0 10/10", "the circuit breaker is open",
		"e READY 0 2/2 0.0 - 0.0 -", "resources are outdated: the management server is unreachable",
		"a READY 0 2/2 150.0 66.7% 50.0 -",
		"b READY 0 2/2 5.0 100.0% 0.0 -")
	// Without an update, there are no picks.
	now = now.Add(maxUpdateInterval + 1)
	if lines := o.lines("here", now, 200, 24, false); !strings.Contains(lines[1], "picks/s: 0.0   success: -") {
		t.Errorf("idle: %s", lines[1])
	}
	// After an interruption, the counts are those of the whole time.
	o.interrupt("connection lost")
	if lines := o.lines("here", now, 200, 24, false); lines[0] != "here   connection lost" {
		t.Errorf("interrupted: %s", lines[0])
	}
	send("update", clusterAt("a", "READY", 22, 1300, 100, ""))
	if lines := o.lines("here", now, 200, 24, false); !strings.Contains(lines[1], "picks/s: 100.0   success: 100.0%") || strings.Contains(lines[0], "lost") {
		t.Errorf("after an interruption: %s", lines)
	}
	// A restart of the daemon.
	send("resync", clusterAt("a", "READY", 30, 7, 0, ""))
	expect("clusters: 1 problems: 0 picks/s: 0.0 success: - q: quit", "a READY 0 2/2 0.0 - 0.0 -")
}

// TestOverviewFits: the screen is cut to the size of the terminal.
func TestOverviewFits(t *testing.T) {
	t.Parallel()
	var o overview
	var clusters []string
	for name := range strings.SplitSeq("abcdefghij", "") {
		clusters = append(clusters, clusterAt(name, "READY", 1, 0, 0, ""))
	}
	noError(t, o.handle(event{name: "resync", data: []byte(`{"clusters": [` + strings.Join(clusters, ",") + `]}`)}, time.Now()))
	for _, size := range [][2]int{{0, 0}, {1, 1}, {20, 5}, {80, 10}, {80, 100}} {
		lines := o.lines("https://lbd.example", time.Now(), size[0], size[1], false)
		if want := min(size[1], 14); len(lines) != want {
			t.Errorf("%v: %d lines, want %d", size, len(lines), want)
		}
		for _, line := range lines {
			if len(line) > size[0] {
				t.Errorf("%v: %q", size, line)
			}
		}
	}
}

// TestReasons: the reason is that of the first priority that should be in use.
func TestReasons(t *testing.T) {
	t.Parallel()
	var state clusterState
	noError(t, decode([]byte(`{"priorities": [{"priority": 0, "why": "refused"}, {"priority": 1, "in_use": true, "why": "higher failed"}]}`), &state))
	for _, test := range []struct {
		state clusterState
		want  string
	}{
		{clusterState{State: "READY", PriorityInUse: 1}, "refused"},
		{clusterState{State: "READY"}, ""},
		{clusterState{State: "TRANSIENT_FAILURE", PriorityInUse: 0}, "refused"},
		{clusterState{State: "READY", Endpoints: endpointCounts{1, 3}}, "1 of 3 endpoints are READY"},
		{clusterState{State: "READY", Endpoints: endpointCounts{2, 3}, EndpointsInUse: &endpointCounts{2, 2}}, ""},
	} {
		c := &shownCluster{clusterState: test.state}
		c.explain(state)
		if got := c.reason(); got != test.want {
			t.Errorf("%+v: %q, want %q", test.state, got, test.want)
		}
	}
}

// TestOverviewOfFailures: a READY cluster whose requests fail is a problem, with the cause and the time.
func TestOverviewOfFailures(t *testing.T) {
	t.Parallel()
	var o overview
	trouble := `, "trouble": {"fails": "requests", "cause": "100 % of the requests fail", "since": "2026-11-20T03:11:37Z"}`
	if err := o.handle(event{name: "resync", data: []byte(`{"clusters": [` + clusterAt("a", "READY", 10, 100, 0, trouble) + `]}`)}, time.Now()); err != nil {
		t.Fatal(err)
	}
	screen := strings.Join(o.lines("here", time.Now(), 200, 24, false), "\n")
	if !strings.Contains(screen, "problems: 1 ") || !strings.Contains(screen, "100 % of the requests fail, since ") {
		t.Error(screen)
	}
}
