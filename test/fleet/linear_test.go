package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	clients  = 8
	clusters = 3 // that all clients push to
)

// An operation is one request and its response, as the model sees it. A state is the content of
// all clusters.
type operation struct {
	kind     string // put, delete, replace, add, snapshot
	cluster  int
	value    int
	required int // the value that is required, 0: none is there, -1: no condition
}

type response struct {
	code    string // ok, failed (a condition), missing, none (it says that it has no effect), unknown
	content state  // of a read
}

// state has the value of each cluster; 0 is none. The last ones have one client each.
type state [clusters + clients]int

// model is a store of some clusters.
var model = porcupine.NondeterministicModel{
	Init: func() []any { return []any{state{}} },
	Step: func(at, in, out any) []any {
		before, _ := at.(state)
		op, _ := in.(operation)
		res, _ := out.(response)
		after, code := apply(before, op)
		switch {
		case res.code == "unknown": // with or without effect
			return []any{before, after}
		case res.code == "none":
			return []any{before}
		case op.kind == "snapshot":
			if res.content == before {
				return []any{before}
			}
			return nil
		case code == res.code:
			return []any{after}
		}
		return nil
	},
	Equal:             func(a, b any) bool { return a == b },
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v → %+v", in, out) },
}

// apply is what a store does.
func apply(s state, op operation) (state, string) {
	if op.required >= 0 && s[op.cluster] != op.required {
		return s, "failed"
	}
	switch op.kind {
	case "put":
		s[op.cluster] = op.value
	case "delete":
		if s[op.cluster] == 0 {
			return s, "missing"
		}
		s[op.cluster] = 0
	case "replace":
		s = state{}
		for i := range clusters {
			s[i] = op.value + i
		}
	}
	return s, "ok"
}

func clusterName(i int) string { return fmt.Sprint("c", i) }

// A tag is the ETag of a value.
type tag struct {
	value int
	etag  string
}

// body is an assignment whose one endpoint has a value as its port.
func body(value int) string {
	return fmt.Sprintf(`{"endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":"127.0.%d.%d","port_value":80}}}}]}]}`, value>>8, value&255)
}

// A client sends requests one by one, each to any replica.
type client struct {
	id     int
	fleet  *fleet
	draw   *rand.Rand
	shared *[clusters]atomic.Pointer[tag] // of the last pushes of all clients
	own    tag                            // of the last push to the client's own cluster
	next   *atomic.Int64                  // values
	stale  func(text string)              // reports an answer of an older state than one before
}

func (c *client) request(method, path, body string) (status int, text []byte) {
	status, text, _ = c.requestAt(c.fleet.replicas[c.draw.IntN(replicas)], method, path, body, "")
	return status, text
}

func (c *client) requestAt(r *process, method, path, body, match string) (status int, text []byte, header http.Header) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	switch match {
	case "":
	case "none":
		req.Header.Set("If-None-Match", "*")
	default:
		req.Header.Set("If-Match", match)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, nil
	}
	defer res.Body.Close()
	text, err = io.ReadAll(res.Body)
	if err != nil {
		return 0, nil, nil
	}
	return res.StatusCode, text, res.Header
}

// step sends one request. Half of them are to the client's own cluster: one after the other, each
// requires what the one before pushed, at another replica, which may not have it yet.
func (c *client) step() (operation, response) {
	op := operation{kind: "put", cluster: c.draw.IntN(clusters), required: -1, value: int(c.next.Add(clusters))}
	n := c.draw.IntN(20)
	match := ""
	switch {
	case n < 10:
		op.cluster = clusters + c.id
		if c.own.etag != "" {
			op.required, match = c.own.value, c.own.etag
		}
	case n < 13: // as other clients do at the same time
		if t := c.shared[op.cluster].Load(); t != nil {
			op.required, match = t.value, t.etag
		}
	case n < 15:
		op.required, match = 0, "none"
	case n < 16:
	case n < 19:
		op.kind = "delete"
		status, text := c.request(http.MethodDelete, "/v1/clusters/"+clusterName(op.cluster)+"/endpoints", "")
		return op, responseOf(status, text)
	default: // more than one transaction of etcd can have, without a condition
		return c.replace()
	}
	return op, c.put(op, match)
}

