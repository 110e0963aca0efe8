package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// patience is the maximum time that the test waits for anything, on a busy machine.
	patience = 2 * time.Minute
	// pause is the time between two looks. Visitors in a hurry would use up the retries of the services before lbd
	// hears from them.
	pause = 250 * time.Millisecond
)

// shop is a shop that runs.
type shop struct {
	command   *exec.Cmd
	addresses map[string]string
	pids      map[string]int
	ended     chan struct{} // closed when nobody can write to its output any more

	mu     sync.Mutex
	output strings.Builder
}

// build builds the shop and its upstream.
func build(t *testing.T) string {
	t.Helper()
	if os.Getenv("LBD_BIN") == "" {
		t.Skip("LBD_BIN is not set: run make -C examples/shop test")
	}
	bin := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", ".", "./stock").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// begin starts a shop. It ends at the latest with the test.
func begin(t *testing.T, flags ...string) *shop {
	t.Helper()
	bin := build(t)
	s := &shop{ended: make(chan struct{}), addresses: make(map[string]string), pids: make(map[string]int)}
	flags = append([]string{"-free-ports", "-pause=0", "-lbd=" + os.Getenv("LBD_BIN"), "-stock=" + bin + "/stock"}, flags...)
	s.command = exec.Command(bin+"/shop", flags...)
	read, write, err := os.Pipe()
	must(t, err)
	s.command.Stdout, s.command.Stderr = write, write
	s.command.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	must(t, s.command.Start())
	must(t, write.Close())
	go s.follow(read)
	t.Cleanup(func() {
		if s.command.ProcessState == nil {
			_ = s.command.Process.Signal(syscall.SIGTERM)
			_ = s.command.Wait()
		}
		if t.Failed() {
			t.Logf("the shop says:\n%s", s.text())
		}
	})
	return s
}

// open starts a shop, and waits until it is open.
func open(t *testing.T, flags ...string) *shop {
	t.Helper()
	s := begin(t, flags...)
	eventually(t, "the shop is open", func() bool {
		select {
		case <-s.ended:
			t.Fatal("the shop ended")
		default:
		}
		return s.says("Ctrl-C ends all.")
	})
	rows := regexp.MustCompile(`(?m)^  (\S+) +(127\.0\.0\.1:\d+) +(\d+)$`).FindAllStringSubmatch(s.text(), -1)
	for _, row := range rows {
		pid, err := strconv.Atoi(row[3])
		must(t, err)
		s.addresses[row[1]], s.pids[row[1]] = row[2], pid
	}
	if len(rows) != 10 {
		t.Fatalf("the shop has %d processes", len(rows))
	}
	return s
}

func (s *shop) follow(output io.Reader) {
	defer close(s.ended)
	for lines := bufio.NewScanner(output); lines.Scan(); {
		s.mu.Lock()
		fmt.Fprintln(&s.output, lines.Text())
		s.mu.Unlock()
	}
}

func (s *shop) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.String()
}

func (s *shop) says(text string) bool { return strings.Contains(s.text(), text) }

// call makes a request to a process, and returns the body of the response.
func (s *shop) call(method, name, path string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+s.addresses[name]+path, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s%s: %s: %s", method, name, path, response.Status, body)
	}
	return string(body), err
}

var (
	instance = regexp.MustCompile(`(stock|catalog|prices)-\w+`)
	failed   = regexp.MustCompile(`<span class="failed">.*?</span>`)
)

// visit loads the page, and returns who answered its calls, and an error if one of them failed.
func (s *shop) visit() ([]string, error) {
	page, err := s.call(http.MethodGet, "page", "/")
	if err == nil && failed.MatchString(page) {
		err = fmt.Errorf("the page has failures: %q", failed.FindAllString(page, -1))
	}
	if found := instance.FindAllString(page, -1); err != nil || len(found) == 16 {
		return found, err // four products, two services that call stock
	}
	return nil, fmt.Errorf("a page that is not complete:\n%s", page)
}

// visitUntil loads the page until done, which gets who answered. No load may fail.
func (s *shop) visitUntil(t *testing.T, what string, done func(answered []string) bool) {
	t.Helper()
	eventually(t, what, func() bool {
		answered, err := s.visit()
		must(t, err)
		return done(answered)
	})
}

// state returns what lbd says of an endpoint.
func (s *shop) state(t *testing.T, cluster, hostname string) string {
	t.Helper()
	body, err := s.call(http.MethodGet, "lbd", "/v1/clusters/"+cluster)
	must(t, err)
	var answer struct {
		Priorities []struct {
			Localities []struct {
				Endpoints []struct{ Hostname, State string }
			}
		}
	}
	must(t, json.Unmarshal([]byte(body), &answer))
	for _, p := range answer.Priorities {
		for _, l := range p.Localities {
			for _, e := range l.Endpoints {
				if e.Hostname == hostname {
					return e.State
				}
			}
		}
	}
	t.Fatalf("the cluster %s has no endpoint %s:\n%s", cluster, hostname, body)
	return ""
}

