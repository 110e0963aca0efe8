package api_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/api/eventloop"
	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/quota"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// looped is a stream on an event loop, whose caller reads what room allows.
type looped struct {
	t      *testing.T
	stream eventloop.Stream
	woken  chan struct{}
	room   int // bytes; -1 for any number
	left   bool
	state  eventloop.StreamState
	sends  [][]byte
	got    bytes.Buffer
}

// onLoop begins a stream as an event loop does.
func onLoop(t *testing.T, h http.Handler, path string, change ...func(*http.Request) *http.Request) *looped {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	for _, f := range change {
		r = f(r)
	}
	w := &loopWriter{ResponseRecorder: httptest.NewRecorder()}
	h.ServeHTTP(w, r)
	if w.stream == nil || w.handedOver > 0 || w.Header().Get("Content-Type") != "text/event-stream" {
		t.Fatalf("no stream: %d %s", w.Code, w.Body)
	}
	l := &looped{t: t, stream: w.stream, woken: make(chan struct{}, 1), room: -1}
	l.stream.Start(func() {
		select {
		case l.woken <- struct{}{}:
		default:
		}
	})
	return l
}

// Send implements eventloop.Sender.
func (l *looped) Send(b []byte) (int, error) {
	n := len(b)
	if l.room >= 0 {
		n = min(n, l.room)
		l.room -= n
	}
	l.got.Write(b[:n])
	l.sends = append(l.sends, b)
	return n, nil
}

// Left implements eventloop.Sender.
func (l *looped) Left() bool { return l.left }

// run continues the stream until it waits.
func (l *looped) run() eventloop.StreamState {
	for l.state = eventloop.StreamYields; l.state == eventloop.StreamYields; {
		l.state = l.stream.Continue(l)
	}
	return l.state
}

// until continues the stream as a loop does, until it has a state, and returns when.
func (l *looped) until(state eventloop.StreamState) time.Duration {
	l.t.Helper()
	begin := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for l.run() != state {
		if time.Since(begin) > 10*time.Minute {
			l.t.Fatalf("the state is %d, not %d", l.state, state)
		}
		for due := false; !due; {
			select {
			case <-l.woken:
				due = true
			case now := <-tick.C:
				due = l.stream.Due(now)
			}
		}
	}
	return time.Since(begin)
}

// events returns the messages until now, and whether the response is complete.
func (l *looped) events() (all []sent, complete bool) {
	l.t.Helper()
	body, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(l.got.Bytes())))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		l.t.Error(err)
	}
	return parseEvents(string(body)), err == nil
}

func kinds(all []sent) string {
	var b strings.Builder
	for _, e := range all {
		b.WriteString(e.kind + " ")
	}
	return strings.TrimSpace(b.String())
}

// A stream on a loop says what one of net/http says, from its begin to its end.
func TestLoopStreamSaysTheSame(t *testing.T) {
	for _, path := range []string{
		"/v1/clusters/orders/watch", "/v1/clusters/orders/watch?endpoints=false", "/v1/clusters/watch", "/v1/clusters/watch?prefix=ord",
		"/v1/events/watch?last=5", "/v1/events/watch?type=pushed&last_event_id=1", "/v1/daemon/watch",
	} {
		synctest.Test(t, func(t *testing.T) {
			d := startWith(t, "10.0.0.7:8080")
			plain := answered(t, serve(t, d, time.Hour)(get(path)))
			want := []sent{{kind: "heartbeat"}} // answered has read it
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for e := plain.next(); e.kind != "EOF"; e = plain.next() {
					want = append(want, e)
				}
			}()
			l := onLoop(t, d.handler, path)
			synctest.Wait()
			l.run()
			d.must(http.StatusOK, "PUT", orders, assignment("", "10.0.0.8:8080"))
			time.Sleep(time.Second / 2) // between the times at which counts are read
			for range 20 {              // with a heartbeat
				time.Sleep(time.Second)
				l.run()
			}
			d.must(http.StatusOK, "DELETE", orders, "")
			time.Sleep(2 * time.Second)
			l.run()
			d.service.Drain()
			if l.run() != eventloop.StreamComplete {
				t.Errorf("%s: state %d after the end", path, l.state)
			}
			l.stream.End()
			got, complete := l.events()
			<-ended
			for _, all := range [][]sent{got, want} {
				for i := range all {
					if all[i].kind == "heartbeat" {
						all[i].data = "" // the time
					}
				}
			}
			if got, want := fmt.Sprint(got), fmt.Sprint(want); got != want || !complete {
				t.Errorf("%s, complete %t:\ngot  %s\nwant %s", path, complete, got, want)
			}
			if got := counted(d, watchers); got != "0" {
				t.Errorf("%s are counted", got)
			}
		})
	}
}