// put pushes, and then reads from the same replica: it must not be in an older state. What the client
// pushed before to its own cluster is one. Lbd-Index may be behind for as long as trees of other clusters
// lack their configs, but a read that waits for the index must get it.
func (c *client) put(op operation, match string) response {
	r := c.fleet.replicas[c.draw.IntN(replicas)]
	path, start := "/v1/clusters/"+clusterName(op.cluster)+"/endpoints", r.starts.Load()
	status, text, _ := c.requestAt(r, http.MethodPut, path, body(op.value), match)
	res := responseOf(status, text)
	if res.code != "ok" {
		if op.cluster >= clusters && res.code != "none" {
			c.own = tag{}
		}
		return res
	}
	etag, index := parsePush(text)
	before := c.own.etag
	if op.cluster < clusters {
		c.shared[op.cluster].Store(&tag{op.value, etag})
	} else {
		c.own = tag{op.value, etag}
	}
	_, _, header := c.requestAt(r, http.MethodGet, path, "", "")
	if r.starts.Load() != start { // it may have an older copy
		return res
	}
	if now, err := strconv.ParseUint(header.Get("Lbd-Index"), 10, 64); err == nil && now < index {
		_, text, _ := c.requestAt(r, http.MethodGet, fmt.Sprintf("%s?min_index=%d&wait=6s", path, index), "", "")
		if bytes.Contains(text, []byte("index_not_reached")) && r.starts.Load() == start {
			c.stale(fmt.Sprintf("%s acknowledged index %d, answered with %d, and did not reach it: %s", r.name, index, now, text))
		}
	}
	if op.cluster >= clusters && before != "" && before != etag && strings.HasPrefix(strings.Trim(header.Get("ETag"), `"`), strings.Trim(before, `"`)) {
		c.stale(fmt.Sprintf("%s acknowledged %d, and then answered with what was before", r.name, op.value))
	}
	return res
}

// replace pushes a snapshot.
func (c *client) replace() (operation, response) {
	op := operation{kind: "replace", value: int(c.next.Add(clusters)), required: -1}
	var resources []string
	for i := range clusters {
		resources = append(resources, fmt.Sprintf(`{"@type":"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment","cluster_name":%q,%s`,
			clusterName(i), body(op.value + i)[1:]))
	}
	for i := range 150 { // more than one transaction can have
		resources = append(resources, fmt.Sprintf(`{"@type":"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment","cluster_name":"other-%d",%s`,
			i, body(op.value)[1:]))
	}
	status, text := c.request(http.MethodPut, "/v1/snapshot?allow_empty=true&max_removed=1000", `{"resources":[`+strings.Join(resources, ",")+`]}`)
	return op, responseOf(status, text)
}

// parsePush returns the ETag and the index in the response to a push.
func parsePush(text []byte) (etag string, index uint64) {
	var res struct {
		ETag  string
		Index uint64
	}
	if err := json.Unmarshal(text, &res); err != nil || res.ETag == "" || res.Index == 0 {
		panic(fmt.Sprintf("the response %q has no etag or index: %v", text, err))
	}
	return res.ETag, res.Index
}

func responseOf(status int, text []byte) response {
	switch status {
	case http.StatusOK, http.StatusCreated:
		return response{code: "ok"}
	case http.StatusPreconditionFailed:
		return response{code: "failed"}
	case http.StatusNotFound:
		return response{code: "missing"}
	}
	if bytes.Contains(text, []byte("has no effect")) {
		return response{code: "none"}
	}
	return response{code: "unknown"} // 503, or no response
}

// faults injects one fault after the other until stop.
func (f *fleet) faults(t *testing.T, draw *rand.Rand, stop <-chan struct{}) {
	pause := func(d time.Duration) bool {
		select {
		case <-stop:
			return false
		case <-time.After(d):
			return true
		}
	}
	for pause(time.Duration(300+draw.IntN(1500)) * time.Millisecond) {
		length := time.Duration(200+draw.IntN(4000)) * time.Millisecond
		all := f.all()
		p := all[draw.IntN(len(all))]
		switch n := draw.IntN(3); {
		case n == 0:
			p.kill()
			pause(length / 2)
			p.start(t)
		case n == 1 || p.proxy == nil:
			p.signal(syscall.SIGSTOP)
			pause(length)
			p.signal(syscall.SIGCONT)
		default:
			p.proxy.Stop()
			pause(length)
			if err := p.proxy.Start(); err != nil {
				t.Errorf("start the proxy of %s: %v", p.name, err)
			}
		}
	}
}

