package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestCtlDrain(t *testing.T) {
	t.Parallel()
	p, c := startCtl(t)
	do(t, "PUT", p.url+"/v1/clusters/orders/endpoints", "127.0.0.1:9001 1 us/a\n127.0.0.1:9002 1 us/b\n127.0.0.1:9003 1 eu/a\n")
	c.expect(t, 2, "drain orders 127.0.0.1:9001", "not a terminal", "--yes")
	c.expect(t, 0, "drain orders 127.0.0.1:9001 --yes --expires=2h --reason=kernel",
		"Overlay/orders/drain-127.0.0.1_9001: drains endpoint 127.0.0.1:9001 until ", "done, at index 2")
	c.expect(t, 0, "drain orders 127.0.0.1:9002 --yes", "done, at index 3")
	c.expect(t, 0, "drain orders 127.0.0.1:9002 --yes", "no difference", "nothing to change")
	c.expect(t, 0, "drain orders 127.0.0.1:9002 --yes --wait=1m", "nothing to change; nothing is in flight")
	c.expect(t, 0, "get endpoints orders", "OVERLAY", "drain-127.0.0.1_9001", "drain-127.0.0.1_9002")
	for range 3 {
		if o := c.expect(t, 0, "pick orders -o name"); o.stdout != "127.0.0.1:9003\n" {
			t.Errorf("picked a drained endpoint: %s", o.stdout)
		}
	}
	c.expect(t, 4, "drain orders --locality=eu --yes", "(409 blocked)", "--allow-empty")
	c.expect(t, 0, "drain orders --locality=eu --yes --allow-empty", "drain-locality-eu: drains locality eu/*/*")
	c.expect(t, 0, "undrain orders --locality=eu/*/ --yes", "deleted drain-locality-eu, at index 5")
	table := words(c.expect(t, 0, "overlays orders").stdout)
	if !strings.HasPrefix(table, "CLUSTER ID WHAT IN FLIGHT AUTHOR AGE EXPIRES REASON orders drain-127.0.0.1_9001 drains endpoint 127.0.0.1:9001 0 127.0.0.1:") ||
		!strings.HasSuffix(table, "s never -") || !strings.Contains(table, "Z kernel orders drain-127.0.0.1_9002 ") {
		t.Errorf("overlays: %s", table)
	}
	if o := c.expect(t, 0, "overlays -o name"); o.stdout != "orders/drain-127.0.0.1_9001\norders/drain-127.0.0.1_9002\n" {
		t.Errorf("names of all: %s", o.stdout)
	}
	if o := c.expect(t, 0, "overlays orders -o name"); o.stdout != "drain-127.0.0.1_9001\ndrain-127.0.0.1_9002\n" {
		t.Errorf("names of a cluster: %s", o.stdout)
	}
	// Both overlays of one endpoint are deleted, and what is about its locality stays.
	c.expect(t, 0, "overlays put orders off disable --endpoint=127.0.0.1:9001 --yes", "disables endpoint")
	c.expect(t, 0, "drain orders --locality=us/a --id=zone --yes")
	c.expect(t, 0, "undrain orders 127.0.0.1:9001 --yes --message=done", "Overlay/orders/off: disables endpoint 127.0.0.1:9001",
		"deleted drain-127.0.0.1_9001, off, at index 9", "127.0.0.1:9001 is out of use by the overlay zone")
	c.expect(t, 1, "undrain orders 127.0.0.1:9001 --yes", "no overlay of orders drains or disables the endpoint 127.0.0.1:9001", "by the overlay zone")
	c.expect(t, 0, "history --limit=1", "done")
	c.expect(t, 0, "undrain orders --locality=us/a --yes -o name", "Overlay/orders/zone")
	for args, text := range map[string]string{
		"drain orders": "set either ENDPOINT or --locality",
		"drain orders 127.0.0.1:9001 --locality=eu":      "set either ENDPOINT or --locality",
		"drain orders --locality=*/*/*":                  "must have a region, a zone or a sub-zone",
		"drain orders --locality=a/b/c/d":                "must have the form REGION/ZONE/SUB_ZONE",
		"drain orders 127.0.0.1:9001 --wait=-1s":         "--wait must not be negative",
		"undrain orders":                                 "set either ENDPOINT or --locality",
		"undrain orders 127.0.0.1:9001":                  "not a terminal",
		"weight orders 127.0.0.1:9001":                   "FACTOR is required",
		"weight orders 127.0.0.1:9001 many":              "must be a number",
		"weight orders --locality=eu 127.0.0.1:9001 0.5": "set either ENDPOINT or --locality",
		"overlays put orders x nonsense":                 "must be one of",
	} {
		c.expect(t, 2, args, text)
	}
	c.expect(t, 4, "drain absent 127.0.0.1:9001 --yes", "unknown_cluster")
	c.expect(t, 4, "drain orders 127.0.0.1:9001 --yes --id=a/b", "is not 1 to 64 letters")
	c.expect(t, 4, "drain orders 127.0.0.1:9001 --yes --expires=soon", "(400 invalid_argument)")

	// What touches nothing is no success: a script stops the machine next.
	c.expect(t, 1, "drain orders 127.0.0.1:9077 --yes --wait=1m", "the overlay drains endpoint 127.0.0.1:9077, and cluster orders has no such endpoint", "(404 unknown_endpoint)", "--allow-missing")
	c.expect(t, 1, "drain orders --locality=asia --yes", "(404 unknown_endpoint)")
	c.expect(t, 1, "weight orders 127.0.0.1:9077 0.5 --yes", "(404 unknown_endpoint)")
	c.expect(t, 0, "drain orders 127.0.0.1:9077 --yes --allow-missing", "names no endpoint of the cluster now", "done")
	c.expect(t, 1, "drain orders 127.0.0.1:9077 --yes", "(404 unknown_endpoint)")
}

