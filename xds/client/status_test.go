package client

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestStatusOfServers(t *testing.T) {
	runTest(t, "one two", func(t *testing.T, w *harness) {
		check := func(want ...string) {
			t.Helper()
			synctest.Wait()
			for i, s := range w.client.Status().Servers {
				got := fmt.Sprintf("%s connected=%v active=%v error=%v", s.URI, s.Connected, s.Targets > 0, s.LastError != nil)
				if !s.Since.IsZero() {
					got += fmt.Sprintf(" since=%v", time.Since(s.Since))
				}
				if got != want[i] {
					t.Errorf("is   %s\nwant %s", got, want[i])
				}
			}
		}
		check("passthrough:///one connected=false active=false error=false", "passthrough:///two connected=false active=false error=false")
		w.want(cds, "a")
		one := w.servers["one"].accept()
		time.Sleep(time.Second)
		check("passthrough:///one connected=false active=true error=false", "passthrough:///two connected=false active=false error=false")
		one.send("1", "n1", cluster("a"))
		w.expectUpdates("a=1")
		time.Sleep(time.Minute)
		check("passthrough:///one connected=true active=true error=false since=1m0s", "passthrough:///two connected=false active=false error=false")
		w.servers["one"].kill()
		w.expectUpdates("ambient a: unreachable")
		w.want(cds, "b")
		w.servers["two"].accept().send("1", "n1", cluster("a"))
		synctest.Wait()
		check("passthrough:///one connected=false active=false error=true since=0s", "passthrough:///two connected=true active=true error=false since=0s")
	})
}

func TestStatusOrder(t *testing.T) {
	runTest(t, federated, func(t *testing.T, w *harness) {
		w.want(cds, "b", of("other"), "a", of("unknown"))
		w.want(eds, "a")
		s := w.client.Status()
		var resources, servers []string
		for _, r := range s.Resources {
			resources = append(resources, r.Key.String()+"@"+r.Authority)
		}
		for _, s := range s.Servers {
			servers = append(servers, s.Authority+"="+s.URI)
		}
		want := fmt.Sprintf("Cluster/a@ Cluster/b@ Cluster/%s@other Cluster/%s@ ClusterLoadAssignment/a@", of("other"), of("unknown"))
		if got := strings.Join(resources, " "); got != want {
			t.Errorf("resources\n%s, want\n%s", got, want)
		}
		if got := strings.Join(servers, " "); got != "=passthrough:///one other=passthrough:///two other=passthrough:///one same=passthrough:///one" {
			t.Errorf("servers %s", got)
		}
	})
}

func TestEventsOfConnections(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		w.want(cds, "a")
		s := w.servers["one"].accept()
		synctest.Wait()
		if len(w.events) > 0 {
			t.Errorf("%#v before a response", <-w.events)
		}
		s.send("1", "n1", cluster("a"))
		if e := event[Connected](w); e.Server != "passthrough:///one" {
			t.Errorf("%+v", e)
		}
		s.send("2", "n1", cluster("a"))
		s.end <- errors.New("enough")
		if e := event[Disconnected](w); !e.Answered || e.Server != "passthrough:///one" || !strings.Contains(e.Err.Error(), "enough") {
			t.Errorf("%+v", e)
		}
		w.servers["one"].accept().end <- nil
		if e := event[Disconnected](w); e.Answered || !errors.Is(e.Err, errStreamEnded) {
			t.Errorf("%+v", e)
		}
	})
}

func TestErrorTexts(t *testing.T) {
	key := resource.Key{Type: cds, Name: "a"}
	cause := errors.New("cause")
	for _, c := range []struct {
		err   error
		words string
	}{
		{&ResourceError{Kind: ErrorDeleted, Key: key, Server: "s:1"}, `Cluster/a does not exist: management server "s:1" no longer sends it`},
		{&ResourceError{Kind: ErrorExpired, Key: key, Server: "s:1"}, `Cluster/a does not exist: management server "s:1" did not send it within 15s`},
		{&ResourceError{Kind: ErrorUnrequestable, Key: resource.Key{Type: cds, Name: "*"}}, `Cluster of name "*" does not exist: no management server can be asked for that name`},
		{&ResourceError{Kind: ErrorRejected, Key: key, Server: "s:1", Err: cause}, `rejected the resource from management server "s:1": cause`},
		{&ResourceError{Server: "s:1", Err: cause}, `management server "s:1" cannot be reached: cause`},
		{&ResourceError{Err: cause}, "cause"},
	} {
		if got := c.err.Error(); got != c.words {
			t.Errorf("%s, want %s", got, c.words)
		}
	}
	if !errors.Is(&ResourceError{Err: cause}, cause) {
		t.Error("the error does not wrap the cause")
	}
}

func TestRequiredOptions(t *testing.T) {
	if _, err := New(Options{OnUpdate: func([]Update) {}}); err == nil {
		t.Error("no error without a bootstrap")
	}
	if _, err := New(Options{Bootstrap: &bootstrap.Config{}}); err == nil {
		t.Error("no error without OnUpdate")
	}
}