// duration is LBD_FLEET_TIME.
func duration(t *testing.T) time.Duration {
	t.Helper()
	if text := os.Getenv("LBD_FLEET_TIME"); text != "" {
		d, err := time.ParseDuration(text)
		noError(t, err)
		return d
	}
	return 15 * time.Second
}

// history runs clients and faults for a time, and returns what they saw, and which replicas answered
// with an older state than before. At the end all replicas have the same.
func history(t *testing.T, f *fleet, d time.Duration, seed uint64) (all []porcupine.Operation, stale []string) {
	t.Helper()
	var mu sync.Mutex
	var shared [clusters]atomic.Pointer[tag]
	var next atomic.Int64
	next.Store(1)
	began, stop := time.Now(), make(chan struct{})
	var group sync.WaitGroup
	thread := atomic.Int64{}
	for id := range clients {
		c := &client{id: id, fleet: f, draw: rand.New(rand.NewPCG(seed, uint64(id))), next: &next, shared: &shared, stale: func(text string) {
			mu.Lock()
			defer mu.Unlock()
			stale = append(stale, text)
		}}
		group.Go(func() {
			own := int(thread.Add(1))
			for {
				select {
				case <-stop:
					return
				default:
				}
				call := time.Since(began).Nanoseconds()
				op, res := c.step()
				o := porcupine.Operation{ClientId: own, Input: op, Call: call, Output: res, Return: time.Since(began).Nanoseconds()}
				if res.code == "unknown" { // it may happen at any later time
					o.Return = int64(1) << 60
					own = int(thread.Add(1))
				}
				mu.Lock()
				all = append(all, o)
				mu.Unlock()
				if c.draw.IntN(2) == 0 { // else at once, when other replicas may not have it yet
					time.Sleep(time.Duration(40+c.draw.IntN(120)) * time.Millisecond) // few requests: the check is exponential
				}
			}
		})
	}
	faults := make(chan struct{})
	go func() {
		defer close(faults)
		f.faults(t, rand.New(rand.NewPCG(seed, 99)), stop)
	}()
	time.Sleep(d)
	close(stop)
	group.Wait()
	<-faults
	call := time.Since(began).Nanoseconds()
	final := f.settled(t, &next)
	return append(all, porcupine.Operation{
		ClientId: int(thread.Add(1)), Input: operation{kind: "snapshot", required: -1}, Call: call,
		Output: response{code: "ok", content: final}, Return: time.Since(began).Nanoseconds(),
	}), stale
}

// settled waits until all replicas have the same, and returns it.
func (f *fleet) settled(t *testing.T, next *atomic.Int64) (s state) {
	t.Helper()
	c := &client{fleet: f, draw: rand.New(rand.NewPCG(1, 1)), next: next}
	var texts []string
	until(t, "all replicas have the same", func() bool {
		if status, _ := c.request(http.MethodPut, "/v1/clusters/marker/endpoints", body(int(next.Add(1)))); status != http.StatusOK && status != http.StatusCreated {
			return false
		}
		time.Sleep(200 * time.Millisecond)
		texts = nil
		for _, r := range f.replicas {
			one := &fleet{}
			for range replicas {
				one.replicas = append(one.replicas, r)
			}
			status, text := (&client{fleet: one, draw: c.draw}).request(http.MethodGet, "/v1/snapshot", "")
			if status != http.StatusOK {
				return false
			}
			texts = append(texts, string(text))
		}
		return len(slices.Compact(slices.Clone(texts))) == 1
	})
	var all struct {
		Resources []struct {
			Name      string `json:"cluster_name"`
			Endpoints []struct {
				LbEndpoints []struct {
					Endpoint struct {
						Address struct {
							Socket struct{ Address string } `json:"socket_address"`
						}
					}
				} `json:"lb_endpoints"`
			}
		}
	}
	if err := json.NewDecoder(bytes.NewReader([]byte(texts[0]))).Decode(&all); err != nil {
		t.Fatalf("%v: %.500s", err, texts[0])
	}
	for _, r := range all.Resources {
		var i, a, b int
		if n, _ := fmt.Sscanf(r.Name, "c%d", &i); n != 1 || len(r.Endpoints) == 0 {
			continue
		}
		if _, err := fmt.Sscanf(r.Endpoints[0].LbEndpoints[0].Endpoint.Address.Socket.Address, "127.0.%d.%d", &a, &b); err != nil {
			t.Fatal(err)
		}
		s[i] = a<<8 | b
	}
	return s
}