// TestCtlDrainWaits: the progress is shown until the leases have ended, or the time is over.
func TestCtlDrainWaits(t *testing.T) {
	t.Parallel()
	p, c := startCtl(t)
	do(t, "PUT", p.url+"/v1/clusters/orders/endpoints", "127.0.0.1:9001\n127.0.0.1:9002\n")
	var leases []string
	for range 4 { // two of each endpoint
		o := c.expect(t, 0, "pick orders --ttl=5m -o json")
		var pick struct {
			Address string
			Lease   struct{ ID string }
		}
		noError(t, json.Unmarshal([]byte(o.stdout), &pick))
		if pick.Address == "127.0.0.1:9001" {
			leases = append(leases, pick.Lease.ID)
		}
	}
	o := c.expect(t, 1, "drain orders 127.0.0.1:9001 --yes --wait=100ms -o json", "2 in flight left after 100ms", "the same command waits again")
	var answer struct {
		Index   uint64
		Overlay struct {
			ID       string
			InFlight int `json:"in_flight"`
		}
	}
	if err := json.Unmarshal([]byte(o.stdout), &answer); err != nil || answer.Index != 2 || answer.Overlay.ID != "drain-127.0.0.1_9001" || answer.Overlay.InFlight != 2 {
		t.Errorf("%v: %+v", err, answer)
	}
	cmd := c.command(t.Context(), "drain", "orders", "127.0.0.1:9001", "--yes", "--wait=10m")
	out := new(syncBuffer)
	cmd.Stdout, cmd.Stderr = out, out
	noError(t, cmd.Start())
	for i, text := range []string{"2 in flight left\n", "1 in flight left\n"} {
		eventually(t, text, func() bool { return strings.Contains(out.String(), text) })
		do(t, "POST", p.url+"/v1/leases/"+leases[i]+"/done", "")
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "nothing to change; nothing is in flight") {
		t.Errorf("%v: %s", err, out.String())
	}
	// An overlay that ends meanwhile ends the wait.
	c.expect(t, 0, "pick orders --ttl=5m")
	wait := c.command(t.Context(), "drain", "orders", "127.0.0.1:9002", "--yes", "--wait=10m", "--allow-empty")
	var stderr bytes.Buffer
	wait.Stderr = &stderr
	noError(t, wait.Start())
	eventually(t, "the drain", func() bool {
		return strings.Contains(c.expect(t, 0, "overlays orders -o name").stdout, "drain-127.0.0.1_9002")
	})
	c.expect(t, 0, "undrain orders 127.0.0.1:9002 --yes")
	_ = wait.Wait()
	if code := wait.ProcessState.ExitCode(); code != 4 || !strings.Contains(stderr.String(), "unknown_overlay") {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
}

func TestCtlWeight(t *testing.T) {
	t.Parallel()
	p, c := startCtl(t)
	do(t, "PUT", p.url+"/v1/clusters/orders/endpoints", "127.0.0.1:9001 1 us/a\n127.0.0.1:9002 1 eu/a\n")
	c.expect(t, 0, "weight orders 127.0.0.1:9001 0 --yes", "weight-127.0.0.1_9001: multiplies the weight of endpoint 127.0.0.1:9001 by 0 until ")
	if o := c.expect(t, 0, "pick orders -n 5 -o name"); strings.Contains(o.stdout, "9001") {
		t.Errorf("picks of an endpoint of weight 0: %s", o.stdout)
	}
	c.expect(t, 0, "weight orders 0.5 --locality=eu --yes --expires=never --reason=canary", "weight-locality-eu: multiplies the weight of locality eu/*/* by 0.5")
	c.expect(t, 0, "weight orders --locality=*/a 2 --yes --id=zone", "Overlay/orders/zone: multiplies the weight of locality */a/* by 2")
	c.expect(t, 4, "weight orders 127.0.0.1:9001 11 --yes", "0.001 to 10")
	c.expect(t, 0, "overlays", "never", "canary")
}

// TestCtlOverlays: every kind can be put, shown and deleted.
func TestCtlOverlays(t *testing.T) {
	t.Parallel()
	_, c := startCtl(t, "--require-if-match")
	c.expect(t, 0, "overlays", "CLUSTER")
	c.expectWith(t, "127.0.0.1:9001 1 us/a\n127.0.0.1:9002 1 eu/a\n", 0, "push endpoints orders - --yes")
	for args, text := range map[string]string{
		"drain --locality=us":                   "drains locality us/*/*",
		"disable --endpoint=127.0.0.1:9001":     "disables endpoint 127.0.0.1:9001",
		"weight --locality=/a --factor=0.5":     "multiplies the weight of locality */a/* by 0.5",
		"force_priority --priority=1":           "takes priority 0 out of use",
		"forbid_priority --priority=1":          "takes priority 1 out of use",
		"drop --percent=1.5 --category=lottery": `drops 1.5 % of the requests in the category "lottery"`,
		"drop --percent=2":                      "drops 2 % of the requests, instead of",
		"max_requests --max-requests=7":         "sets max_requests to 7",
		"hold_ejections --reason=x":             "stops ejections",
	} {
		c.expect(t, 0, "overlays put orders x "+args+" --yes --allow-empty --allow-missing", text, "done, at index")
		c.expect(t, 0, "overlays list orders", text)
	}
	c.expect(t, 4, "overlays put orders x drop --factor=1 --yes", "drop")
	list := c.expect(t, 0, "overlays orders -o json")
	var all struct{ Overlays []struct{ ID string } }
	if err := json.Unmarshal([]byte(list.stdout), &all); err != nil || len(all.Overlays) != 1 || all.Overlays[0].ID != "x" {
		t.Errorf("%v: %s", err, list.stdout)
	}
	c.expect(t, 0, "overlays -o yaml", "overlays:")
	c.expect(t, 0, "overlays delete orders x --yes --message=over", "Overlay/orders/x: ", "done, at index")
	c.expect(t, 4, "overlays delete orders x --yes", "unknown_overlay", "lbd ctl overlays lists the overlays")
	// Of overlays that contradict each other, the older one is marked.
	c.expect(t, 0, "overlays put orders old max_requests --max-requests=7 --yes")
	c.expect(t, 0, "overlays put orders new max_requests --max-requests=8 --yes", "warning: Overlay/orders/new: it contradicts the overlay old")
	c.expect(t, 0, "overlays orders", "sets max_requests to 7 (superseded by new)")
}
