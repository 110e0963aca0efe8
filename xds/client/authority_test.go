package client

import (
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

func TestRemovalByAbsence(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		w.want(cds, "a", "b", "never")
		w.want(eds, "a", "b")
		w.want(resource.TypeListener, "l")
		w.want(resource.TypeRoutes, "r", "r2")
		s := w.servers["one"].accept()
		for range 4 {
			s.receive()
		}
		s.send("1", "n1", cluster("a"), cluster("b"))
		w.expectUpdates("a=1, b=1")
		s.send("1", "n2", assignment("a", 1), assignment("b", 1))
		w.expectUpdates("a=1, b=1")
		s.send("1", "n3", listener("l", "r"))
		w.expectUpdates("l=1")
		s.send("1", "n4", routes("r", "a"), routes("r2", "a"))
		w.expectUpdates("r2=1, r=1")

		// A complete response deletes what it does not have, after it was sent once.
		s.send("2", "n5", cluster("a"))
		w.expectUpdates("ambient b: not found")
		w.expectState(cds, "b", DoesNotExistButCached, "1")
		w.expectState(cds, "never", Requested)
		s.sendType(resource.TypeListener.URL(), "2", "n6")
		w.expectUpdates("ambient l: not found")
		// A deletion is reported once.
		s.send("3", "n7", cluster("a"))
		s.sendType(resource.TypeListener.URL(), "3", "n8")
		// Assignments and routes are sent only when they change.
		s.send("2", "n9", assignment("b", 2))
		w.expectUpdates("b=2")
		s.sendType(resource.TypeRoutes.URL(), "2", "n10")
		w.expectNoUpdates()

		s.send("4", "n11", cluster("a"), cluster("b"))
		w.expectUpdates("b=4") // a is unchanged
		// An invalid resource is not absent.
		s.send("5", "n12", badCluster("b"))
		w.expectUpdates("ambient a: not found, ambient b: rejected")
		s.send("6", "n13", cluster("a"))
		w.expectUpdates("a=6, ambient b: not found")
	})
}

func TestUnchangedResource(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		s := w.load("a", "b")
		before := w.state(cds, "a").Updated
		s.send("2", "n2", cluster("b", "other"), cluster("a"))
		w.expectUpdates("b=2")
		s.send("2", "n3", cluster("a"), cluster("b", "other"))
		w.expectNoUpdates()
		got := w.state(cds, "a")
		if got.Version != "2" || !got.Updated.Equal(before) || got.State != Acked {
			t.Errorf("it is %+v", got)
		}
		counts := w.client.Status().Updates
		valid, unchanged := counts[UpdateCount{"passthrough:///one", cds, UpdateValid}], counts[UpdateCount{"passthrough:///one", cds, UpdateUnchanged}]
		if valid != 3 || unchanged != 3 {
			t.Errorf("counted %d valid, %d unchanged", valid, unchanged)
		}

		// A valid version after a rejected one is reported, also if the value is the same.
		s.send("3", "n4", badCluster("a"), cluster("b", "other"))
		w.expectUpdates("ambient a: rejected")
		s.send("3", "n5", badCluster("a"), cluster("b", "other"))
		w.expectNoUpdates() // only once
		s.send("4", "n6", cluster("a"), cluster("b", "other"))
		w.expectUpdates("a=4")
	})
}

func TestStatesOfRejectedResources(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		s := w.subscribe(cds, "a")
		s.send("1", "n1", badCluster("a"))
		w.expectUpdates("a: rejected")
		got := w.state(cds, "a")
		if got.State != Nacked || got.Version != "" || got.Rejection.Version != "1" || !isKind(got.Err, ErrorRejected) {
			t.Errorf("it is %+v", got)
		}
		if e := event[Rejected](w); e.Keys[0].Name != "a" || e.Version != "1" || !strings.Contains(e.Err.Error(), "lb_policy") {
			t.Errorf("%+v", e)
		}
		time.Sleep(time.Hour) // without a timeout
		w.expectNoUpdates()
		s.send("2", "n2", cluster("a"))
		w.expectUpdates("a=2")
		if got := w.state(cds, "a"); got.State != Acked || got.Rejection != nil || got.Err != nil {
			t.Errorf("it is %+v", got)
		}
		s.send("3", "n3", badCluster("a"))
		w.expectUpdates("ambient a: rejected")
		if got := w.state(cds, "a"); got.State != NackedButCached || got.Version != "2" || got.Rejection.Version != "3" {
			t.Errorf("it is %+v", got)
		}
	})
}

const federated = `{"node":{"id":"test"},
	"xds_servers":[{"server_uri":"passthrough:///one","channel_creds":[{"type":"insecure"}]}],
	"authorities":{
		"same":{},
		"other":{"xds_servers":[
			{"server_uri":"passthrough:///two","channel_creds":[{"type":"insecure"}]},
			{"server_uri":"passthrough:///one","channel_creds":[{"type":"insecure"}]}]}}}`

const xdstp = "xdstp://%/envoy.config.cluster.v3.Cluster/a"

func of(authority string) string { return strings.ReplaceAll(xdstp, "%", authority) }