// check reports whether a history is linearizable.
func check(t *testing.T, all []porcupine.Operation) porcupine.CheckResult {
	t.Helper()
	m := model.ToModel()
	result, info := porcupine.CheckOperationsVerbose(m, all, 2*time.Minute)
	if result != porcupine.Ok {
		logFailure(t, all, info)
		out := filepath.Join(t.ArtifactDir(), "history.html") // kept with -artifacts
		if f, err := os.Create(out); err == nil {
			_ = porcupine.Visualize(m, info, f)
			_ = f.Close()
			t.Logf("the history is in %s", out)
		}
	}
	return result
}

// logFailure logs the longest part of a history that has the results of one store, and what
// does not fit.
func logFailure(t *testing.T, all []porcupine.Operation, info porcupine.LinearizationInfo) {
	t.Helper()
	var longest []porcupine.Operation
	for _, partitions := range info.PartialLinearizationsOperations() {
		for _, part := range partitions {
			if len(part) > len(longest) {
				longest = part
			}
		}
	}
	fits := map[porcupine.Operation]bool{}
	for _, o := range longest {
		fits[o] = true
	}
	describe := func(what string, o porcupine.Operation) {
		t.Logf("%s %6d to %6d ms, client %3d: %s", what, o.Call/1e6, min(o.Return/1e6, 999999), o.ClientId, model.DescribeOperation(o.Input, o.Output))
	}
	for _, o := range longest[max(0, len(longest)-12):] {
		describe("fits     ", o)
	}
	slices.SortFunc(all, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	n := 0
	for _, o := range all {
		if !fits[o] && n < 12 {
			n++
			describe("does not ", o)
		}
	}
}

// TestLinearizability: concurrent pushes, deletions, conditional pushes and snapshots, while
// members and replicas are killed, stopped, restarted and cut off, have the results of one
// store. In a long run, the checker may leave one history in 20 undecided, because of many
// operations of unknown outcome.
func TestLinearizability(t *testing.T) {
	seed := rand.Uint64()
	f := newFleet(t, buildDaemon(t, ""))
	end := time.Now().Add(duration(t))
	rounds, undecided := 0, 0
	for round := 0; round == 0 || time.Now().Before(end); round++ {
		d := min(5*time.Second, max(time.Until(end), time.Second)) // what the checker can decide
		before := f.snapshotNow(t)
		all, stale := history(t, f, d, seed+uint64(round))
		for _, text := range stale {
			t.Error(text)
		}
		codes := map[string]int{}
		for _, o := range all {
			res, _ := o.Output.(response)
			codes[res.code]++
		}
		t.Logf("round %d of seed %d: %d operations, %v", round, seed, len(all), codes)
		all = append([]porcupine.Operation{{ClientId: 0, Input: operation{kind: "snapshot", required: -1}, Call: -2, Output: response{code: "ok", content: before}, Return: -1}}, all...)
		model.Init = func() []any { return []any{before} }
		switch result := check(t, all); result {
		case porcupine.Ok:
		case porcupine.Unknown:
			undecided++
		default:
			t.Fatalf("seed %d: the history is %s", seed+uint64(round), result)
		}
		if undecided > 0 {
			t.Logf("%d of %d histories were not decided", undecided, round+1)
		}
		rounds = round + 1
	}
	if undecided*20 > rounds {
		t.Errorf("%d of %d histories were not decided", undecided, rounds)
	}
}

// snapshotNow returns what is stored, while no client writes.
func (f *fleet) snapshotNow(t *testing.T) state {
	t.Helper()
	var next atomic.Int64
	next.Store(1)
	return f.settled(t, &next)
}
