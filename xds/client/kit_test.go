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

	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits, on the bubble's clock, for what is to come.
const patience = time.Hour

// await returns what comes.
func await[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s came", what)
		panic("unreachable")
	}
}

// nothing sees that nothing is there, now that all is quiet.
func nothing[T any](t *testing.T, c <-chan T, what string) {
	t.Helper()
	synctest.Wait()
	select {
	case v := <-c:
		t.Fatalf("%s came: %v", what, v)
	default:
	}
}

// world is a client and the servers around it, in a bubble.
type world struct {
	t       *testing.T
	servers map[string]*scripted
	client  *Client
	updates chan []Update
	events  chan Event
	block   chan struct{} // where not nil, OnUpdate takes one from it before it returns
}

// play runs a test in a bubble, with a client that uses servers: the bootstrap is
// what they are called in order, or JSON.
func play(t *testing.T, config string, test func(t *testing.T, w *world), change ...func(*world, *Options)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, servers: map[string]*scripted{}, updates: make(chan []Update, 10000), events: make(chan Event, 10000)}
		if !strings.HasPrefix(config, "{") {
			config = fmt.Sprintf(`{"node":{"id":"test"},"xds_servers":[%s]}`, serversJSON(strings.Fields(config)...))
		}
		b, err := bootstrap.Parse([]byte(config), bootstrap.Options{Version: "1"})
		if err != nil {
			t.Fatal(err)
		}
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
			w.servers[name] = newScripted(t)
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

func (w *world) dial(ctx context.Context, name string) (net.Conn, error) {
	return w.servers[name].dial(ctx)
}

// want wants clusters; names that begin with "-" are dropped.
func (w *world) want(t resource.Type, names ...string) {
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

// told takes the next batch and describes it: for each, in order of name,
// "name=version" with a value, "name: kind of error", with "ambient " before it where
// it is.
func (w *world) told() string {
	w.t.Helper()
	return describe(await(w.t, w.updates, "update"))
}

func describe(batch []Update) string {
	var words []string
	for _, u := range batch {
		var not *NotFoundError
		var silent *SilentError
		var rejected *RejectedError
		var unreachable *UnreachableError
		var reported *ResourceError
		var timeout *TimeoutError
		s := u.Key.Name
		switch {
		case u.Err == nil:
			s += "=" + u.Version
			if u.Raw == nil || u.Cluster == nil && u.Assignment == nil && u.Listener == nil && u.Routes == nil {
				s += " without a value"
			}
		case errors.As(u.Err, &not) && not.Reported:
			s += ": reported NotFound " + not.Message
		case errors.As(u.Err, &reported):
			s += ": reported " + reported.Code.String() + " " + reported.Message
		case errors.As(u.Err, &timeout):
			s += ": timeout"
		case errors.As(u.Err, &not) && not.Expired:
			s += ": expired"
		case errors.As(u.Err, &not):
			s += ": not found"
		case errors.As(u.Err, &silent):
			s += ": silent"
		case errors.As(u.Err, &rejected):
			s += ": rejected"
		case errors.As(u.Err, &unreachable):
			s += ": unreachable"
		default:
			s += ": " + u.Err.Error()
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

func (w *world) expectTold(want string) {
	w.t.Helper()
	if got := w.told(); got != want {
		w.t.Fatalf("told %q, want %q", got, want)
	}
}

func (w *world) expectNothingTold() {
	w.t.Helper()
	synctest.Wait()
	select {
	case u := <-w.updates:
		w.t.Fatalf("told %q, want nothing", describe(u))
	default:
	}
}

// event takes events until one of a type.
func event[E Event](w *world) E {
	w.t.Helper()
	for {
		if e, ok := await(w.t, w.events, fmt.Sprintf("%T", *new(E))).(E); ok {
			return e
		}
	}
}

// state returns the status of a resource.
func (w *world) state(t resource.Type, name string) ResourceStatus {
	w.t.Helper()
	for _, r := range w.client.Status().Resources {
		if r.Key == (resource.Key{Type: t, Name: name}) {
			return r
		}
	}
	return ResourceStatus{}
}