// metric returns the value of a series of lbd.
func (s *shop) metric(t *testing.T, series string) float64 {
	t.Helper()
	body, err := s.call(http.MethodGet, "lbd", "/metrics")
	must(t, err)
	_, value, found := strings.Cut(body, "\n"+series+" ")
	if !found {
		t.Fatalf("lbd has no series %s", series)
	}
	value, _, _ = strings.Cut(value, "\n")
	number, err := strconv.ParseFloat(value, 64)
	must(t, err)
	return number
}

func (s *shop) kill(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		must(t, syscall.Kill(s.pids[name], syscall.SIGKILL))
	}
}

// end ends the shop, and checks that nothing is left of it.
func (s *shop) end(t *testing.T, signal os.Signal) {
	t.Helper()
	must(t, s.command.Process.Signal(signal))
	must(t, s.command.Wait())
	select {
	case <-s.ended:
	case <-time.After(patience):
		t.Fatal("a process of the shop still has its output")
	}
	for name := range s.addresses {
		if _, err := s.call(http.MethodGet, name, "/"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s still listens: %v", name, err)
		}
	}
	for _, variable := range s.command.Env {
		if directory, ok := strings.CutPrefix(variable, "TMPDIR="); ok {
			left, err := filepath.Glob(directory + "/shop*")
			if err != nil || left != nil {
				t.Errorf("left in the temporary directory: %v, %v", left, err)
			}
		}
	}
}

// eventually looks until a condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after %v: %s", patience, what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFailures: the page has no failures while endpoints fail one after the other, as long as there is another one.
func TestFailures(t *testing.T) {
	s := open(t, "-restart=0")

	seen := make(map[string]bool)
	s.visitUntil(t, "each instance of the first priority answers", func(answered []string) bool {
		for _, a := range answered {
			seen[a] = true
		}
		return len(seen) == 7
	})
	if seen["stock-c1"] {
		t.Error("an instance of the second priority answers")
	}

	_, err := s.call(http.MethodPost, "stock-a1", "/break")
	must(t, err)
	s.visitUntil(t, "lbd ejects stock-a1", func([]string) bool { return s.state(t, "stock", "stock-a1") == "EJECTED" })
	for _, series := range []string{
		`lbd_ejections_total{cluster="stock",enforced="true"}`,
		`lbd_reported_requests_total{cluster="stock",outcome="error"}`,
		`lbd_reported_requests_total{cluster="stock",outcome="success"}`,
	} {
		if s.metric(t, series) == 0 {
			t.Errorf("%s is 0", series)
		}
	}

	for _, name := range []string{"stock-a2", "catalog-1", "prices-2"} {
		cluster, _, _ := strings.Cut(name, "-")
		s.kill(t, name)
		s.visitUntil(t, "lbd sees that "+name+" is gone", func(answered []string) bool {
			return !slices.Contains(answered, name) && s.state(t, cluster, name) != "READY"
		})
	}

	s.kill(t, "stock-a1", "stock-b1")
	eventually(t, "only stock-c1 answers", func() bool {
		answered, err := s.visit()
		return err == nil && slices.Contains(answered, "stock-c1")
	})
	s.end(t, os.Interrupt)
}

// TestRestart: what was killed is started again, and used again.
func TestRestart(t *testing.T) {
	s := open(t, "-restart=10ms")
	for _, name := range []string{"catalog-1", "lbd", "page"} {
		s.kill(t, name)
		eventually(t, name+" runs again", func() bool { return s.says(name + " runs again, as process ") })
	}
	eventually(t, "catalog-1 answers", func() bool {
		answered, err := s.visit()
		return err == nil && slices.Contains(answered, "catalog-1")
	})
	s.end(t, syscall.SIGTERM)
}

// TestCannotStart: a process that cannot start is named, and nothing is left of the others.
func TestCannotStart(t *testing.T) {
	for command, says := range map[string]string{
		"false":         "cannot start lbd: it ended: exit status 1",
		"/no/such/file": "cannot start lbd: fork/exec /no/such/file: no such file or directory",
	} {
		s := begin(t, "-lbd="+command)
		<-s.ended
		var exit *exec.ExitError
		if err := s.command.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%s: ends with %v", command, err)
		}
		if !s.says(says) {
			t.Errorf("%s: does not say %q", command, says)
		}
	}
}
