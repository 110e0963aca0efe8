package conformance

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/clients/conformance/stand"
)

// story is what happens to four endpoints while requests arrive at a rate.
type story struct {
	name    string
	method  string // default GET
	cluster cluster
	before  []event
	part    time.Duration // between two events, and before and after them; default that of TestRate
	events  []event
	failing float64  // the most requests that may fail, as a share of all
	errors  []string // what they may fail with; default no error
}

// event begins or ends a fault of endpoints.
type event struct {
	what      string // "is" and a behavior of Upstream.Behave, "return", or a fault of Upstream.Fail
	endpoints []int
}

var (
	four  = []int{0, 1, 2, 3}
	first = four[:1]

	// brief is what CI plays, and stories are those of RATE=full.
	brief = []story{
		{name: "brief", part: 800 * time.Millisecond, events: []event{
			{"kill", first}, {"return", first}, {"silent", four[1:2]}, {"return", four[1:2]}, {"stop", four[2:]}, {"return", four[2:]},
		}},
		{name: "POST brief", method: "POST", before: []event{{"stop", first}}, events: []event{{"return", first}}},
	}
	stories = []story{
		{name: "stop", events: []event{{"stop", first}, {"return", first}}},
		{name: "kill", events: []event{{"kill", first}, {"return", first}}},
		{name: "silent", events: []event{{"silent", first}, {"return", first}}},
		{name: "resets", events: []event{{"resets", first}, {"return", first}}},
		{name: "POST to three", method: "POST", before: []event{{"silent", first}}, events: []event{{"return", first}}},
		// One may be sent while its connection is being closed: whether it arrived is unknown.
		{
			name: "POST stop", method: "POST", failing: 0.0002, errors: []string{"connection"},
			events: []event{{"stop", first}, {"return", first}},
		},
		{name: "two", events: []event{{"kill", four[:2]}, {"return", four[:2]}}},
		{
			name: "priority", cluster: cluster{Priorities: map[string]int{"2": 1, "3": 1}},
			events: []event{{"kill", four[:2]}, {"return", four[:2]}},
		},
		{name: "rolling restart", part: 2500 * time.Millisecond, events: []event{
			{"stop", first},
			{"return", first},
			{"stop", four[1:2]},
			{"return", four[1:2]},
			{"stop", four[2:3]},
			{"return", four[2:3]},
			{"stop", four[3:]},
			{"return", four[3:]},
		}},
		{name: "503", cluster: cluster{Outliers: true}, failing: 0.001, events: []event{{"is 503", first}, {"is ok", first}}},
		// Three tries fail for one of 1,000,000.
		{name: "1% 503", part: 50 * time.Second, failing: 0.0001, before: []event{{"is 1% 503", four}}, events: []event{{}}},
		// They fail while no endpoint accepts, and for a second more.
		{
			name: "all", part: 5 * time.Second, failing: (5 + 1) / 20., errors: []string{"connection", "unavailable"},
			events: []event{{"kill", four}, {"return", first}, {"return", four[1:]}},
		},
	}
)

// isFull reports whether the tests at a rate take as long as they need to be exact.
func isFull() bool { return os.Getenv("RATE") == "full" }

// TestRate sends requests at a rate while endpoints fail and return: no request fails that can be sent elsewhere. With
// RATE=full it plays all stories at 1,000 requests/s, and nginx, whose path is in LBD_TEST_NGINX, plays them as well.
func TestRate(t *testing.T) {
	rate, part, played := 100.0, time.Second, brief
	full := isFull()
	if full {
		rate, part, played = 1000, 20*time.Second, stories
	} else {
		t.Parallel()
	}
	for _, s := range played {
		s.part = cmp.Or(s.part, part)
		t.Run(s.name, func(t *testing.T) {
			if nginx := os.Getenv("LBD_TEST_NGINX"); nginx != "" {
				t.Run("nginx", func(t *testing.T) { s.nginx(t, nginx, rate) })
			}
			for _, name := range clients(t) {
				for _, adapter := range adaptersOf(t, name) {
					t.Run(name+" "+adapter, func(t *testing.T) {
						if !full {
							t.Parallel()
						}
						s.play(t, newClient(t, name, adapter), rate)
					})
				}
			}
		})
	}
}