// All watchers of a cluster, and of events, send the same bytes, which are encoded once.
func TestWatchersShareOneEncoding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startWith(t, "10.0.0.7:8080")
		const watchers = 50
		for path, messages := range map[string]int{"/v1/clusters/orders/watch": 2, "/v1/events/watch?last=1": 1, "/v1/daemon/watch": 1} {
			var all []*looped
			for range watchers {
				all = append(all, onLoop(t, d.handler, path))
			}
			time.Sleep(100 * time.Millisecond) // they are notified in groups
			synctest.Wait()                    // the feed may read again at the same time
			encodings, sent := map[*byte]bool{}, 0
			for _, l := range all {
				l.run()
				for _, b := range l.sends[1:] { // after the opening, which has the time
					encodings[&b[0]] = true
					sent++
				}
			}
			if len(encodings) != messages || sent != messages*watchers {
				t.Errorf("%s: %d encodings of %d messages, which are sent %d times", path, len(encodings), messages, sent)
			}
			for _, l := range all {
				l.stream.End()
			}
		}
	})
}

// A caller that reads nothing, or too slowly, loses the stream at the limits of net/http. One that reads
// again has the newest state, and no bytes are missing.
func TestLoopStreamOfSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startWith(t, "10.0.0.7:8080")
		begin := func(room int) *looped {
			l := onLoop(t, d.handler, "/v1/clusters/orders/watch")
			l.room = room
			synctest.Wait()
			return l
		}
		nothing := begin(0)
		if after := nothing.until(eventloop.StreamBroken); after != api.StreamTimeout {
			t.Errorf("a reader that reads nothing: the stream ends after %v", after)
		}
		nothing.stream.End()

		slow := begin(150) // the opening, and the begin of the state
		start := time.Now()
		for slow.run() == eventloop.StreamBlocked {
			slow.room = 1
			time.Sleep(10 * time.Second)
		}
		if after := time.Since(start); slow.state != eventloop.StreamBroken || after != api.MaxMessageTime {
			t.Errorf("a slow reader: state %d after %v", slow.state, after)
		}
		slow.stream.End()

		later := begin(150)
		later.run()
		for i := range 20 {
			d.must(http.StatusOK, "PUT", orders, assignment("", fmt.Sprintf("10.0.1.%d:8080", i)))
			time.Sleep(time.Second)
			if later.run() != eventloop.StreamBlocked {
				t.Fatalf("state %d", later.state)
			}
		}
		later.room = -1
		later.run()
		all, _ := later.events()
		if got := kinds(all); got != "heartbeat state state counts" || !strings.Contains(all[2].data, "10.0.1.19:8080") {
			t.Errorf("a reader that reads again gets %v", all)
		}
		later.stream.End()
		if got := counted(d, watchers); got != "0" {
			t.Errorf("%s are counted", got)
		}
	})
}

// A long message is sent in parts, between which other streams have their turns. A stream that ends in
// one leaves nothing behind.
func TestLoopStreamSendsLongMessagesInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, nil)
		var names []string
		for i := range 500 {
			names = append(names, fmt.Sprintf("cluster-%d", i))
		}
		d.must(http.StatusOK, "POST", "/v1/snapshot", bundle(names...))
		whole, broken := onLoop(t, d.handler, "/v1/clusters/watch"), onLoop(t, d.handler, "/v1/clusters/watch")
		synctest.Wait()
		yields := 0
		for ; whole.state != eventloop.StreamWaits || yields == 0; yields++ {
			whole.state = whole.stream.Continue(whole)
		}
		all, _ := whole.events()
		if kinds(all) != "heartbeat resync" || yields < 2 || len(decode[api.WatchedClusters](t, []byte(all[1].data)).Clusters) != len(names) {
			t.Errorf("%s after %d turns", kinds(all), yields)
		}
		for _, b := range whole.sends {
			if len(b) > 20<<10 {
				t.Errorf("a part has %d bytes", len(b))
			}
		}
		broken.room = 20 << 10
		if broken.run() != eventloop.StreamBlocked {
			t.Errorf("state %d", broken.state)
		}
		whole.stream.End()
		broken.stream.End()
	})
}

// A caller that has ended its side gets the end of the response.
func TestLoopStreamEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startWith(t, "10.0.0.7:8080")
		l := onLoop(t, d.handler, "/v1/events/watch")
		l.run()
		l.left = true
		if _, complete := l.events(); complete || l.run() != eventloop.StreamComplete {
			t.Errorf("state %d", l.state)
		}
		if all, complete := l.events(); !complete || kinds(all) != "heartbeat" {
			t.Errorf("%v, complete %t", all, complete)
		}
		l.stream.End()
	})
}

