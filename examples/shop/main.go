// Shop runs the demo shop on loopback: lbd, its upstreams, its services and its page. README.md says what to try.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
)

// opening is the time in which the page has to be there after the start.
const opening = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var s shop
	var free bool
	flag.StringVar(&s.dir, "dir", ".", "directory of the shop's services and resources")
	flag.StringVar(&s.lbd, "lbd", "lbd", "binary of lbd")
	flag.StringVar(&s.stock, "stock", "stock", "binary of the upstream stock")
	flag.DurationVar(&s.restart, "restart", 15*time.Second, "time after which a process that ended is started again, 0 for never")
	flag.DurationVar(&s.pause, "pause", 250*time.Millisecond, "time between two visits of the page, 0 for no visits")
	flag.BoolVar(&free, "free-ports", false, "use free ports, not those of the resource files")
	flag.Parse()
	_ = os.Unsetenv("LBD_BIN") // of make: lbd warns of variables that it does not know
	if err := s.open(ctx, free); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

// shop is the configuration of a shop, and its processes.
type shop struct {
	dir, lbd, stock string
	restart, pause  time.Duration

	page, dashboard, socket string
	processes               []*process // in the order of their start
}

// open runs the shop until ctx ends. It returns an error if a process cannot be started.
func (s *shop) open(ctx context.Context, free bool) (err error) {
	temporary, err := os.MkdirTemp("", "shop") // the path of a socket has to be short
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	if err := s.plan(ctx, temporary, free); err != nil {
		return err
	}
	for i, p := range s.processes {
		if err = p.start(ctx); err != nil {
			s.processes = s.processes[:i]
			break
		}
	}
	if err == nil {
		err = s.run(ctx)
	}
	for _, p := range slices.Backward(s.processes) { // the callers first
		p.stop()
	}
	if ctx.Err() != nil {
		return nil // the end was wanted
	}
	return err
}

// plan says which processes there are, and on which ports.
func (s *shop) plan(ctx context.Context, temporary string, free bool) error {
	resources := filepath.Join(s.dir, "resources")
	ports := []int{9000, 8080, 9101, 9102, 9103, 9104, 9201, 9202, 9301, 9302}
	if free {
		fresh, err := freePorts(ctx, len(ports))
		if err != nil {
			return err
		}
		copied := filepath.Join(temporary, "resources")
		if err := copyResources(resources, copied, ports, fresh); err != nil {
			return err
		}
		resources, ports = copied, fresh
	}
	s.page = fmt.Sprintf("http://127.0.0.1:%d/", ports[0])
	s.dashboard = fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	s.socket = "unix:" + filepath.Join(temporary, "lbd.sock")
	clients, err := filepath.Abs(filepath.Join(s.dir, "../../clients"))
	if err != nil {
		return err
	}
	python := "PYTHONPATH=" + filepath.Join(clients, "python/src")

	for i, name := range []string{"stock-a1", "stock-a2", "stock-b1", "stock-c1"} {
		s.add(name, ports[2+i], nil, s.stock)
	}
	for i, name := range []string{"catalog-1", "catalog-2"} {
		s.add(name, ports[6+i], []string{python}, "python3", filepath.Join(s.dir, "catalog/catalog.py"))
	}
	for i, name := range []string{"prices-1", "prices-2"} {
		s.add(name, ports[8+i], nil, "node", filepath.Join(s.dir, "prices/prices.js"))
	}
	s.add("lbd", ports[1], nil, s.lbd, "serve", "--listen="+s.dashboard[len("http://"):], "--listen="+s.socket,
		"--data="+filepath.Join(temporary, "data"), "--resources="+resources, "--log-level=warn")
	s.add("page", ports[0], []string{"DASHBOARD=" + s.dashboard, "PHP_CLI_SERVER_WORKERS=4"},
		"php", "-q", "-S", s.page[len("http://"):len(s.page)-1], "-t", filepath.Join(s.dir, "front"))
	return nil
}

func (s *shop) add(name string, port int, environment []string, command ...string) {
	s.processes = append(s.processes, &process{
		name: name, port: port, command: command,
		environment: append(environment, "LBD="+s.socket, "INSTANCE="+name, fmt.Sprint("PORT=", port)),
	})
}

// run shows the shop to visitors until ctx ends, and starts processes again that end meanwhile.
func (s *shop) run(ctx context.Context) error {
	if err := s.waitForPage(ctx); err != nil {
		return err
	}
	s.welcome()
	var parts sync.WaitGroup
	defer parts.Wait()
	for _, p := range s.processes {
		parts.Go(func() { p.keep(ctx, s.restart) })
	}
	for s.pause > 0 && sleep(ctx, s.pause) {
		_ = s.visit(ctx) // what fails is on the page, and in the dashboard
	}
	<-ctx.Done()
	fmt.Println("\nThe shop closes.")
	return nil
}

// waitForPage waits until lbd has connected to the endpoints, and the page is there.
func (s *shop) waitForPage(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, opening)
	defer cancel()
	for {
		err := s.visit(ctx)
		if err == nil {
			return nil
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("the page is not there: %w", err)
		}
	}
}

// visit loads the page.
func (s *shop) visit(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.page, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return err
}

func (s *shop) welcome() {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, p := range s.processes {
		fmt.Fprintf(table, "  %s\t%s\t%d\n", p.name, address(p.port), p.running.Process.Pid)
	}
	fmt.Printf("\nThe shop is open. Its processes, with their addresses and process IDs:\n\n")
	_ = table.Flush()
	fmt.Printf(`
Open the page, and the dashboard beside it:

  %s
  %s/#/clusters/stock

Break something, in another shell (repair ends the first; what is killed starts again after %v):

  curl -X POST http://%s/break
  kill -9 %d

Clients find this lbd with LBD=%s. Ctrl-C ends all.
`, s.page, s.dashboard, s.restart, address(s.processes[0].port), s.processes[1].running.Process.Pid, s.socket)
}

// sleep waits, and says whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
