package attack_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// bystanderVariable makes the test binary a client that picks from the daemons whose
// addresses it has: the one that is attacked, and the one that is not. The client is a
// process of its own, so that what the attack computes does not delay it.
const bystanderVariable = "LBD_ATTACK_BYSTANDER"

// measured are the picks of one client from one daemon.
type measured struct {
	Picks    []time.Duration
	Failures []string
}

// quantile returns a quantile of the durations.
func (m *measured) quantile(q float64) time.Duration {
	if len(m.Picks) == 0 {
		return 0
	}
	slices.Sort(m.Picks)
	return m.Picks[int(q*float64(len(m.Picks)-1))]
}

// bystanders picks from the attacked daemon and from one that is not, in turns, until
// stop is called. stop fails the test if a pick failed, and logs the durations.
func bystanders(t *testing.T, attacked *daemon) (stop func()) {
	t.Helper()
	calm := start(t, options{})
	calm.push(1, 10)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), bystanderVariable+"="+attacked.address+" "+calm.address)
	cmd.Stderr = os.Stderr
	running, err := cmd.StdinPipe()
	noError(t, err)
	out, err := cmd.StdoutPipe()
	noError(t, err)
	noError(t, cmd.Start())
	ready := make([]byte, 1)
	if _, err := io.ReadFull(out, ready); err != nil {
		t.Fatalf("the other client: %v", err)
	}
	return func() {
		t.Helper()
		_ = running.Close()
		var all [2]measured
		if err := json.NewDecoder(out).Decode(&all); err != nil {
			t.Fatalf("the other client: %v", err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the other client: %v", err)
		}
		hit, normal := &all[0], &all[1]
		t.Logf("%d picks during the attack, %d failed; p50 %v, p99 %v; not attacked: p50 %v, p99 %v",
			len(hit.Picks), len(hit.Failures), hit.quantile(0.5), hit.quantile(0.99), normal.quantile(0.5), normal.quantile(0.99))
		if len(hit.Failures) > 0 || len(hit.Picks) == 0 {
			t.Errorf("%d of %d picks of another client failed: %v", len(hit.Failures), len(hit.Failures)+len(hit.Picks), hit.Failures[:min(3, len(hit.Failures))])
		}
	}
}

// runBystander picks from two daemons in turns until standard input ends, and prints
// what it measured.
func runBystander(addresses []string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var all [2]measured
	clients := []*http.Client{client(bystander), client(bystander)}
	for first := true; ctx.Err() == nil; first = false {
		for i, address := range addresses {
			all[i].pick(ctx, clients[i], "http://"+address)
		}
		if first {
			fmt.Print("+")
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (m *measured) pick(ctx context.Context, c *http.Client, url string) {
	begin := time.Now()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/pick?cluster=orders", nil)
	if err != nil {
		m.Failures = append(m.Failures, err.Error())
		return
	}
	a, err := c.Do(r)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		m.Failures = append(m.Failures, err.Error())
		return
	}
	text, err := io.ReadAll(a.Body)
	_ = a.Body.Close()
	if ctx.Err() != nil {
		return
	}
	if err != nil || a.StatusCode != http.StatusOK {
		m.Failures = append(m.Failures, fmt.Sprintf("%d %s %v", a.StatusCode, text, err))
		return
	}
	m.Picks = append(m.Picks, time.Since(begin))
}
