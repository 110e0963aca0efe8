// Command conformance drives the client as the conformance tests say (clients/conformance/README.md).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
)

// host is mapped to the cluster of the test: its name may not be valid in a URL.
const host = "upstream.test"

type command struct {
	Do         string         `json:"do"`
	LBD        string         `json:"lbd"`
	Token      string         `json:"token"`
	TokenFile  string         `json:"token_file"`
	Cluster    string         `json:"cluster"`
	Mode       lbdclient.Mode `json:"mode"`
	Adapter    string         `json:"adapter"`
	Options    map[string]any `json:"options"`
	URL        string         `json:"url"`
	Method     string         `json:"method"`
	Path       string         `json:"path"`
	Timeout    float64        `json:"timeout"`
	Body       *string        `json:"body"`
	Idempotent bool           `json:"idempotent"`
	N          int            `json:"n"`
	Threads    int            `json:"threads"`
	Rate       float64        `json:"rate"`

	Headers map[string]string `json:"headers"`
	Key     string            `json:"key"`
	Keys    int               `json:"keys"`
}

type answer map[string]any

type runner struct {
	client atomic.Pointer[lbdclient.Client]
	proxy  atomic.Pointer[proxied]
	sender *http.Client
	plain  *http.Client
	hash   string // where the hash key of a request is: header:NAME, cookie:NAME or code
	choice bool   // the answers have it

	mu       sync.Mutex
	attempts []map[string]any // what hooks got
	states   []lbdclient.State
}

func main() {
	r := &runner{plain: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	go func() {
		<-terminate
		r.close()
		os.Exit(0)
	}()
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 16<<20)
	output := json.NewEncoder(os.Stdout)
	for input.Scan() {
		var c command
		if err := json.Unmarshal(input.Bytes(), &c); err != nil {
			fmt.Fprintln(os.Stderr, "command:", err)
			os.Exit(1)
		}
		if err := output.Encode(r.run(c)); err != nil {
			os.Exit(1)
		}
		if c.Do == "close" {
			return
		}
	}
	r.close()
}

func (r *runner) run(c command) answer {
	switch c.Do {
	case "open":
		return r.open(c)
	case "request":
		var choice lbdclient.Choice
		status, body, err := r.send(c, &choice)
		a := answer{"status": status, "body": body}
		if err != nil {
			a = answer{"error": name(err), "message": err.Error()}
		}
		if r.choice && choice.Attempt > 0 {
			a["choice"] = map[string]any{
				"cluster": choice.Cluster, "address": choice.Address, "zone": choice.Locality.Zone, "priority": choice.Priority,
				"attempt": choice.Attempt,
			}
		}
		return a
	case "load":
		return r.load(c)
	case "events":
		r.mu.Lock()
		defer r.mu.Unlock()
		a := answer{"attempts": r.attempts, "states": r.states}
		r.attempts, r.states = nil, nil
		return a
	case "fork":
		return answer{"unsupported": "a Go process does not fork"}
	case "close":
		r.close()
		return answer{"ok": true}
	default:
		return answer{"unsupported": "no such command"}
	}
}

func (r *runner) open(c command) answer {
	r.close()
	if c.Adapter != "" && c.Adapter != "core" {
		return answer{"unsupported": "the upstreams of these tests speak HTTP/1.1; lbdgrpc has tests of its own"}
	}
	config := lbdclient.Config{Address: c.LBD, Mode: c.Mode, Token: c.Token, TokenFile: c.TokenFile}
	upstream := lbdclient.Host{Cluster: c.Cluster}
	r.hash, r.choice = "", false
	for option, value := range c.Options {
		switch option {
		case "target":
			upstream.Cluster, upstream.Target = "", fmt.Sprint(value)
		case "headers":
			names, _ := value.([]any)
			for _, name := range names {
				upstream.Headers = append(upstream.Headers, fmt.Sprint(name))
			}
		case "hash":
			if r.hash = fmt.Sprint(value); r.hash != "code" {
				upstream.Hash = r.hash
			}
		case "choice":
			r.choice = true
		case "hooks":
			r.hook(&config, value == "fail")
		default:
			if err := set(&config, option, value); err != nil {
				return answer{"unsupported": err.Error()}
			}
		}
	}
	config.Hosts = map[string]lbdclient.Host{host: upstream}
	if binary := os.Getenv("PROXY"); binary != "" {
		proxy, transport, err := startProxy(binary, c)
		if err != nil {
			return answer{"unsupported": err.Error()}
		}
		r.proxy.Store(proxy)
		r.sender = &http.Client{Transport: transport}
		return answer{"ok": true}
	}
	client, err := lbdclient.New(config)
	if err != nil {
		return answer{"unsupported": err.Error()}
	}
	r.client.Store(client)
	r.sender = &http.Client{Transport: &lbdclient.Transport{Client: client}}
	return answer{"ok": true}
}

// hook makes the client call hooks, which fail if they should.
func (r *runner) hook(config *lbdclient.Config, fail bool) {
	r.attempts, r.states = nil, nil
	config.OnAttempt = func(a lbdclient.Attempt) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.attempts = append(r.attempts, map[string]any{
			"cluster": a.Cluster, "address": a.Address, "number": a.Choice.Attempt, "outcome": a.Outcome, "seconds": a.Duration.Seconds(),
		})
		if fail {
			panic("a hook of the test")
		}
	}
	config.OnState = func(state lbdclient.State) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.states = append(r.states, state)
	}
}