// Streams end at once when the service drains, and when lbd is overloaded; those whose caller does not
// read end soon after.
func TestLoopStreamsEndAtOnce(t *testing.T) {
	for name, retry := range map[string]bool{"drain": false, "overload": true} {
		synctest.Test(t, func(t *testing.T) {
			level := new(shedLevel)
			shedding := api.NewShedding(level.sheds, nil)
			d := startLimited(t, nil, api.Limits{Shedding: shedding}, nil)
			d.must(http.StatusCreated, "PUT", orders, assignment("", "10.0.0.7:8080"))
			reads, stuck := onLoop(t, d.handler, "/v1/events/watch"), onLoop(t, d.handler, "/v1/events/watch")
			stuck.room = 10
			var after atomic.Int64
			done := make(chan struct{})
			go func() {
				after.Store(int64(stuck.until(eventloop.StreamBroken)))
				close(done)
			}()
			reads.run()
			time.Sleep(5 * time.Second)
			if retry {
				level.Store(int32(overload.ShedStreams))
				shedding.EndStreams()
			} else {
				d.service.Drain()
			}
			if took := reads.until(eventloop.StreamComplete); took != 0 {
				t.Errorf("%s: the stream ends after %v", name, took)
			}
			if got := strings.Count(reads.got.String(), "retry: "); got != 1 && !retry || got != 2 && retry {
				t.Errorf("%s: %q", name, reads.got.String())
			}
			<-done
			if after := time.Duration(after.Load()); after > 7*time.Second {
				t.Errorf("%s: a stream whose caller does not read ends after %v", name, after)
			}
			reads.stream.End()
			stuck.stream.End()
		})
	}
}

// A stream ends when the identity of its caller is removed or expires, and is then counted and logged.
// Its quota is free again.
func TestLoopStreamEndsWithTheIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "identities.yaml")
		token, hash := access.NewToken()
		short, shortHash := access.NewToken()
		expiry := time.Now().Add(20 * time.Second).UTC().Format(time.RFC3339)
		entry := fmt.Sprintf("- {name: short, roles: [read], sha256: %s, expires: %s}\n", shortHash, expiry)
		servicetest.Must(t, os.WriteFile(path, fmt.Appendf(nil, "tokens:\n- {name: web, roles: [read], sha256: %s}\n%s", hash, entry), 0o600))
		known, err := access.Open(path, slog.New(slog.DiscardHandler), nil)
		servicetest.Must(t, err)
		defer known.Close()
		quotas := quota.New(quota.Options{Totals: map[quota.Resource]int64{quota.Streams: 2}, MaxAccounts: 10, Share: 1})
		d := startLimited(t, &listen.Callers{Identities: known.Current}, api.Limits{Quotas: quotas}, nil)
		specs, err := listen.Parse([]string{"127.0.0.1:1"})
		servicetest.Must(t, err)
		listener := &listen.Listener{Spec: specs[0], Policy: specs[0].Policy(true, false)}
		as := func(token string) func(*http.Request) *http.Request {
			return func(r *http.Request) *http.Request {
				r.Host = "localhost"
				r.Header.Set("Authorization", "Bearer "+token)
				return withListener(r, listener)
			}
		}
		removed, expires := onLoop(t, d.handler, "/v1/events/watch", as(token)), onLoop(t, d.handler, "/v1/events/watch", as(short))
		if quotas.Use(quota.Streams) != 1 {
			t.Error("the streams do not count")
		}
		ends := make(chan string, 2)
		for l, name := range map[*looped]string{removed: "removed", expires: "expires"} {
			go func() {
				after := l.until(eventloop.StreamComplete)
				l.stream.End()
				ends <- fmt.Sprintf("%s after %v", name, after.Round(time.Second))
			}()
		}
		synctest.Wait()
		servicetest.Must(t, errors.Join(os.WriteFile(path+".next", []byte("tokens:\n"+entry), 0o600), os.Rename(path+".next", path)))
		if got := <-ends; got != "removed after 2s" && got != "removed after 3s" {
			t.Error(got)
		}
		if got := <-ends; got != "expires after 20s" && got != "expires after 21s" {
			t.Error(got)
		}
		if quotas.Use(quota.Streams) != 0 {
			t.Error("the streams count after their end")
		}
	})
}

// The access log and the metrics have a stream when it ends, with its duration and bytes.
func TestLoopStreamIsCountedAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startWith(t, "10.0.0.7:8080")
		const series = `lbd_http_requests_total{code="200",method="GET",route="/v1/events/watch"}`
		l := onLoop(t, d.handler, "/v1/events/watch")
		l.run()
		time.Sleep(40 * time.Second)
		l.run()
		if got := counted(d, series); got != "" {
			t.Errorf("%s are counted before the end", got)
		}
		l.room = 0
		d.must(http.StatusOK, "DELETE", orders, "")
		l.run()
		l.stream.End()
		if got, sum := counted(d, series), counted(d, strings.Replace(series[:len(series)-1], `requests_total{code="200",`, `request_duration_seconds_sum{code="200",`, 1)+"}"); got != "1" || sum != "40" {
			t.Errorf("%s are counted, with %s s", got, sum)
		}
	})
}
