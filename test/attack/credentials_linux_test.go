package attack_test

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// 1,300 connections without a request to a daemon that may open 1,024 files.
func TestFewDescriptors(t *testing.T) {
	const files = 1024
	d := start(t, options{files: files})
	d.push(1, 10)
	stop := bystanders(t, d)
	for range 1300 {
		d.connect()
	}
	stop()
	d.alive()
	_, text := d.do(client(bystander), http.MethodGet, "/metrics", "")
	if limit, open := metric(text, "process_max_fds"), metric(text, "process_open_fds"); limit != files || open < 0 || open >= files {
		t.Errorf("%v of %v files are open", open, limit)
	}
}

// Headers of 1 MB are rejected without being read to the end.
func TestLargeAuthorizationHeader(t *testing.T) {
	file, _ := identities(t)
	d := start(t, options{limit: container.limit, env: container.env, listen: "127.0.0.1:0,anonymous=pick+read+push", args: []string{"--tokens=" + file}})
	d.push(1, 10)
	stop := bystanders(t, d)
	value := strings.Repeat("x", 1_000_000)
	statuses := newCounter()
	eachOf(200, 50, func(int) {
		c := d.connect()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		go func() { // lbd may answer, and close the connection, before it has everything
			_, _ = fmt.Fprintf(c, "GET /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", value)
		}()
		a, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			statuses.add(0)
			return
		}
		_, _ = io.Copy(io.Discard, a.Body)
		_ = a.Body.Close()
		statuses.add(a.StatusCode)
	})
	stop()
	d.alive()
	t.Log(statuses)
	if statuses.n[http.StatusOK] > 0 {
		t.Error("a header of 1 MB was accepted")
	}
	// A token that fits into a header is too long from 513 bytes on.
	if status, body := d.do(client(bystander), http.MethodGet, "/pick?cluster=orders", "", "Authorization", "Bearer "+value[:8000]); status != http.StatusUnauthorized {
		t.Errorf("a token of 8,000 bytes: %d %s", status, body)
	}
}

// identities writes an identity file with 1,000 tokens, of which it returns one that
// may pick.
func identities(t testing.TB) (file, token string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("tokens:\n")
	for i := range 1000 {
		secret := make([]byte, 32)
		_, _ = rand.Read(secret)
		token = "lbd_" + base64.RawURLEncoding.EncodeToString(secret)
		fmt.Fprintf(&b, "- {name: caller-%d, sha256: %x, roles: [pick], clusters: [\"orders*\"]}\n", i, sha256.Sum256([]byte(token)))
	}
	file = filepath.Join(t.TempDir(), "identities.yaml")
	noError(t, os.WriteFile(file, []byte(b.String()), 0o600))
	return file, token
}

// The time of a rejection does not show how much of a token is right. Times are
// logged and not compared: docs/threat-model.md has those of a machine. Every token
// that differs is rejected, wherever it does.
func TestGuessedTokens(t *testing.T) {
	file, token := identities(t)
	d := start(t, options{args: []string{"--tokens=" + file}})
	c := client(attacker)
	guesses := map[string]string{
		"wrong from the first character": "X" + token[1:], "wrong in the middle": token[:20] + "_-" + token[22:],
		"wrong in the last character": token[:len(token)-2] + "__", "nothing right": strings.Repeat("x", len(token)),
		"the hash of the token": fmt.Sprintf("%x", sha256.Sum256([]byte(token))), "a prefix": token[:len(token)-1], "longer": token + "x",
	}
	times := make(map[string][]time.Duration)
	for range 300 {
		for name, guess := range guesses {
			begin := time.Now()
			status, body := d.do(c, http.MethodGet, "/pick?cluster=orders", "", "Authorization", "Bearer "+guess)
			times[name] = append(times[name], time.Since(begin))
			if status != http.StatusUnauthorized || strings.Contains(body, token[:12]) {
				t.Fatalf("%s: %d %s", name, status, body)
			}
		}
	}
	for name, all := range times {
		slices.Sort(all)
		t.Logf("%-32s median %v, quartiles %v and %v", name, all[len(all)/2], all[len(all)/4], all[len(all)*3/4])
	}
}

// BenchmarkPicksWithToken compares the CPU time of picks with and without a token, in
// turns against one daemon with 1,000 tokens.
func BenchmarkPicksWithToken(b *testing.B) {
	file, token := identities(b)
	d := start(b, options{listen: "127.0.0.1:0,anonymous=pick+push", args: []string{"--tokens=" + file}})
	d.push(1, 10)
	c := client(bystander)
	headers := [][]string{nil, {"Authorization", "Bearer " + token}}
	var used [2]time.Duration
	picks := 0
	const batch = 500
	for b.Loop() {
		for n, header := range headers {
			before := d.cpu()
			for range batch {
				if status, body := d.do(c, http.MethodGet, "/pick?cluster=orders", "", header...); status != http.StatusOK {
					b.Fatalf("%d %s", status, body)
				}
			}
			used[n] += d.cpu() - before
		}
		picks += batch
	}
	for n, name := range []string{"cpu-µs/pick", "cpu-µs/pick-with-token"} {
		b.ReportMetric(float64(used[n].Microseconds())/float64(picks), name)
	}
	b.ReportMetric(float64(used[0])/float64(used[1]), "with/without")
	b.ReportMetric(0, "ns/op")
}

// cpu returns the sum of the CPU times of the daemon's threads, in nanoseconds as
// the scheduler counts them.
func (d *daemon) cpu() time.Duration {
	d.t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", d.process.Pid))
	noError(d.t, err)
	var sum time.Duration
	for _, file := range files {
		var n int64
		if text, err := os.ReadFile(file); err == nil {
			_, _ = fmt.Sscan(string(text), &n)
		}
		sum += time.Duration(n)
	}
	return sum
}