// play plays the story to a client.
func (s *story) play(t *testing.T, c *client, rate float64) {
	p := s.prepare(t, c)
	mode := "batch"
	p.open = stand.Command{Do: "open", LBD: "unix:" + c.daemon.Socket, Cluster: p.target, Mode: mode, Adapter: c.adapter}
	_, err := c.do(p.open)
	if not := (unsupportedError{}); errors.As(err, &not) {
		p.open.Mode = "pick"
		_, err = c.do(p.open)
	}
	must(t, err)
	_, err = c.do(stand.Command{Do: "request", Method: "GET", Path: "/"}) // waits for the batch
	must(t, err)
	if c.name == "shell" { // starts processes for each request
		rate /= 10
	}
	calls := p.handled(t)
	a := s.load(t, p, stand.Command{Path: "/slow?ms=1"}, rate)
	calls = p.handled(t) - calls
	sent := int(rate * s.time().Seconds())
	failed := sent - a.Statuses["200"]
	t.Logf("%d of %d requests failed: %v %v; %.1f calls/s to lbd; p99 by second %.3f",
		failed, sent, a.Statuses, a.Errors, calls/a.Seconds, a.P99)
	if float64(failed) > s.failing*float64(sent) {
		t.Errorf("%d requests failed, permitted are %.4f of all", failed, s.failing)
	}
	for name := range maps.Keys(a.Errors) {
		if !slices.Contains(s.errors, name) {
			t.Errorf("requests failed with %s", name)
		}
	}
	most := 30*a.Seconds + 30
	if c.name == "php" || c.name == "shell" { // nothing runs in the background
		most += 2 * float64(sent)
	}
	if calls > most {
		t.Errorf("%.0f calls to lbd, more than %.0f", calls, most)
	}
	if i := int(s.part.Seconds()); i > 0 && len(a.P99) > i {
		t.Logf("p99 of the second after the fault %.0f ms, before %.0f ms", 1000*a.P99[i], 1000*a.P99[i-1])
	}
	if s.name == "all" { // the error has the cause
		p.happens(t, event{"kill", four})
		ask := stand.Command{Do: "request", Method: "GET", Path: "/", Timeout: 5}
		_, err := c.do(ask) // its connections end when it was sent
		must(t, err)
		a, err := c.do(ask)
		must(t, err)
		want := "refused"
		if slices.Contains([]string{"java", "php", "shell"}, c.name) { // Java and curl do not say it
			want = "connect to 127.0.0.1"
		}
		if !strings.Contains(strings.ToLower(a.Message), want) {
			t.Errorf("the error does not name its cause: %s: %s", a.Error, a.Message)
		}
	}
}

// nginx plays the story to nginx.
func (s *story) nginx(t *testing.T, binary string, rate float64) {
	c := newClient(t, "go", "core")
	p := s.prepare(t, c)
	must(t, c.start())
	var addresses []string
	for _, u := range p.upstreams {
		addresses = append(addresses, u.Address)
	}
	next := ""
	if s.name == "503" {
		next = " http_503"
	}
	nginx, err := stand.StartNginx(binary, t.TempDir(), next, addresses...)
	must(t, err)
	defer nginx.Stop()
	a := s.load(t, p, stand.Command{URL: "http://" + nginx.Address + "/slow?ms=1"}, rate)
	t.Logf("%v %v; p99 by second %.3f", a.Statuses, a.Errors, a.P99)
}

func (s *story) time() time.Duration { return s.part * time.Duration(len(s.events)+1) }

