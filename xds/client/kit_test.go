package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/test/must"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
)

var noError = must.NoError

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout is the maximum wait for an event, on the bubble's clock.
const testTimeout = time.Hour

// await returns the next value.
func await[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(testTimeout):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

// expectNone checks that the channel is empty when all goroutines block.
func expectNone[T any](t *testing.T, c <-chan T, what string) {
	t.Helper()
	synctest.Wait()
	select {
	case v := <-c:
		t.Fatalf("unexpected %s: %v", what, v)
	default:
	}
}

// harness is a client with its servers, in a bubble.
type harness struct {
	t       *testing.T
	servers map[string]*fakeServer
	client  *Client
	updates chan []Update
	events  chan Event
	block   chan struct{} // if not nil, OnUpdate receives from it before it returns
}

// runTest runs a test in a bubble, with a client. The bootstrap is JSON, or the names of
// servers in order.
func runTest(t *testing.T, config string, test func(t *testing.T, w *harness), change ...func(*harness, *Options)) {
	synctest.Test(t, func(t *testing.T) {
		w := &harness{t: t, servers: map[string]*fakeServer{}, updates: make(chan []Update, 10000), events: make(chan Event, 10000)}
		if !strings.HasPrefix(config, "{") {
			config = fmt.Sprintf(`{"node":{"id":"test"},"xds_servers":[%s]}`, serversJSON(strings.Fields(config)...))
		}
		b, err := bootstrap.Parse([]byte(config), bootstrap.Options{Version: "1"})
		noError(t, err)
		o := Options{
			Bootstrap: b,
			Events:    func(e Event) { w.events <- e },
			OnUpdate: func(u []Update) {
				w.updates <- u
				if w.block != nil {
					<-w.block
				}
			},
			dial: []grpc.DialOption{grpc.WithContextDialer(w.dial)},
			draw: func() float64 { return 0.5 },
		}
		for _, name := range []string{"one", "two", "three"} {
			w.servers[name] = newFakeServer(t)
		}
		for _, f := range change {
			f(w, &o)
		}
		if w.client, err = New(o); err != nil {
			t.Fatal(err)
		}
		defer func() {
			w.client.Close()
			for _, s := range w.servers {
				s.kill()
			}
		}()
		test(t, w)
	})
}

func serversJSON(names ...string) string {
	var list []string
	for _, n := range names {
		name, features, _ := strings.Cut(n, ":")
		s := fmt.Sprintf(`{"server_uri":"passthrough:///%s","channel_creds":[{"type":"insecure"}]`, name)
		if features != "" {
			s += fmt.Sprintf(`,"server_features":["%s"]`, strings.ReplaceAll(features, "+", `","`))
		}
		list = append(list, s+"}")
	}
	return strings.Join(list, ",")
}

func (w *harness) dial(ctx context.Context, name string) (net.Conn, error) {
	return w.servers[name].dial(ctx)
}

// want wants resources; names with the prefix "-" are dropped.
func (w *harness) want(t resource.Type, names ...string) {
	var add, drop []resource.Key
	for _, n := range names {
		if name, ok := strings.CutPrefix(n, "-"); ok {
			drop = append(drop, resource.Key{Type: t, Name: name})
		} else {
			add = append(add, resource.Key{Type: t, Name: n})
		}
	}
	w.client.Want("t", add, drop)
}

// subscribe wants resources, and returns the next stream of server "one" after its first request.
func (w *harness) subscribe(t resource.Type, names ...string) *serverStream {
	w.t.Helper()
	w.want(t, names...)
	s := w.servers["one"].accept()
	s.receive()
	return s
}

// nextUpdates returns the next batch as text, by name: "name=version" for a value,
// "name: kind of error", and "ambient name: kind of error".
func (w *harness) nextUpdates() string {
	w.t.Helper()
	return describe(await(w.t, w.updates, "update"))
}

var kindNames = map[ErrorKind]string{
	ErrorUnreachable: "unreachable", ErrorRejected: "rejected", ErrorDeleted: "not found", ErrorUnrequestable: "not found",
	ErrorExpired: "expired", ErrorTimeout: "timeout", ErrorSilent: "silent",
}

// isKind reports whether err is a ResourceError of a kind.
func isKind(err error, kind ErrorKind) bool {
	e, ok := errors.AsType[*ResourceError](err)
	return ok && e.Kind == kind
}

func describe(batch []Update) string {
	var words []string
	for _, u := range batch {
		s := u.Key.Name
		err, _ := u.Err.(*ResourceError) //nolint:errorlint // it is never wrapped
		switch {
		case u.Err == nil:
			s += "=" + u.Version
			if u.Raw == nil || u.Value == (resource.Value{}) {
				s += " without a value"
			}
		case err.Kind == ErrorReported:
			s += fmt.Sprintf(": reported %v %v", err.Code, err.Err)
		default:
			s += ": " + kindNames[err.Kind]
		}
		if u.Ambient {
			s = "ambient " + s
		}
		if u.Err != nil && (u.Raw != nil || u.Cluster != nil) {
			s += " with a value"
		}
		words = append(words, s)
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

func (w *harness) expectUpdates(want string) {
	w.t.Helper()
	if got := w.nextUpdates(); got != want {
		w.t.Fatalf("updates %q, want %q", got, want)
	}
}

func (w *harness) expectNoUpdates() {
	w.t.Helper()
	synctest.Wait()
	select {
	case u := <-w.updates:
		w.t.Fatalf("updates %q, want none", describe(u))
	default:
	}
}

// event returns the next event of a type.
func event[E Event](w *harness) E {
	w.t.Helper()
	for {
		if e, ok := await(w.t, w.events, fmt.Sprintf("%T", *new(E))).(E); ok {
			return e
		}
	}
}

// state returns the status of a resource.
func (w *harness) state(t resource.Type, name string) ResourceStatus {
	w.t.Helper()
	for _, r := range w.client.Status().Resources {
		if r.Key == (resource.Key{Type: t, Name: name}) {
			return r
		}
	}
	return ResourceStatus{}
}

// load is subscribe for Clusters, after the server sent all of them in version 1.
func (w *harness) load(names ...string) *serverStream {
	w.t.Helper()
	s := w.subscribe(cds, names...)
	var resources []*anypb.Any
	for _, name := range names {
		resources = append(resources, cluster(name))
	}
	s.send("1", "n1", resources...)
	w.expectUpdates(strings.Join(names, "=1, ") + "=1")
	return s
}

// expectState checks the state of a resource of target "t", and its version if there is one.
func (w *harness) expectState(t resource.Type, name string, want State, version ...string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.state(t, name); got.State != want || len(version) > 0 && got.Version != version[0] {
		w.t.Errorf("%s is %+v, want %s %s", name, got, want, version)
	}
}

// expectAfter expects updates after a time.
func (w *harness) expectAfter(d time.Duration, want string) {
	w.t.Helper()
	began := time.Now()
	w.expectUpdates(want)
	w.expectElapsed(began, d)
}

func (w *harness) expectElapsed(since time.Time, want time.Duration) {
	w.t.Helper()
	if got := time.Since(since); got != want {
		w.t.Errorf("happened after %v, want %v", got, want)
	}
}

func (w *harness) expectAway(name string, want bool) {
	w.t.Helper()
	if got := w.client.Away("t", name); got != want {
		w.t.Errorf("away of %q is %v", name, got)
	}
}

func (w *harness) expectResources(want int) {
	w.t.Helper()
	if got := len(w.client.Status().Resources); got != want {
		w.t.Errorf("%d resources are wanted, want %d", got, want)
	}
}