func set(config *lbdclient.Config, option string, value any) error {
	if option == "fallback" {
		config.Fallback, _ = value.(string)
		return nil
	}
	number, ok := value.(float64)
	if !ok {
		return fmt.Errorf("option %s: %v is not a number", option, value)
	}
	duration := time.Duration(number * float64(time.Second))
	switch option {
	case "stale_for":
		config.StaleFor = orNone(duration)
	case "report_interval":
		config.ReportInterval = duration
	case "max_age":
		config.MaxAge = duration
	case "connect_timeout":
		config.ConnectTimeout = duration
	case "retries":
		config.Retries = orNone(int(number))
	case "max_tokens":
		config.MaxTokens = number
	case "ttl":
		config.TTL = duration
	default:
		return fmt.Errorf("no option %s", option)
	}
	return nil
}

// orNone returns a setting, whose zero value is its default.
func orNone[T int | time.Duration](value T) T {
	if value == 0 {
		return -1
	}
	return value
}

func (r *runner) close() {
	if client := r.client.Swap(nil); client != nil {
		client.Close()
	}
	if proxy := r.proxy.Swap(nil); proxy != nil {
		proxy.close()
	}
}

// send sends a request. Its choice may be nil.
func (r *runner) send(c command, choice *lbdclient.Choice) (status int, content string, err error) {
	ctx := context.Background()
	if r.choice && choice != nil || r.hash == "code" {
		ask := lbdclient.Ask{Choice: choice}
		if r.hash == "code" {
			ask.Hash = c.Key
		}
		ctx = lbdclient.WithAsk(ctx, ask)
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.Timeout*float64(time.Second)))
		defer cancel()
	}
	sender, target := r.sender, c.URL
	if target != "" {
		sender = r.plain
	} else {
		target = "http://" + host + "/" + strings.TrimPrefix(c.Path, "/")
	}
	if sender == nil {
		return 0, "", errors.New("no client is open")
	}
	var body io.Reader
	if c.Body != nil {
		body = strings.NewReader(*c.Body)
	}
	request, err := http.NewRequestWithContext(ctx, c.Method, target, body)
	if err != nil {
		return 0, "", err
	}
	if c.Idempotent {
		request.Header.Set("Idempotency-Key", "1")
	}
	for name, value := range c.Headers {
		request.Header.Set(name, value)
	}
	if kind, name, _ := strings.Cut(r.hash, ":"); kind == "header" && c.Key != "" {
		request.Header.Set(name, c.Key)
	} else if kind == "cookie" && c.Key != "" {
		request.Header.Add("Cookie", name+"="+c.Key)
	}
	response, err := sender.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	return response.StatusCode, string(read), err
}

func (r *runner) load(c command) answer {
	var (
		mu       sync.Mutex
		statuses = map[string]int{}
		failures = map[string]int{}
		next     atomic.Int64
		threads  sync.WaitGroup
	)
	took := map[int][]float64{} // by the second in which the request was due
	begin := time.Now()
	for range max(1, c.Threads) {
		threads.Go(func() {
			for i := next.Add(1); i <= int64(c.N); i = next.Add(1) {
				due := begin
				if c.Rate > 0 {
					due = begin.Add(time.Duration(float64(i) / c.Rate * float64(time.Second)))
					time.Sleep(time.Until(due))
				}
				one := c
				if c.Keys > 0 {
					one.Key = fmt.Sprintf("%s-%d", c.Key, i%int64(c.Keys))
				}
				status, _, err := r.send(one, nil)
				mu.Lock()
				if second := int(due.Sub(begin).Seconds()); c.Rate > 0 {
					took[second] = append(took[second], time.Since(due).Seconds())
				}
				if err != nil {
					failures[name(err)]++
				} else {
					statuses[strconv.Itoa(status)]++
				}
				mu.Unlock()
			}
		})
	}
	threads.Wait()
	seconds := time.Since(begin).Seconds()
	p99 := make([]float64, len(took))
	for i := range p99 {
		slices.Sort(took[i])
		p99[i] = took[i][len(took[i])*99/100]
	}
	return answer{"statuses": statuses, "errors": failures, "seconds": seconds, "p99": p99}
}

// name returns the name of an error in the conformance tests.
func name(err error) string {
	kinds := []struct {
		err  error
		name string
	}{
		{lbdclient.ErrDropped, "dropped"},
		{lbdclient.ErrCircuitBroken, "circuit_broken"},
		{lbdclient.ErrUnavailable, "unavailable"},
		{lbdclient.ErrUnknownCluster, "unknown_cluster"},
		{lbdclient.ErrPermissionDenied, "permission_denied"},
	}
	for _, kind := range kinds {
		if errors.Is(err, kind.err) {
			return kind.name
		}
	}
	var proxy proxyError
	if errors.As(err, &proxy) {
		return proxy.code
	}
	var dial *net.OpError // has timed out at ConnectTimeout: at the deadline, net/http returns that of the context
	if errors.Is(err, context.DeadlineExceeded) && !(errors.As(err, &dial) && dial.Op == "dial") {
		return "timeout"
	}
	// What is left are errors of the connection: net/http has types for some of them only.
	return "connection"
}