// prepare starts the upstreams, and lbd with a cluster of them.
func (s *story) prepare(t *testing.T, c *client) *play {
	t.Helper()
	c.daemon.Stop(syscall.SIGTERM)
	c.daemon.Connect = "tcp"
	must(t, c.daemon.Start())
	p := &play{client: c, target: "orders"}
	for range four {
		u, err := stand.NewUpstream(&p.meter, "ok")
		must(t, err)
		t.Cleanup(u.Close)
		p.upstreams = append(p.upstreams, u)
	}
	for _, e := range s.before {
		p.happens(t, e)
	}
	must(t, p.push(&s.cluster))
	return p
}

// load sends requests while the story happens.
func (s *story) load(t *testing.T, p *play, command stand.Command, rate float64) stand.Answer {
	t.Helper()
	command.Do, command.Method, command.Rate, command.N = "load", cmp.Or(s.method, "GET"), rate, int(rate*s.time().Seconds())
	command.Threads, command.Timeout = 16, 5
	must(t, p.runner.Send(command))
	for _, e := range s.events {
		time.Sleep(s.part)
		p.happens(t, e)
	}
	a, err := p.runner.Receive(s.part + 2*stand.Patience)
	must(t, err)
	return a
}

func (p *play) happens(t *testing.T, e event) {
	t.Helper()
	for _, i := range e.endpoints {
		u := p.upstreams[i]
		if behavior, ok := strings.CutPrefix(e.what, "is "); ok {
			must(t, u.Behave(behavior))
		} else if e.what == "return" {
			must(t, u.Return())
		} else {
			must(t, u.Fail(e.what))
		}
	}
}

// TestNoticed measures how long clients use an endpoint that was stopped, by what they report of their connects at most 50
// ms later: four processes of each client with 50 requests/s each. A time is not what CI can check.
func TestNoticed(t *testing.T) {
	if !isFull() {
		t.Skip("long: measures 100 times for each client with RATE=full")
	}
	const times = 100
	for _, name := range clients(t) {
		t.Run(name, func(t *testing.T) {
			s := story{}
			p := s.prepare(t, newClient(t, name, "core"))
			for range 4 {
				c := &client{name: name, adapter: "core", daemon: p.daemon, credentials: p.credentials}
				t.Cleanup(c.discard)
				_, err := c.do(stand.Command{Do: "open", LBD: "unix:" + p.daemon.Socket, Cluster: p.target, Mode: "batch", Adapter: "core"})
				if not := (unsupportedError{}); errors.As(err, &not) {
					t.Skip(err)
				}
				must(t, err)
				must(t, c.runner.Send(stand.Command{Do: "load", Method: "GET", Path: "/", Rate: 50, N: 1_000_000, Threads: 4, Timeout: 5}))
			}
			took := make([]time.Duration, 0, times)
			u := p.upstreams[0]
			for range times {
				before := u.Tries.Load()
				must(t, until(stand.Patience, func() error {
					if u.Tries.Load() < before+20 {
						return errors.New("the endpoint is not used")
					}
					return nil
				}))
				time.Sleep(1100 * time.Millisecond) // a connection of lbd that fails within a second does not end its back-off
				begin, last, known := time.Now(), time.Duration(0), p.unsent(t)
				must(t, u.Fail("stop"))
				for time.Since(begin) < 750*time.Millisecond { // clients try it again later
					if n := p.unsent(t); n > known {
						known, last = n, time.Since(begin)
					}
					time.Sleep(5 * time.Millisecond)
				}
				took = append(took, last)
				must(t, u.Return())
			}
			slices.Sort(took)
			t.Logf("not used any more after %s (p50), %s (p99), %s (the longest) of %d", took[times/2], took[times*99/100], took[times-1], times)
		})
	}
}

// unsent returns how many connects that failed were reported.
func (p *play) unsent(t *testing.T) float64 {
	t.Helper()
	n, err := p.daemon.Sum("lbd_reported_connect_failures_total{")
	must(t, err)
	return n
}

// handled returns how many requests lbd has answered.
func (p *play) handled(t *testing.T) (n float64) {
	t.Helper()
	n, err := p.daemon.Sum("lbd_http_requests_total{")
	must(t, err)
	return n
}

func must(t *testing.T, err error) {
	if t.Helper(); err != nil {
		t.Fatal(err)
	}
}