// Authorities with the same server share its connection and stream.
func TestAuthoritiesShareServers(t *testing.T) {
	runTest(t, federated, func(t *testing.T, w *harness) {
		w.want(cds, "a", of("same"), of("other"))
		one, two := w.servers["one"].accept(), w.servers["two"].accept()
		one.expect(`node=test Cluster [a ` + of("same") + `] version="" nonce=""`)
		two.expect(`node=test Cluster [` + of("other") + `] version="" nonce=""`)
		one.send("1", "n1", cluster("a"), cluster(of("same")))
		got := []string{w.nextUpdates(), w.nextUpdates()} // one for each authority
		if !(got[0] == "a=1" && got[1] == of("same")+"=1" || got[1] == "a=1" && got[0] == of("same")+"=1") {
			t.Fatalf("updates %q", got)
		}
		one.receive()

		// A deletion affects one authority.
		one.send("2", "n2", cluster("a"))
		w.expectUpdates("ambient " + of("same") + ": not found")
		one.receive()

		// The third falls back to the server in use, which stays connected after the return.
		w.servers["two"].kill()
		one.expect(`Cluster [a ` + of("other") + ` ` + of("same") + `] version="2" nonce="n2"`)
		one.send("3", "n3", cluster("a"), cluster(of("other")))
		w.expectUpdates(of("other") + "=3")
		one.receive()
		w.servers["two"].start()
		two = w.servers["two"].accept()
		two.receive()
		two.send("1", "n1", cluster(of("other")))
		event[Returned](w)
		one.expect(`Cluster [a ` + of("same") + `] version="3" nonce="n3"`)

		// It also does when one of two authorities wants nothing.
		w.want(cds, "-a")
		one.expect(`Cluster [` + of("same") + `] version="3" nonce="n3"`)
		w.want(cds, "-"+of("same"))
		<-one.stream.Context().Done()
		if w.servers["one"].dials != 1 {
			t.Errorf("%d connections", w.servers["one"].dials)
		}
	})
}

func TestAwayPerAuthority(t *testing.T) {
	runTest(t, federated, func(t *testing.T, w *harness) {
		away := func(want ...bool) {
			t.Helper()
			for i, name := range []string{"a", of("same"), of("other")} {
				if got := w.client.Away("t", name); got != want[i] {
					t.Errorf("away %s: %v", name, got)
				}
			}
		}
		w.want(cds, "a", of("other"))
		one, two := w.servers["one"].accept(), w.servers["two"].accept()
		away(true, true, true)
		one.send("1", "n1", cluster("a"))
		w.expectUpdates("a=1")
		away(false, true, true)
		two.send("1", "n1", cluster(of("other")))
		w.expectUpdates(of("other") + "=1")
		away(false, true, false)
		one.end <- nil
		one = w.servers["one"].accept()
		away(true, true, false)
		one.send("1", "n1", cluster("a"))
		one.receive()
		one.receive()
		away(false, true, false)
		w.want(cds, of("same")) // its server is connected
		one.receive()
		away(false, false, false)
	})
}

func TestUnknownAuthority(t *testing.T) {
	runTest(t, federated, func(t *testing.T, w *harness) {
		w.want(cds, of("unknown"))
		w.expectUpdates(of("unknown") + ": unreachable")
		r := w.state(cds, of("unknown"))
		if r.State != Requested || !strings.Contains(r.Err.Error(), `"unknown"`) {
			t.Errorf("it is %+v", r)
		}
		w.expectAway(of("unknown"), true)
		w.want(cds, "-"+of("unknown"))
		w.expectResources(0)
		expectNone(t, w.servers["one"].streams, "stream")
	})
}

// Names with context parameters in a different order are one resource. Its updates have
// each name that it was wanted by.
func TestNamesWithContextParameters(t *testing.T) {
	runTest(t, federated, func(_ *testing.T, w *harness) {
		w.want(cds, of("same")+"?b=2&a=1")
		one := w.servers["one"].accept()
		one.expect(`node=test Cluster [` + of("same") + `?a=1&b=2] version="" nonce=""`)
		one.send("1", "n1", cluster(of("same")+"?b=2&a=1"))
		w.expectUpdates(of("same") + "?b=2&a=1=1")
		one.receive()
		w.want(cds, of("same")+"?a=1&b=2")
		w.expectUpdates(of("same") + "?a=1&b=2=1")
		one.expectNothing()
		one.send("2", "n2", cluster(of("same")+"?a=1&b=2", "other"))
		w.expectUpdates(of("same") + "?a=1&b=2=2, " + of("same") + "?b=2&a=1=2")
		one.receive()
		w.want(cds, "-"+of("same")+"?b=2&a=1")
		one.send("3", "n3", cluster(of("same")+"?a=1&b=2"))
		w.expectUpdates(of("same") + "?a=1&b=2=3")
		w.want(cds, "-"+of("same")+"?a=1&b=2")
		<-one.stream.Context().Done()
	})
}

func TestCanonicalNames(t *testing.T) {
	for name, want := range map[string]string{
		"a?b=1&a=2":               "a?b=1&a=2",
		"xdstp://x/t/n":           "xdstp://x/t/n",
		"xdstp://x/t/n?b=1&a=2":   "xdstp://x/t/n?a=2&b=1",
		"xdstp://x/t/n?a-b=1&a=2": "xdstp://x/t/n?a=2&a-b=1",
		"xdstp://x/t/n?b&a=%2F#d": "xdstp://x/t/n?a=%2F&b#d",
		"xdstp://x/t/n?":          "xdstp://x/t/n?",
	} {
		if got := canonical(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
		if again := canonical(want); again != want {
			t.Errorf("%q is %q, then %q", name, want, again)
		}
	}
}
